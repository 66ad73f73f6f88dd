"""From what the person asked for to a run ready to start. The only place that names concrete adapters.

Adapters are imported inside the functions that need them, so that `stockade --help` and `runs list` stay quick.
"""

import difflib
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from anyio import to_thread
from pydantic import ValidationError

from stockade import __version__
from stockade.approval.authorise import Authoriser
from stockade.assemble.approvals import approval_notes, make_approver
from stockade.assemble.hooks import hooks_of
from stockade.assemble.policies import check_priced, make_budget, make_policy
from stockade.assemble.records import SystemClock, forget, new_run_id, open_store, read_store, sweep
from stockade.assemble.sandboxes import (
    backend_of,
    base_keeper,
    host_side,
    noting_its_holder,
    open_sandbox,
    own_sandbox,
    prepare_sandbox,
    reviewer,
    sandbox_names,
    taken_back,
)
from stockade.assemble.tools import (
    IN_PROCESS,
    OnProgress,
    Plan,
    ToolContext,
    check_tools,
    chosen,
    mcp_files,
    plan_tools,
)
from stockade.assemble.undecided import newest_applied, newest_undecided
from stockade.bots.file import read_bot
from stockade.bots.guidance import guidance_files
from stockade.bots.model_profiles import ModelProfile, profile_of, reason
from stockade.bots.opening import opening
from stockade.bots.others import HELPER
from stockade.bots.spec import BotSpec
from stockade.core.budget import Budget
from stockade.core.changes import FolderLayer
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, RunFinished, RunResumed, RunStarted
from stockade.core.messages import ModelInfo
from stockade.core.policy import Policy
from stockade.core.ports import AnswerProtocol, Model, OnEvent, OnText, RunStore, Sandbox, Toolbox
from stockade.core.refused import first_refused
from stockade.core.secrets import Redactor, build_redactor, redact_callbacks
from stockade.loop.bot import Bot
from stockade.loop.hooks import Hook
from stockade.loop.pause import Pause, UserPrompt
from stockade.loop.resume import resume
from stockade.loop.run import Parts, run
from stockade.loop.subbot import SubBots
from stockade.options import RECORDED, REMOTE, HookCommand, Options, autonomy
from stockade.places import run_dir, state_dir
from stockade.runtime import registry
from stockade.runtime.protocols import pick_protocol

if TYPE_CHECKING:
    from stockade.core.findings import Finding
    from stockade.models.local.listing import ModelEntry
    from stockade.models.settings import ModelSettings

MAX_TASK_BYTES = 1_000_000
TRIED, NOT_TRIED = ("docker", "podman", "gvisor"), ("bubblewrap", "unconfined", "remote")
"""Sandboxes that `doctor` starts after the default one; not one that holds nothing, nor one on another machine."""
KEPT_BYTES = 2 << 30
"""Of what a bot wrote in earlier turns, a folder, for going back to them."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that only has to be started with loop.run.run. `note` says which model was picked and why."""

    started: RunStarted
    parts: Parts
    note: str | None = None
    history: tuple[RunEvent, ...] = ()
    resumed: RunResumed | None = None
    restore: Callable[[], None] | None = None
    """Of a run that goes on: what is on record, how it goes on, and what brings its folders back. Blocks."""
    facts: Callable[[], dict[str, Any]] = dict
    """What the last line of --json tells beside the run's end."""
    warnings: tuple[str, ...] = ()
    """Lines that the user gets to see in any case."""


@dataclass(frozen=True, slots=True)
class Objects:
    """What a program passes as objects, where the command line has names.

    `spec`: a bot. `sandbox`: one that stays up, with its policy. `policy`: for a new one, in place of the options'.
    `model` is taken at its word: nothing is tried with it. `tools` and `hooks` come on top of those of the options.
    """

    spec: BotSpec | None = None
    model: Model | None = None
    sandbox: tuple[Sandbox, Policy] | None = None
    policy: Policy | None = None
    tools: tuple[Toolbox, ...] = ()
    hooks: tuple[Hook, ...] = ()


def find_bot(name: str) -> BotSpec:
    """A bot by its name, or one of a TOML file by its path. UsageError when there is none."""
    if name.endswith(".toml"):
        spec = read_bot(Path(name).expanduser().absolute())
        check_tools(str(spec.file), spec.tools)
        return spec
    if name not in (known := registry.names("stockade.bots")):
        near = difflib.get_close_matches(name, known, n=1)
        way_out = f"did you mean {near[0]}?" if near else f"the bots are {', '.join(known)}; or FILE.toml"
        raise UsageError(f"there is no bot {name!r}", way_out)
    spec = registry.load("stockade.bots", name)
    if not isinstance(spec, BotSpec):
        raise registry.wrong("stockade.bots", name, f"is {type(spec).__name__}, not a BotSpec")
    return spec


