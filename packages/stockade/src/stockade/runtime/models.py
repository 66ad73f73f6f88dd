"""From what the user typed to a model that can be entered, and to how it is asked: both are parts by their names."""

import difflib
import inspect
import os
from collections.abc import Mapping
from pathlib import Path

from stockade.answers.action_codec import AUTO as ANY_ANSWERS
from stockade.answers.action_codec import select_protocol
from stockade.core.errors import UsageError
from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest
from stockade.core.ports import AnswerProtocol, Model
from stockade.core.secrets import Redactor
from stockade.models.composed import SmartAndFast
from stockade.models.local.catalogue import CATALOGUE
from stockade.models.probe import probe_capabilities
from stockade.models.providers import AUTO, parse_name
from stockade.models.settings import ModelChoice, ModelContext, ModelSettings, OnProgress, silent
from stockade.runtime import registry
from stockade.runtime.spec import RunSpec

GROUP: registry.Group = "stockade.models"
ANSWERS: registry.Group = "stockade.answers"
FAST = "FAST_"
"""`FAST_LLAMAFILE_URL` is LLAMAFILE_URL for the fast model, and so with every variable of a provider."""


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
    choice = ModelChoice(spec=spec)
    if spec == AUTO:  # which asks servers: loaded where it is wanted
        choice = await registry.load(GROUP, AUTO)(settings, environment)
    name = parse_name(choice.spec, [name for name in registry.names(GROUP) if name != AUTO])
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


async def model_of(spec: RunSpec, on_progress: OnProgress | None) -> tuple[Model, str, str | None]:
    """The model, with the fast one beside it where there is one; its full name, and a line on why this one where the
    choice was ours. An object that was passed has the name that its info says.
    """
    fast = await _fast(spec, on_progress)
    model, note = spec.objects.model, None
    if model is not None:
        name = f"{model.info.provider}/{model.info.name}"
    else:
        check_provider(spec.model)
        model, name, note = await open_model(spec.model, model_settings(spec), on_progress)
    return (model if fast is None else SmartAndFast(model, fast)), name, note


async def _fast(spec: RunSpec, on_progress: OnProgress | None) -> Model | None:
    """Its server is where the FAST_ variables say."""
    if not spec.fast_model:
        return None
    environment = fast_environment(os.environ)
    return (await open_model(spec.fast_model, model_settings(spec), on_progress, environment))[0]


def fast_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment as the fast model sees it. A key of the smart model's server is not sent to another server."""
    own = {name.removeprefix(FAST): value for name, value in environ.items() if name.startswith(FAST)}
    elsewhere = any(name.endswith(("_URL", "_HOST", "_BASE", "_ENDPOINT")) for name in own)
    keys = {name for name in environ if elsewhere and name.endswith("_API_KEY")}
    return {**{name: value for name, value in environ.items() if name not in keys}, **own}


async def ask_once(model: Model, redactor: Redactor, request: ModelRequest) -> ModelAnswer:
    """One question before the run, to the fast model where there is one."""
    asked = model.fast if isinstance(model, SmartAndFast) else model
    hidden = tuple(one.model_copy(update={"content": redactor.text(one.content)}) for one in request.messages)
    async with asked:
        return await asked.ask(request.model_copy(update={"messages": hidden}))


def check_provider(name: str) -> None:
    """UsageError when `name` is, or is nearly, one of the catalogue without its provider."""
    if "/" in name or name in registry.names(GROUP):
        return
    if near := difflib.get_close_matches(name.lower(), CATALOGUE, n=1):
        raise UsageError(f"not a model: '{name}'", f"did you mean embedded/{near[0]}?")


def model_settings(spec: RunSpec) -> ModelSettings:
    """How an embedded model is loaded; with a seed on a server that nobody shares, or the run is another each time."""
    more = spec.load_more()
    if "lora" in more:
        more["lora"] = str(Path(more["lora"]).expanduser().absolute())
        if not Path(more["lora"]).is_file():
            raise UsageError(f"--lora {spec.lora}: there is no such file")
    return ModelSettings(
        ctx_size=spec.ctx_size,
        threads=spec.threads,
        gpu_layers=spec.gpu_layers,
        more=more,
        keep_warm_s=spec.keep_warm_s,
        llama_server=spec.llama_server,
        alone=spec.seed is not None,
    )


async def known_of(model: Model, name: str, answers: str, on_progress: OnProgress | None = None) -> ModelInfo:
    """What is known of the model before it is asked. What it does is tried once a model, where `answers` are `auto`."""
    if not is_ours(name):
        return model.info
    return await probe_capabilities(model, name, on_progress, trial=answers == ANY_ANSWERS)


async def probe(spec: RunSpec, on_progress: OnProgress) -> tuple[str, ModelInfo, str]:
    """The full name of the model, what is known of it after a new trial, and the answers that suit it.

    Raises ModelFailed when it cannot be asked; UsageError for one that is only a script.
    """
    model, name, _ = await model_of(spec, on_progress)
    if model.info.provider == "scripted":
        raise UsageError(f"{name} is a script, there is nothing to try")
    if not is_ours(name):
        return name, model.info, select_protocol(model.info)
    info = await probe_capabilities(model, name, on_progress, again=True)
    return name, info, select_protocol(info)


def pick_protocol(name: str, info: ModelInfo | None = None) -> AnswerProtocol:
    """The answer protocol of that name, the others are not imported; for `auto` what suits the model.

    UsageError when there is none of that name.
    """
    if name == ANY_ANSWERS:
        name = select_protocol(info) if info is not None else "json"
    if name not in (known := registry.names(ANSWERS)):
        raise UsageError(f"there are no answers {name!r}", f"--answers {ANY_ANSWERS}, " + ", ".join(known))
    protocol = registry.make(ANSWERS, name)
    if not isinstance(protocol, AnswerProtocol):
        raise registry.wrong(ANSWERS, name, f"made {type(protocol).__name__}, which is no answer protocol")
    return protocol
