"""What `auto` stands for: what a local server has, else the best file that can run here now, else ours.

What cannot run, or gives no answers, is passed over, and the line that says what was chosen says that too.
"""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from stockade.core.errors import ModelFailed, ModelUnavailable, UsageError
from stockade.models.http import Client
from stockade.models.local.catalogue import CATALOGUE, DEFAULT
from stockade.models.local.folder import ModelEntry, is_verified, list_models, models_folder
from stockade.models.local.gguf import read_gguf
from stockade.models.local.launch_spec import available_bytes, fits, short_of, window_for
from stockade.models.local.server_lease import running
from stockade.models.providers import ModelName, address_of, bearer
from stockade.models.settings import ModelChoice, ModelSettings, readable

PROBE_TIMEOUT_S = 0.25
_MAX_LIST_BYTES = 1 << 20
_OTHER_KINDS = re.compile(
    r"\bclip\b|bert\b|embed|rerank|\bbge-|\be5-|\bgte-|minilm|\bparaphrase-|t5encoder|whisper|wavtokenizer|\bmmproj",
    re.IGNORECASE,
)
"""In names and architectures of models that give no answers: they compare texts, or read pictures and sounds."""
_IN_THE_CLOUD = re.compile(r"[:-]cloud$")
"""Ollama lists these beside its own, and runs them elsewhere: https://docs.ollama.com/cloud."""
_MODELS = ("/v1/models", "data", "id")
_LISTINGS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "llama-server": (_MODELS,),
    "vllm": (_MODELS,),
    "lm-studio": (("/api/v0/models", "data", "id"),),
    "ollama": (("/api/ps", "models", "name"), ("/api/tags", "models", "name"), _MODELS),
}
"""Those that are asked, best first: where each tells what it has, the key of the rows, and that of their names."""
_BETTER = "a stronger one: --model anthropic/NAME or openai/NAME with its key, ollama/NAME, gguf/PATH (docs/models.md)"


async def choose_model(settings: ModelSettings, environment: Mapping[str, str] = os.environ) -> ModelChoice:
    """A model on a local server that answers at once, else the file of most parameters that can run, else ours.

    ModelUnavailable when not even ours could be loaded: it is not fetched for nothing.
    """
    if found := await _running(environment):
        spec, server = found
        return ModelChoice(spec=spec, note=f"using {spec}: it is what {server} has running; {_BETTER}")
    return await anyio.to_thread.run_sync(_of_files, settings)


def _of_files(settings: ModelSettings) -> ModelChoice:
    """Blocking."""
    folder = settings.folder or models_folder()
    answering = [entry for entry in list_models(folder) if entry.here and _answers(entry)]
    loaded = _loaded_now()
    passed: list[str] = []
    for entry in sorted(answering, key=lambda entry: (entry.parameters or 0, entry.size_bytes), reverse=True):
        reason = None if os.path.realpath(entry.path) in loaded else _hindrance(entry, settings.ctx_size)
        if reason is None:
            best = "the most capable of the models on this machine"
            note = f"using {entry.name}: {best}{f' that can run now ({_first(passed)})' if passed else ''}; {_BETTER}"
            return ModelChoice(spec=entry.name, note=note)
        passed.append(reason)
    return _ours(folder, passed)


def _ours(folder: Path, passed: list[str]) -> ModelChoice:
    """The default, when nothing else can be used."""
    default = CATALOGUE[DEFAULT]
    here, free = is_verified(folder / default.file, default.sha256), available_bytes()
    if here or (free is not None and not fits(default.size_bytes, free)):
        room = f"the {readable(free or 0)} of memory that are free"
        reason = _first(passed) or f"embedded/{DEFAULT} takes more than {room}"
        raise ModelUnavailable(f"no model can run here now: {reason}", f"end other programs, or {_BETTER}")
    missing = f"none that is here can run now ({_first(passed)})" if passed else "no model was pulled"
    fetched = f"it is fetched once ({readable(default.size_bytes)}, {default.licence})"
    return ModelChoice(
        spec=f"embedded/{DEFAULT}",
        note=f"using embedded/{DEFAULT}: no model server is running and {missing}; {fetched}; {_BETTER}",
    )


