"""The embedded llama.cpp server: a child process of ours on loopback, ended with its user."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import anyio
from anyio.abc import Process

from stockade.core.data import Data
from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.gguf import GgufInfo, read_gguf
from stockade.models.progress import OnProgress, readable, silent
from stockade.models.settings import DEFAULT_WINDOW, ModelSettings

_STOP_GRACE_S = 3.0
_MAX_REPORT_BYTES = 64 * 1024
_LOG_TAIL_BYTES = 64 * 1024
_OVERHEAD_BYTES = 300_000_000
# The worker parses model files and hostile schemas: it gets no keys. Prefixes end with "_".
_ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV",
                "LC_", "GGML_", "OMP_", "GOMP_", "CUDA_", "HIP_", "VK_")  # fmt: skip
# `0.00.005.845 E ` at the head of a line: time and level.
_LOG_HEAD = re.compile(r"^(?:\d+\.)+\d+ (?P<level>[A-Z]) ")


class WorkerSettings(Data):
    """What the worker is told on its stdin, see worker.py."""

    path: str
    alias: str
    window: int
    slots: int
    threads: int
    gpu_layers: int
    check_tensors: bool
    api_key: str


def window_for(info: GgufInfo, wanted: int | None) -> int:
    """Tokens of one slot: what is wanted, else the smaller of the model's and 8192. UsageError beyond the model's."""
    if wanted is None:
        return min(info.context_length or DEFAULT_WINDOW, DEFAULT_WINDOW)
    if info.context_length and wanted > info.context_length:
        raise UsageError(
            f"a window of {wanted} tokens is more than the {info.context_length} that the model was made for",
            "ask for a smaller one",
        )
    return wanted


def check_memory(info: GgufInfo, window: int, slots: int) -> None:
    """ModelUnavailable when the weights and the KV cache do not fit into the memory that is free now."""
    available = _available_bytes()
    needed = info.size_bytes + info.kv_bytes_per_token * window * slots + _OVERHEAD_BYTES
    if available is not None and needed > available:
        raise ModelUnavailable(
            f"{Path(info.path).name} with a window of {window} tokens needs about {readable(needed)} of memory, "
            f"{readable(available)} are free",
            "choose a smaller window or model, or end other programs",
        )


def _available_bytes() -> int | None:
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


class EmbeddedServer:
    """`async with EmbeddedServer(path, "name", settings) as server`: ready on entering, gone on leaving.

    `check_tensors` reads every weight once: for a file whose hash was never compared. Raises ModelUnavailable in one
    line when the file, the memory or the start is at fault. Not for concurrent `restart`.
    """

    def __init__(
        self,
        path: Path,
        alias: str,
        settings: ModelSettings | None = None,
        *,
        check_tensors: bool = False,
        on_progress: OnProgress = silent,
    ) -> None:
        self._path, self._alias = path, alias
        self._settings = settings or ModelSettings()
        self._check_tensors = check_tensors
        self._on_progress = on_progress
        self._process: Process | None = None
        self._log: IO[bytes] | None = None
        self._port = 0
        self._window = 0
        self.api_key = secrets.token_urlsafe(24)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def window(self) -> int:
        """Tokens of one slot."""
        return self._window

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def died(self) -> str | None:
        """A sentence when the process is gone, quoting llama.cpp's last words; None while it lives."""
        if self._process is None or self._process.returncode is None:
            return None
        return f"the embedded server {_ending(self._process.returncode)}: {self._last_words()}"

    async def __aenter__(self) -> Self:
        info = await anyio.to_thread.run_sync(read_gguf, self._path)
        self._window = window_for(info, self._settings.ctx_size)
        check_memory(info, self._window, self._settings.slots)
        self._on_progress(f"loading {self._alias} ({readable(info.size_bytes)})", 0, 0)
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def restart(self) -> None:
        """A new process with the same settings, on another port. For a server that died."""
        self._on_progress(f"{self.died() or 'the embedded server'}; starting it again", 0, 0)
        await self._stop()
        await self._start()

    async def _start(self) -> None:
        self._log = _open_log(self._settings.log_file)
        try:
            self._process = await anyio.open_process(
                # -P: a module in the current folder must not be imported instead of ours.
                [sys.executable, "-P", "-m", "stockade.models.worker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=_environment(), cwd="/",
                start_new_session=True,
            )  # fmt: skip
            with anyio.fail_after(self._settings.load_timeout_s):
                report = await self._first_report(self._process)
        except TimeoutError as error:
            await self._stop()
            raise ModelUnavailable(
                f"{self._alias} was not loaded within {self._settings.load_timeout_s:g} s: {self._last_words()}"
            ) from error
        except BaseException:
            await self._stop()
            raise
        if "port" not in report:
            # Only now: the log must be read before it goes.
            reason = self._last_words() or str(report.get("error", ""))
            await self._stop()
            raise ModelUnavailable(f"{self._path} cannot be loaded: {reason}", "give the path of a whole .gguf file")
        self._port = int(report["port"])

    async def _first_report(self, process: Process) -> dict[str, Any]:
        """The worker's line; {} with the ending when it died without a word."""
        assert process.stdin is not None
        assert process.stdout is not None
        settings = self._settings
        told = WorkerSettings(
            path=str(self._path.absolute()),
            alias=self._alias,
            window=self._window * settings.slots,
            slots=settings.slots,
            threads=settings.threads or _usable_cpus(),
            gpu_layers=-1 if settings.gpu_layers is None else settings.gpu_layers,
            check_tensors=self._check_tensors,
            api_key=self.api_key,
        )
        line = b""
        try:
            await process.stdin.send(told.model_dump_json().encode() + b"\n")
            while (found := _report_in(line)) is None and len(line) < _MAX_REPORT_BYTES:
                line += await process.stdout.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return {"error": f"its process {_ending(await process.wait())}"}
        return found or {"error": "its process says things that are not understood"}

    async def _stop(self) -> None:
        """The lifeline is closed; a process that does not end by it is killed."""
        process, log = self._process, self._log
        self._log = None
        if process is not None:
            with anyio.CancelScope(shield=True):
                if process.stdin is not None:
                    await process.stdin.aclose()
                with anyio.move_on_after(_STOP_GRACE_S):
                    await process.wait()
                if process.returncode is None:
                    process.kill()
                await process.aclose()
        if log is not None:
            log.close()

    def _last_words(self) -> str:
        """The last error line of llama.cpp's log, else its last line."""
        if self._log is None:
            return ""
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), _LOG_TAIL_BYTES, max(0, size - _LOG_TAIL_BYTES))
        return last_words(tail.decode(errors="replace"))


def _report_in(said: bytes) -> dict[str, Any] | None:
    """The worker's own line, which whatever runs at Python's start may have printed something before."""
    for line in said.splitlines(keepends=True):
        if line.startswith(b"{") and line.endswith(b"\n"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                return found
    return None


def last_words(log: str) -> str:
    """The line that says why: the first error of the log's end, for the later ones only say that there was one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if (head := _LOG_HEAD.match(line)) and head["level"] == "E"]
    line = (errors[:1] or lines[-1:] or [""])[0]
    return " ".join("".join(c for c in _LOG_HEAD.sub("", line) if c.isprintable()).split())[:300]


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if any(name == known or (known.endswith("_") and name.startswith(known)) for known in _ENVIRONMENT)
    }


def _open_log(path: Path | None) -> IO[bytes]:
    if path is None:
        return tempfile.TemporaryFile()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w+b")
    except OSError as error:
        raise UsageError(f"cannot write the log {path}: {error.strerror}") from error
