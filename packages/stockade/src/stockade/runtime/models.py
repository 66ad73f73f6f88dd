"""From what the user typed to a model that can be entered, and to how it is asked: both are parts by their names."""

import difflib
import inspect
import os
from collections.abc import Mapping
from os.path import expanduser, isfile
from pathlib import Path

from stockade.answers.action_codec import AUTO as ANY_ANSWERS
from stockade.answers.action_codec import select_protocol
from stockade.core.budget import Budget
from stockade.core.errors import ModelFailed, UsageError
from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest
from stockade.core.ports import AnswerProtocol, Model
from stockade.core.secrets import Redactor
from stockade.models.composed import Member, ModelTeam
from stockade.models.local.catalogue import CATALOGUE
from stockade.models.probe import probe_capabilities
from stockade.models.providers import AUTO, FILES, PROVIDERS, parse_name
from stockade.models.settings import ModelChoice, ModelContext, ModelSettings, OnProgress, silent
from stockade.paths import read_regular
from stockade.runtime import registry
from stockade.runtime.spec import RunSpec, check_priced, make_budget

GROUP: registry.Group = "stockade.models"
ANSWERS: registry.Group = "stockade.answers"
FAST, SMART = "FAST_", "SMART_"
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
    choice = await chosen_by(spec, settings, environment)
    name = parse_name(choice.spec, _providers())
    context = ModelContext(name.provider, settings, on_progress or silent, environment)
    model = registry.make(GROUP, name.provider, name.name, context)
    if inspect.isawaitable(model):
        model = await model
    if not isinstance(model, Model):
        raise registry.wrong(GROUP, name.provider, f"made {type(model).__name__}, which is no model")
    return model, str(name), choice.note


def _providers() -> list[str]:
    return [name for name in registry.names(GROUP) if name != AUTO]


async def chosen_by(spec: str, settings: ModelSettings, environment: Mapping[str, str]) -> ModelChoice:
    """The model of that name; of `auto`, or of one without a provider, what servers and files say."""
    if spec.partition("/")[0] in _providers():
        return ModelChoice(spec=spec)
    chosen: ModelChoice = await registry.load(GROUP, AUTO)(settings, environment, spec)  # asks servers
    return chosen


def is_ours(name: str) -> bool:
    """Whether a model of that full name comes from a provider of ours: another's word on itself is taken."""
    part = registry.owner(GROUP, name.partition("/")[0])
    return part is not None and part.ours


async def model_of(spec: RunSpec, on_progress: OnProgress | None) -> tuple[Model, str, str | None]:
    """The model, with the fast one beside it where there is one; its full name, and a line on why this one where the
    choice was ours. An object that was passed has the name that its info says.
    """
    fast = await open_beside(spec, spec.fast_model, FAST, on_progress) if spec.fast_model else None
    model, note = spec.objects.model, None
    if model is not None:
        name = f"{model.info.provider}/{model.info.name}"
    else:
        check_provider(spec.model)
        model, name, note = await open_model(spec.model, model_settings(spec), on_progress)
    smart = await member_of(spec, spec.smart_model, SMART, on_progress) if spec.smart_model else None
    fallbacks = [one for other in spec.fallback if (one := await member_of(spec, other, "", on_progress)).name != name]
    if fast is None and smart is None and not fallbacks:
        return model, name, note
    for one in (*fallbacks, *filter(None, (smart,))):
        if spec.max_cost and one.name.partition("/")[0] not in FILES:
            check_priced(make_budget(spec, Budget()), (await one.make()).info, one.name)
    capped = bool(spec.max_cost)
    return ModelTeam(model, name, fast=fast, smart=smart, fallbacks=fallbacks, capped=capped), name, note


async def member_of(spec: RunSpec, name: str, prefix: str, on_progress: OnProgress | None) -> Member:
    """A model beside the run's own. UsageError where it is no model's name; it is made when it is needed."""
    check_provider(name)
    chosen = await chosen_by(name, model_settings(spec), environment_of(prefix, os.environ) if prefix else os.environ)
    full = str(parse_name(chosen.spec, _providers()))
    return Member(full, lambda: open_beside(spec, full, prefix, on_progress), prefix)


