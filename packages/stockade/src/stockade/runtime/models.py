"""From what the user typed to a model that can be entered, and to how it is asked: both are parts by their names."""

import difflib
import inspect
import os
from collections.abc import Mapping
from pathlib import Path

from stockade.answers.choice import AUTO as ANY_ANSWERS
from stockade.answers.choice import choose
from stockade.core.errors import UsageError
from stockade.core.messages import ModelInfo
from stockade.core.ports import AnswerProtocol, Model
from stockade.models.auto import ModelChoice, choose_model
from stockade.models.local.catalogue import CATALOGUE
from stockade.models.probe import probe_capabilities
from stockade.models.providers import AUTO, PROVIDER_NAMES, parse_name
from stockade.models.resolve import ModelContext
from stockade.models.settings import ModelSettings, OnProgress, silent
from stockade.runtime import registry
from stockade.runtime.spec import Options

GROUP: registry.Group = "stockade.models"
ANSWERS: registry.Group = "stockade.answers"


async def open_model(
    spec: str,
    settings: ModelSettings | None = None,
    on_progress: OnProgress | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Model, str, str | None]:
    """The model, not yet entered; its full name; and for `auto` the line on why this one.

    UsageError for what is no model's name, and for a provider that is broken; else what the provider raises.
    """
    settings = settings or ModelSettings()
    choice = await choose_model(settings, environment) if spec == AUTO else ModelChoice(spec=spec)
    name = parse_name(choice.spec, registry.names(GROUP))
    context = ModelContext(name.provider, settings, on_progress or silent, environment)
    model = registry.make(GROUP, name.provider, name.name, context)
    if inspect.isawaitable(model):
        model = await model
    if not isinstance(model, Model):
        raise registry.wrong(GROUP, name.provider, f"made {type(model).__name__}, which is no model")
    return model, str(name), choice.note


def is_ours(name: str) -> bool:
    """Whether a model of that full name comes from a provider of ours: another's word on itself is taken."""
    part = registry.owner(GROUP, name.partition("/")[0])
    return part is not None and part.ours


async def model_of(options: Options, on_progress: OnProgress | None) -> tuple[Model, str, str | None]:
    """The model, its full name, and a line on why this one where the choice was ours."""
    check_provider(options.model)
    return await open_model(options.model, model_settings(options), on_progress)


def check_provider(name: str) -> None:
    """UsageError when `name` is, or is nearly, one of the catalogue without its provider."""
    if "/" in name or name == AUTO or name in PROVIDER_NAMES:
        return
    if near := difflib.get_close_matches(name.lower(), CATALOGUE, n=1):
        raise UsageError(f"not a model: '{name}'", f"did you mean embedded/{near[0]}?")


def model_settings(options: Options) -> ModelSettings:
    """How an embedded model is loaded; with a seed on a server that nobody shares, or the run is another each time."""
    more = options.load_more()
    if "lora" in more:
        more["lora"] = str(Path(more["lora"]).expanduser().absolute())
        if not Path(more["lora"]).is_file():
            raise UsageError(f"--lora {options.lora}: there is no such file")
    return ModelSettings(
        ctx_size=options.ctx_size,
        threads=options.threads,
        gpu_layers=options.gpu_layers,
        more=more,
        keep_warm_s=options.keep_warm_s,
        llama_server=options.llama_server,
        alone=options.seed is not None,
    )


async def known_of(model: Model, name: str, answers: str, on_progress: OnProgress | None = None) -> ModelInfo:
    """What is known of the model before it is asked. What it does is tried once a model, where `answers` are `auto`."""
    if not is_ours(name):
        return model.info
    return await probe_capabilities(model, name, on_progress, trial=answers == ANY_ANSWERS)


async def probe(options: Options, on_progress: OnProgress) -> tuple[str, ModelInfo, str]:
    """The full name of the model, what is known of it after a new trial, and the answers that suit it.

    Raises ModelFailed when it cannot be asked; UsageError for one that is only a script.
    """
    model, name, _ = await model_of(options, on_progress)
    if model.info.provider == "scripted":
        raise UsageError(f"{name} is a script, there is nothing to try")
    if not is_ours(name):
        return name, model.info, choose(model.info)
    info = await probe_capabilities(model, name, on_progress, again=True)
    return name, info, choose(info)


def pick_protocol(name: str, info: ModelInfo | None = None) -> AnswerProtocol:
    """The answer protocol of that name, the others are not imported; for `auto` what suits the model.

    UsageError when there is none of that name.
    """
    if name == ANY_ANSWERS:
        name = choose(info) if info is not None else "json"
    if name not in (known := registry.names(ANSWERS)):
        raise UsageError(f"there are no answers {name!r}", f"--answers {ANY_ANSWERS}, " + ", ".join(known))
    protocol = registry.make(ANSWERS, name)
    if not isinstance(protocol, AnswerProtocol):
        raise registry.wrong(ANSWERS, name, f"made {type(protocol).__name__}, which is no answer protocol")
    return protocol
