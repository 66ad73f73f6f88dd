"""Our providers, as the entry points of `stockade.models` name them: from a model's name to one that can be entered.

A model's module is imported when it is the one: all of them would cost each start a tenth of a second.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from stockade.core.errors import UsageError
from stockade.core.ports import Model
from stockade.models.local.folder import is_verified, models_folder
from stockade.models.local.listing import OUR_TABLE, catalogued
from stockade.models.pricing import FREE, price_of
from stockade.models.providers import Address, ModelName, address_of
from stockade.models.settings import ModelSettings, OnProgress, silent

FREE_PROVIDERS = ("llama-server", "llamafile", "ollama", "vllm", "lm-studio")
"""Who runs them pays for electricity only."""


@dataclass(frozen=True, slots=True)
class ModelContext:
    """What a provider may need to open a model. `environment`: the variables that say where its server is, and keys."""

    provider: str
    settings: ModelSettings = field(default_factory=ModelSettings)
    on_progress: OnProgress = silent
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)


async def open_file(name: str, context: ModelContext) -> Model:
    """A model that is a file. It is fetched here when it is missing, so that entering takes no more than loading.

    Raises UsageError for what the user can mend by typing, ModelUnavailable where the file cannot be had or used.
    """
    full = ModelName(provider=context.provider, name=name)
    return await _embedded(full, context.settings, context.on_progress)


async def open_started(name: str, context: ModelContext) -> Model:
    """A server that is started from a file where the name is a path; one that runs already, else. Raises the same."""
    full = ModelName(provider=context.provider, name=name)
    if full.is_path:
        return await _started(full, context.settings, context.on_progress)
    return open_served(name, context)


def open_served(name: str, context: ModelContext) -> Model:
    """A model on a server that runs already. Raises UsageError where its address or key is missing."""
    address = address_of(context.provider, context.environment, name)
    full = ModelName(provider=context.provider, name=name)
    return _served(full, address, context.settings, context.on_progress)


def open_script(name: str, context: ModelContext) -> Model:
    """A file of answers."""
    return _scripted(ModelName(provider=context.provider, name=name))


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
    from stockade.models.openai import OpenAIModel

    return OpenAIModel(
        address.base_url, name.name, provider=name.provider, headers=address.headers, query=address.query,
        dialect=address.dialect, slot=settings.slot, price=price, native_tools=address.native_tools,
        on_progress=on_progress, times=times, key_hint=address.key_hint,
    )  # fmt: skip


async def _started(name: ModelName, settings: ModelSettings, on_progress: OnProgress) -> Model:
    """A model on a stock server that is started for it."""
    from stockade.models.local.embedded import EmbeddedModel
    from stockade.models.local.gguf import read_gguf
    from stockade.models.local.launch_spec import stock_server

    path = _path(name).absolute()
    program: Path | None = path
    parameters: tuple[int | None, str] = (None, "")
    if name.provider == "llama-server":
        header = await anyio.to_thread.run_sync(read_gguf, path)
        parameters = header.parameters, header.parameters_source
        program = stock_server(settings, on_path=True)
        if program is None:
            raise UsageError("there is no llama-server on PATH", "install one, or use gguf/PATH: the built-in server")
    elif not path.is_file():
        raise UsageError(f"there is no file {path}", f"write {name.provider}//PATH/TO/FILE")
    return EmbeddedModel(
        path, path.stem, name.provider, settings, trusted=program == path, on_progress=on_progress, program=program,
        parameters=parameters,
    )  # fmt: skip


async def _embedded(name: ModelName, settings: ModelSettings, on_progress: OnProgress) -> Model:
    from stockade.models.local.embedded import EmbeddedModel
    from stockade.models.local.gguf import read_gguf

    if name.provider == "embedded":
        path = await _catalogue_file(name.name, settings, on_progress)
        label, checked = name.name, True
        parameters: tuple[int | None, str] = catalogued(name.name).parameters, OUR_TABLE
    else:
        path = _path(name)
        info = await anyio.to_thread.run_sync(read_gguf, path)
        label, checked = path.stem or info.name, False
        parameters = info.parameters, info.parameters_source
    return EmbeddedModel(
        path, label, name.provider, settings, trusted=checked, on_progress=on_progress, parameters=parameters
    )  # fmt: skip


async def _catalogue_file(name: str, settings: ModelSettings, on_progress: OnProgress) -> Path:
    """The file of this model, fetched when it is not here."""
    model = catalogued(name)
    path = (settings.folder or models_folder()) / model.file
    if is_verified(path, model.sha256):
        return path
    from stockade.models.local.fetch import fetch

    return await fetch(model, on_progress, settings.folder)


def _path(name: ModelName) -> Path:
    """The name as a path; `~` is the user's home."""
    return Path(name.name).expanduser()