async def open_beside(spec: RunSpec, name: str, prefix: str, on_progress: OnProgress | None) -> Model:
    """Its server is where the variables with that prefix say."""
    environment = environment_of(prefix, os.environ) if prefix else os.environ
    return (await open_model(name, model_settings(spec), on_progress, environment))[0]


def environment_of(prefix: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment as that model sees it. A key of the run's own server is not sent to another server."""
    own = {name.removeprefix(prefix): value for name, value in environ.items() if name.startswith(prefix)}
    elsewhere = any(name.endswith(("_URL", "_HOST", "_BASE", "_ENDPOINT")) for name in own)
    keys = {name for name in environ if elsewhere and name.endswith("_API_KEY")}
    return {**{name: value for name, value in environ.items() if name not in keys}, **own}


async def ask_once(model: Model, redactor: Redactor, request: ModelRequest) -> ModelAnswer:
    """One question before the run, to the fast model where there is one."""
    asked = (model.fast if isinstance(model, ModelTeam) else None) or model
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
        more["lora"] = str(Path(expanduser(more["lora"])).absolute())
        if not isfile(more["lora"]):
            raise UsageError(f"--lora {spec.lora}: there is no such file")
    return ModelSettings(
        ctx_size=spec.ctx_size,
        threads=spec.threads,
        gpu_layers=spec.gpu_layers,
        more=more,
        keep_warm_s=spec.keep_warm_s,
        llama_server=spec.llama_server,
        api=spec.api,
        alone=spec.seed is not None,
    )


async def known_of(model: Model, name: str, answers: str, on_progress: OnProgress | None = None) -> ModelInfo:
    """What is known of the model before it is asked. What it does is tried once a model, where `answers` are `auto`."""
    own = model.own if isinstance(model, ModelTeam) else model
    if not is_ours(name):
        return own.info
    return await probe_capabilities(own, name, on_progress, trial=answers == ANY_ANSWERS)


async def known_of_all(spec: RunSpec, model: Model, name: str, on_progress: OnProgress | None = None) -> ModelInfo:
    """As known_of; but what all of a run's models can do, as far as that was seen, for they are asked in one protocol.

    Those on servers are tried too; files are not loaded for it. Of their windows the user hears when they are asked.
    """
    info = await known_of(model, name, spec.answers, on_progress)
    seen = [info] if _was_seen(info) else []
    for other in model.members if isinstance(model, ModelTeam) else ():
        if spec.answers != ANY_ANSWERS or other.name.partition("/")[0] in FILES or not is_ours(other.name):
            continue
        try:
            beside = await open_beside(spec, other.name, other.prefix, None)
            found = await known_of(beside, other.name, spec.answers, on_progress)
        except ModelFailed:  # it is told when it is needed
            continue
        seen += [found] if _was_seen(found) else []
    can = {one: bool(seen) and all(getattr(info, one) for info in seen) for one in ("native_tools", "enforces_schema")}
    return info.model_copy(update=can)


def _was_seen(info: ModelInfo) -> bool:
    return info.native_tools or "native_tools" in info.sources


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


MAX_GRAMMAR_BYTES = 1 << 20


def read_grammar(path: str | None, provider: str, answers: str) -> str | None:
    """The text of a GBNF file. UsageError where it cannot be read, or would not be held."""
    if path is None:
        return None
    if provider not in FILES and not (provider in PROVIDERS and PROVIDERS[provider].dialect.llama_cpp):
        raise UsageError(f"-o grammar is llama.cpp's, and {provider} is another server", "leave it out")
    if answers == "native":
        raise UsageError("with -o grammar there is no room for tool calls", "-o answers=json, or another in text")
    try:
        text = read_regular(Path(expanduser(path)), MAX_GRAMMAR_BYTES + 1).decode()
    except OSError as error:
        raise UsageError(f"the grammar {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"the grammar {path} is not UTF-8 text") from None
    if len(text) > MAX_GRAMMAR_BYTES or "root" not in text:
        raise UsageError(f"the grammar {path} is no GBNF: it has no root, or is over a mebibyte")
    return text