def bot_of(started: RunStarted) -> Bot:
    """What drives a run on record. UsageError when that is code of a program that is not here."""
    if started.driver.startswith(IN_PROCESS):
        what = f"its bot, {started.driver.removeprefix(IN_PROCESS)}, is a part of the Python program that began the run"
        raise UsageError(what, "it goes on only there")
    return find_bot(started.driver).bot if started.driver else Bot()


def driver_of(spec: BotSpec) -> str:
    """`RunStarted.driver` of a bot."""
    kind = type(spec.bot)
    if kind is Bot:
        return ""
    registered = (one.name for one in list_bots()[0] if type(one.bot) is kind)
    return next(registered, f"{IN_PROCESS}{kind.__qualname__}")


def with_defaults(options: Options, spec: BotSpec) -> Options:
    """What nobody set is as the bot wants it. UsageError when a value of its file is none."""
    unset = {key: value for key, value in spec.settings.items() if key not in options.model_fields_set}
    if spec.settings.get("hooks"):
        unset["hooks"] = (*spec.settings["hooks"], *options.hooks)
    try:
        return Options.model_validate({**options.model_dump(by_alias=True, exclude_unset=True), **unset})
    except ValidationError as error:
        key, words = first_refused(error, Options)
        raise UsageError(f"{spec.file or f'bot {spec.name}'}: {key}{words}") from None


def list_bots() -> tuple[list[BotSpec], list[UsageError]]:
    """The bots of all packages, and what is wrong with those that are broken."""
    found, broken = [], []
    for name in registry.names("stockade.bots"):
        try:
            found.append(find_bot(name))
        except UsageError as error:
            broken.append(error)
    return found, broken


async def known_of(model: Model, name: str, answers: str, on_progress: OnProgress | None = None) -> ModelInfo:
    """What is known of the model before it is asked. What it does is tried once a model, where `answers` are `auto`."""
    from stockade.answers.choice import AUTO
    from stockade.models.probe import probe_capabilities
    from stockade.runtime.models import is_ours

    if not is_ours(name):
        return model.info
    return await probe_capabilities(model, name, on_progress, trial=answers == AUTO)


def check_task(task: str) -> str:
    """The task without control characters a terminal or template could trip over."""
    if not task.strip():
        raise UsageError("the task is empty", "stockade run TASK, or - for standard input")
    if len(task.encode(errors="replace")) > MAX_TASK_BYTES:
        raise UsageError(f"the task is larger than {MAX_TASK_BYTES} bytes", "put it in a file and use --copy")
    return "".join(char for char in task if char in "\n\t" or (char >= " " and char != "\x7f"))


def probe() -> "Sequence[Finding]":
    """What this machine can hold, tried live."""
    from stockade.sandboxes.others import other_backends
    from stockade.sandboxes.probe import probe as run_probe

    others = [name for name in sandbox_names() if name not in (*TRIED, *NOT_TRIED)]
    return [*run_probe(), *other_backends({name: partial(backend_of, name) for name in (*TRIED, *others)})]


def clean(recorded: Collection[str], alive: Callable[[str], bool]) -> list[str]:
    """Removes what killed runs left; a line for each thing. `recorded` are the ids of the runs on record.

    Model servers are left alone: one that a killed run used ends by itself when its time is over, as any other.
    """
    from stockade.sandboxes.leftovers import clean as found
    from stockade.sandboxes.others import sweep_others

    lines = found(state_dir() / "runs", recorded, alive)
    return lines + [f"removed {name}" for name in sweep_others()]


async def open_model(options: Options, on_progress: OnProgress | None) -> tuple[Model, str, str | None]:
    """The model, its full name, and a line on why this one where the choice was ours."""
    from stockade.runtime.models import open_model

    check_provider(options.model)
    return await open_model(options.model, model_settings(options), on_progress)


def check_provider(name: str) -> None:
    """UsageError when `name` is, or is nearly, one of the catalogue without its provider."""
    from stockade.models.local.catalogue import CATALOGUE
    from stockade.models.providers import AUTO, PROVIDER_NAMES

    if "/" in name or name == AUTO or name in PROVIDER_NAMES:
        return
    if near := difflib.get_close_matches(name.lower(), CATALOGUE, n=1):
        raise UsageError(f"not a model: '{name}'", f"did you mean embedded/{near[0]}?")


def model_settings(options: Options) -> "ModelSettings":
    """How an embedded model is loaded; with a seed on a server that nobody shares, or the run is another each time."""
    from stockade.models.settings import ModelSettings

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


