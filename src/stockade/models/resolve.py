"""From what the user typed to a model that can be entered.

A provider is imported when it is the one: all of them would cost each start a tenth of a second.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import anyio

from stockade.core.errors import UsageError
from stockade.core.ports import Model
from stockade.models.auto import ModelChoice, choose_model
from stockade.models.local.folder import is_verified, models_folder
from stockade.models.local.listing import OUR_TABLE, catalogued
from stockade.models.pricing import FREE, price_of
from stockade.models.providers import AUTO, Address, ModelName, address_of, parse_name
from stockade.models.settings import ModelSettings, OnProgress, silent

__all__ = ["ModelChoice", "ModelSettings", "choose_model", "open_model"]

FREE_PROVIDERS = ("llama-server", "llamafile", "ollama", "vllm", "lm-studio")
"""Who runs them pays for electricity only."""


async def open_model(
    spec: str,
    settings: ModelSettings | None = None,
    on_progress: OnProgress | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Model, str, str | None]:
    """The model, not yet entered; its full name; and for `auto` the line on why this one.

    An embedded model is fetched here when it is missing, so that entering takes no more than loading. Raises UsageError
    for what the user can mend by typing, ModelUnavailable where the file cannot be had or used.
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
    from stockade.models.openai import OpenAIModel

    return OpenAIModel(
        address.base_url, name.name, provider=name.provider, headers=address.headers, query=address.query,
        dialect=address.dialect, slot=settings.slot, price=price, native_tools=address.native_tools,
        on_progress=on_progress, times=times, key_hint=address.key_hint,
    )  # fmt: skip


async def _started(name: ModelName, settings: ModelSettings, on_progress: OnProgress) -> Model:
    """A model on a stock server that is started for it."""
    from stockade.models.local.embedded import EmbeddedModel
    from stockade.models.local.engines import find_binary
    from stockade.models.local.gguf import read_gguf

    path = _path(name).absolute()
    program: Path | None = path
    parameters: tuple[int | None, str] = (None, "")
    if name.provider == "llama-server":
        header = await anyio.to_thread.run_sync(read_gguf, path)
        parameters = header.parameters, header.parameters_source
        program = find_binary(settings)
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
