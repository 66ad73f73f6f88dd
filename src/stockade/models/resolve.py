"""From what the person typed to a model that can be entered.

A provider is imported when it is the one: all of them would cost each start a tenth of a second.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import anyio

from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.core.ports import Model
from stockade.models.catalogue import CATALOGUE, DEFAULT
from stockade.models.listing import ModelEntry, catalogued, list_models
from stockade.models.memory import available_bytes, fits
from stockade.models.names import AUTO, ModelName, parse_name
from stockade.models.net import bearer
from stockade.models.prices import FREE, price_of
from stockade.models.progress import OnProgress, readable, silent
from stockade.models.servers import Address, address_of
from stockade.models.settings import ModelSettings
from stockade.models.shelf import is_verified, models_folder

__all__ = ["ModelChoice", "ModelSettings", "choose_model", "open_model"]

PROBE_TIMEOUT_S = 0.25
_MAX_LIST_BYTES = 1 << 20
FREE_PROVIDERS = ("llama-server", "llamafile", "ollama", "vllm", "lm-studio")
"""Who runs them pays for electricity only."""
_OTHER_KINDS = re.compile(r"\bclip\b|bert\b|embed|rerank|\bbge-|\be5-|minilm|whisper|\bmmproj", re.IGNORECASE)
"""In names and architectures of models that give no answers: they compare texts, or read pictures and sounds."""
_BETTER = "a better one: --model openai/NAME with OPENAI_BASE_URL, or any GGUF file as --model gguf/PATH"


class ModelChoice(Data):
    """What `auto` stands for, and a line that says why and how to get a better one."""

    spec: str
    note: str | None = None


async def open_model(
    spec: str,
    settings: ModelSettings | None = None,
    on_progress: OnProgress | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Model, str, str | None]:
    """The model, not yet entered; its full name; and for `auto` the line on why this one.

    An embedded model is fetched here when it is missing, so that entering takes no more than loading. Raises UsageError
    for what the person can mend by typing, ModelUnavailable where the file cannot be had or used.
    """
    settings = settings or ModelSettings()
    on_progress = on_progress or silent
    choice = await choose_model(settings, environment) if spec == AUTO else ModelChoice(spec=spec)
    name = parse_name(choice.spec)
    if name.provider == "scripted":
        model: Model = _scripted(name)
    elif name.provider in ("embedded", "gguf"):
        model = await _embedded(name, settings, on_progress)
    elif name.is_path:
        model = await _started(name, settings, on_progress)
    else:
        model = _served(name, address_of(name.provider, environment, name.name), settings, on_progress)
    return model, str(name), choice.note


def _scripted(name: ModelName) -> Model:
    from stockade.models.scripted import ScriptedModel

    return ScriptedModel(_path(name))


def _served(name: ModelName, address: Address, settings: ModelSettings, on_progress: OnProgress) -> Model:
    """A model on a server that runs already."""
    from stockade.models.transport import HttpTimes

    if settings.ctx_size is not None:
        on_progress(f"--ctx-size is for models that we load: the window of {name} is its server's", 0, 0)
    price = FREE if name.provider in FREE_PROVIDERS else price_of(str(name))
    times = HttpTimes(idle_s=settings.idle_timeout_s)
    if address.api == "anthropic":
        from stockade.models.anthropic import AnthropicModel

        return AnthropicModel(address.base_url, name.name, headers=address.headers, price=price, times=times)
    from stockade.models.openai_http import OpenAIModel

    return OpenAIModel(
        address.base_url, name.name, provider=name.provider, headers=address.headers, query=address.query,
        dialect=address.dialect, slot=settings.slot, price=price, native_tools=address.native_tools,
        on_progress=on_progress, times=times, key_hint=address.key_hint,
    )  # fmt: skip


async def _started(name: ModelName, settings: ModelSettings, on_progress: OnProgress) -> Model:
    """A model on a server that is started for it."""
    from stockade.models.engines import find_binary
    from stockade.models.gguf import read_gguf
    from stockade.models.started import StartedModel

    path = _path(name)
    if name.provider == "llama-server":
        await anyio.to_thread.run_sync(read_gguf, path)
        program = find_binary(settings)
        if program is None:
            raise UsageError("there is no llama-server on PATH", "install one, or use gguf/PATH: the built-in server")
        return StartedModel(path, name.provider, program, settings, on_progress)
    return StartedModel(path, name.provider, None, settings, on_progress)


async def _embedded(name: ModelName, settings: ModelSettings, on_progress: OnProgress) -> Model:
    from stockade.models.embedded import EmbeddedModel
    from stockade.models.gguf import read_gguf

    if name.provider == "embedded":
        path = await _catalogue_file(name.name, settings, on_progress)
        label, checked = name.name, True
    else:
        path = _path(name)
        info = await anyio.to_thread.run_sync(read_gguf, path)
        label, checked = path.stem or info.name, False
    return EmbeddedModel(
        path, label, name.provider, settings, trusted=checked, on_progress=on_progress
    )  # fmt: skip


async def _catalogue_file(name: str, settings: ModelSettings, on_progress: OnProgress) -> Path:
    """The file of this model, fetched when it is not here."""
    model = catalogued(name)
    path = (settings.folder or models_folder()) / model.file
    if is_verified(path, model.sha256):
        return path
    from stockade.models.fetch import fetch

    return await fetch(model, on_progress, settings.folder)


def _path(name: ModelName) -> Path:
    """The name as a path; `~` is the person's home."""
    return Path(name.name).expanduser()