async def prepare(
    options: Options,
    store: RunStore,
    on_event: OnEvent | None = None,
    on_text: OnText | None = None,
    on_progress: OnProgress | None = None,
    *,
    objects: Objects = Objects(),
    attended: bool = False,
) -> Prepared:
    """Everything of a run but its start. Raises UsageError, PolicyNotEnforceable, SandboxFailed or ModelFailed.

    `attended`: on a terminal.
    """
    spec, there = objects.spec or find_bot(options.bot), objects.sandbox
    options = with_defaults(options, spec)
    task = check_task(options.task)
    policy = there[1] if there else objects.policy or make_policy(options, spec.folder_mode)
    pick_protocol(options.answers)
    run_id = new_run_id()
    await to_thread.run_sync(sweep)
    tools = chosen(spec.all_tools, (*options.tool, *mcp_files(options.mcp)), options.no_tool)
    allowed = partial(plan_tools, allowed_external=options.allow_external, mcp_accept=options.mcp_accept)
    plan = await to_thread.run_sync(partial(allowed, tools, policy, redact=options.redact, on_progress=on_progress))
    plan = plan.with_objects(objects.tools)
    policy = plan.policy
    redactor = build_redactor(os.environ, policy.environment, options.redact)
    on_event, on_text = redact_callbacks(redactor, on_event, on_text)
    try:
        base = run_dir(run_id)
        sandbox = there[0] if there else await prepare_sandbox(policy, options.sandbox, base, on_progress)
        model, name, note = await _model_of(options, objects, on_progress)
        check_priced(make_budget(options, Budget()), model.info, name)
        own = objects.model is not None
        info = model.info if own else await known_of(model, name, options.answers, on_progress)
        protocol = pick_protocol(options.answers, info)
    except BaseException:
        forget(run_id)
        raise
    profile = profile_of(info)
    plan = replace(plan, actions=profile.offered(plan.actions, (*spec.tools, *options.tool)))
    budget = make_budget(options, spec.budget or profile.budget(attended=attended))
    started = _first_event(options, spec, plan, budget, info, protocol)
    started = started.model_copy(update={"run_id": run_id, "task": task, "model": name, "sandbox": sandbox.backend})
    started.options.update(redactor.recorded)
    parts = make_parts(
        started, plan, model=model, info=info, protocol=protocol, sandbox=sandbox, store=store, on_event=on_event,
        on_text=on_text, redactor=redactor, hooks=(*options.hooks, *objects.hooks), bot=spec.bot,
    )  # fmt: skip
    started = started.model_copy(update={"hooks": tuple(hook.name for hook in parts.hooks)})
    warnings = (*approval_notes(started), *redactor.warnings)
    return Prepared(started, parts, _note(started, redactor.names(task), note, profile), warnings=warnings)


async def _model_of(
    options: Options, objects: Objects, on_progress: OnProgress | None
) -> tuple[Model, str, str | None]:
    """`open_model`, or the object that was passed, under the name that its info says."""
    if objects.model is None:
        return await open_model(options, on_progress)
    return objects.model, f"{objects.model.info.provider}/{objects.model.info.name}", None


def _note(started: RunStarted, hidden: Sequence[str], choice: str | None, profile: ModelProfile) -> str | None:
    """Lines for the user: that the task holds what is `hidden`; what a model is good for that was the `choice` of
    `auto`; which words of the folder the model is told.
    """
    told = f"the task holds a secret ({', '.join(hidden)}), which the model does not see: give it with --env"
    words = [told if hidden else "", *([choice, profile.good_for] if choice else [])]
    if started.policy.folders and started.autonomy is None and not started.sandbox.startswith(REMOTE):
        folder = started.policy.folders[0].host
        if files := guidance_files(Path(folder)):
            words.append(f"the model reads {files} of {folder}")
    return ". ".join(part for part in words if part) or None


def _first_event(
    options: Options, spec: BotSpec, plan: Plan, budget: Budget, model: ModelInfo, protocol: AnswerProtocol
) -> RunStarted:
    """All that is needed to run it again, but for its id, task, model and sandbox."""
    may = autonomy(options) if spec.autonomous else None
    policy = plan.policy
    here = not options.sandbox.startswith(REMOTE)  # a path of its folders is another thing there
    lines = model.local and bool(model.small)
    started = RunStarted(
        at=time.time(),
        version=__version__,
        run_id="",
        task="",
        bot=spec.file or spec.name,
        driver=driver_of(spec),
        model="",
        answers=protocol.name,
        sandbox="",
        policy=policy,
        budget=budget,
        sampling=options.sampling(local=model.local),
        system_prompt="",
        check=options.check,
        options=options.model_dump(include=RECORDED, exclude_none=True),
        tools=plan.asked,
        actions=plan.actions,
        approve=options.approve,
        authorised=spec.authorised,
        autonomy=may,
        model_profile=profile_of(model).name,
        sources={"model_profile": reason(model), "answers": _why_these(options, model)},
    )
    usage = (*plan.usage, *spec.bot.told(started))
    prompt = opening(spec, protocol, policy, plan.actions, usage, here=here, lines=lines)
    return started.model_copy(update={"system_prompt": prompt})