def _first(passed: list[str]) -> str:
    """The largest of those that were passed over, and how many there are besides."""
    return f"{passed[0]}{f'; and {len(passed) - 1} more' if len(passed) > 1 else ''}" if passed else ""


def _hindrance(entry: ModelEntry, wanted: int | None) -> str | None:
    """Why it cannot be loaded now; `wanted` is the window that was asked for."""
    name = Path(entry.path).name
    try:
        info = read_gguf(Path(entry.path))
        short = short_of(info, window_for(info, wanted), 1)
    except ModelUnavailable as error:
        return error.message if name in error.message else f"{name}: {error.message}"
    except UsageError as error:
        return f"{name}: {error.message}"
    return short.message if short else None


def _loaded_now() -> set[str]:
    """Files that servers of ours hold in memory: those fit, whatever is free beside them."""
    with suppress(ModelUnavailable):
        return {server.path for server in running()}
    return set()


def _answers(entry: ModelEntry) -> bool:
    """Whether it is one to talk to. smollm2 is there to try the plumbing: nobody who did not name it wants it."""
    if entry.name == "embedded/smollm2":
        return False
    return _OTHER_KINDS.search(f"{entry.architecture} {entry.name.rpartition('/')[2]}") is None


async def _running(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The name of a model on a local server, all asked side by side, and where it runs."""
    result: dict[str, tuple[str, str]] = {}

    async def ask(provider: str) -> None:
        with suppress(ModelFailed, TimeoutError, UsageError):
            address = address_of(provider, environment)
            root = address.base_url.removesuffix("/v1")
            with anyio.fail_after(PROBE_TIMEOUT_S):
                async with Client(address.base_url, bearer(address.api_key)) as client:
                    id_ = await _first_of(provider, client, root)
            if id_ is not None:
                result[provider] = (_spec(provider, id_), root)

    async with anyio.create_task_group() as group:
        for provider in _LISTINGS:
            group.start_soon(ask, provider)
    return next((result[provider] for provider in _LISTINGS if provider in result), None)


def _spec(provider: str, id_: str) -> str:
    """A name for what the server calls `id_`. A llama-server may call its one model by the path or address of its file,
    which as a name would start a server of ours; it takes any other name too.
    """
    plain = provider != "llama-server" or not (ModelName(provider=provider, name=id_).is_path or "://" in id_)
    return f"{provider}/{id_ if plain else _last_part(id_)}"


def _last_part(id_: str) -> str:
    return id_.rstrip("/").rpartition("/")[2] or "model"


async def _first_of(provider: str, client: Client, root: str) -> str | None:
    """What it has loaded, else the first that it has, which it loads when asked."""
    for path, key, name_key in _LISTINGS[provider]:
        rows = [row for row in await _rows(client, root + path, key, name_key) if _talks(provider, row)]
        for row in sorted(rows, key=lambda row: "loaded" not in (row.get("state"), _inner(row, "status", "value"))):
            return str(row["name"])
    return None


def _talks(provider: str, row: dict[str, Any]) -> bool:
    """Whether it gives answers: by the kind that LM Studio says, else by its family and the last part of its name."""
    if provider == "lm-studio":
        return row.get("type") in ("llm", "vlm")
    if provider == "ollama" and (row.get("remote_host") or _IN_THE_CLOUD.search(row["name"])):
        return False
    return _OTHER_KINDS.search(f"{_inner(row, 'details', 'family')} {_last_part(row['name'])}") is None


async def _rows(client: Client, url: str, key: str, name_key: str) -> list[dict[str, Any]]:
    """The models under `key` of what is told there, each with its `name`; none where it is told otherwise."""
    async with client.asked("GET", url) as response:
        try:
            rows = json.loads(await response.whole(_MAX_LIST_BYTES))[key]
            named = [(row.get(name_key), row) for row in rows if isinstance(row, dict)]
        except (ValueError, TypeError, KeyError):
            return []
    return [{**row, "name": name} for name, row in named if isinstance(name, str) and name and name.isprintable()]


def _inner(row: dict[str, Any], key: str, name: str) -> str:
    result = row.get(key)
    return str(result.get(name, "")) if isinstance(result, dict) else ""