async def choose_model(settings: ModelSettings, environment: Mapping[str, str] = os.environ) -> ModelChoice:
    """What is configured, else a local server that answers at once, else the largest model that is here, else ours."""
    if settings.configured and settings.configured != AUTO:
        return ModelChoice(spec=settings.configured)
    if running := await _running(environment):
        spec, server = running
        return ModelChoice(spec=spec, note=f"using {spec}: it is what {server} has running; another: --model")
    folder = settings.folder or models_folder()
    entries = await anyio.to_thread.run_sync(list_models, folder)
    default = CATALOGUE[DEFAULT]
    usable = [entry for entry in entries if entry.here and not entry.problem and _answers(entry)]
    free = available_bytes()
    fitting = [entry for entry in usable if free is None or fits(entry.size_bytes, free)]
    if best := max(fitting, key=lambda entry: entry.size_bytes, default=None):
        larger = "" if len(fitting) == len(usable) else " that fit into its memory now"
        return ModelChoice(
            spec=best.name,
            note=f"using {best.name}: the most capable of the models on this machine{larger}; {_BETTER}",
        )
    here = is_verified(folder / default.file, default.sha256)
    return ModelChoice(
        spec=f"embedded/{DEFAULT}",
        note=f"using embedded/{DEFAULT}: no model server is running and no model was pulled"
        f"{'' if here else f'; it is fetched once ({readable(default.size_bytes)}, {default.licence})'}; {_BETTER}",
    )


def _answers(entry: ModelEntry) -> bool:
    """Whether it is one to talk to. smollm2 is there to try the plumbing: nobody who did not name it wants it."""
    kind = f"{entry.architecture} {entry.name.rpartition('/')[2]}"
    return entry.name != "embedded/smollm2" and _OTHER_KINDS.search(kind) is None


async def _running(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The name of a model on llama-server or Ollama, asked side by side, and where it runs."""
    from stockade.models.http import Client
    from stockade.models.streams import HttpError

    found: dict[str, tuple[str, str]] = {}

    async def ask(provider: str) -> None:
        try:
            address = address_of(provider, environment)
            with anyio.fail_after(PROBE_TIMEOUT_S):
                async with Client(address.base_url, bearer(address.api_key)) as client:
                    async with client.asked("GET", f"{address.base_url}/models") as response:
                        listed = json.loads(await response.whole(_MAX_LIST_BYTES))
            names = [item["id"] for item in listed["data"] if isinstance(item["id"], str) and item["id"].isprintable()]
            names = [name for name in names if _OTHER_KINDS.search(name) is None]
        except (HttpError, TimeoutError, ValueError, TypeError, KeyError, UsageError):
            return
        if names:
            found[provider] = (f"{provider}/{names[0]}", address.base_url.removesuffix("/v1"))

    async with anyio.create_task_group() as group:
        for provider in ("llama-server", "ollama"):
            group.start_soon(ask, provider)
    return found.get("llama-server") or found.get("ollama")