def _why_these(options: Options, model: ModelInfo) -> str:
    """Who chose the answer protocol, in words."""
    from stockade.answers.choice import AUTO

    if options.answers != AUTO:
        return "as set"
    return model.sources.get("native_tools") or "by what its provider says"


async def start(prepared: Prepared) -> RunFinished:
    """The run to its end, as loop.run.run or loop.resume.resume say. RunTaken when another process drives it."""
    from stockade.sandboxes.keeping import forget_holder

    run_id, store = prepared.started.run_id, prepared.parts.store
    async with store.driving(run_id):
        try:
            if prepared.resumed is None:
                return await run(prepared.started, prepared.parts)
            if await store.length(run_id) != len(prepared.history):
                raise UsageError(f"run {run_id} went on in another process", "stockade runs show")
            if prepared.restore is not None:
                await to_thread.run_sync(prepared.restore)
            return await resume(prepared.history, prepared.resumed, prepared.parts)
        finally:
            if prepared.parts.keeper is not None:
                prepared.parts.keeper.close()
            forget_holder(run_dir(run_id))


def make_parts(
    started: RunStarted,
    plan: Plan,
    *,
    model: Model,
    protocol: AnswerProtocol,
    sandbox: Sandbox,
    store: RunStore,
    on_event: OnEvent | None,
    on_text: OnText | None,
    redactor: Redactor,
    info: ModelInfo | None = None,
    names: Sequence[str | None] = (),
    hooks: Sequence[str | HookCommand | Hook] = (),
    bot: Bot,
) -> Parts:
    """The adapters of a run that begins or goes on; its files are kept turn by turn, from the snapshots `names` on."""
    from stockade.sandboxes.keeping import LayerKeeper

    pause = Pause()
    approver = make_approver(started, pause, redactor)
    person = UserPrompt(pause)
    search = started.options.get("search")
    context = ToolContext(sandbox, started.policy, started.bot, state_dir(), asker=person, search=search)
    parts = Parts(
        model=model,
        protocol=protocol,
        sandbox=sandbox,
        store=store,
        clock=SystemClock(),
        tools=plan.actions,
        toolboxes=plan.toolboxes(context),
        approver=approver,
        asker=person,
        reviewer=reviewer(),
        on_event=noting_its_holder(started.run_id, sandbox, on_event),
        on_text=on_text,
        redactor=redactor,
        keeper=LayerKeeper(sandbox.layers, names, KEPT_BYTES, lambda: getattr(sandbox, "host_pid", None)),
        pause=pause,
        hooks=hooks_of(started, info or model.info, approver, hooks, bot.hooks(started)),
        bot=bot,
        open_sandbox=partial(own_sandbox, backend=started.sandbox),
    )
    if "sub_task" not in plan.actions:
        return parts
    tools = tuple(name for name in plan.actions if name != "sub_task")
    here = not started.sandbox.startswith(REMOTE)
    prompt = opening(HELPER, protocol, started.policy, tools, plan.usage, here=here)
    return replace(parts, helper=SubBots(started, parts, prompt, tools))


def list_models() -> "Sequence[ModelEntry]":
    """What is on this machine and what could be fetched. Blocking, no network."""
    from stockade.models.local.listing import list_models as found

    return found()


def model_info(name: str) -> "ModelEntry":
    """One model. UsageError or ModelUnavailable when nothing is known of it."""
    from stockade.models.local.listing import model_info as found

    check_provider(name)
    return found(name)


Decision = Literal["apply", "discard", "keep"]

__all__ = [
    "Authoriser",
    "Decision",
    "FolderLayer",
    "OnProgress",
    "Options",
    "Prepared",
    "SystemClock",
    "base_keeper",
    "forget",
    "host_side",
    "new_run_id",
    "newest_applied",
    "newest_undecided",
    "open_sandbox",
    "open_store",
    "pick_protocol",
    "prepare",
    "prepare_sandbox",
    "read_store",
    "reviewer",
    "run_dir",
    "state_dir",
    "sweep",
    "taken_back",
]  # fmt: skip
