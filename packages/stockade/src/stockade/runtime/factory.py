"""From what the person asked for to a run ready to start. New, resumed and branched runs are made here."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread

from stockade import __version__
from stockade.answers.choice import AUTO
from stockade.bots.guidance import guidance_files
from stockade.bots.model_profiles import ModelProfile, profile_of, reason
from stockade.bots.opening import opening
from stockade.bots.others import HELPER
from stockade.bots.spec import BotSpec
from stockade.core.budget import Budget
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, RunFinished, RunResumed, RunStarted
from stockade.core.messages import ModelInfo
from stockade.core.policy import Policy
from stockade.core.ports import AnswerProtocol, Model, OnEvent, OnProgress, OnText, RunStore, Sandbox, Toolbox
from stockade.core.secrets import Redactor, build_redactor, redact_callbacks
from stockade.core.tool_plan import ToolContext, ToolPlan
from stockade.loop.bot import Bot
from stockade.loop.hooks import Hook
from stockade.loop.pause import Pause, UserPrompt
from stockade.loop.resume import resume
from stockade.loop.run import Parts, run
from stockade.loop.subbot import SubBots
from stockade.places import run_dir, state_dir
from stockade.runtime import models
from stockade.runtime.approvals import approval_notes, make_approver
from stockade.runtime.bots import driver_of, find_bot, with_defaults
from stockade.runtime.hooks import hooks_of
from stockade.runtime.models import pick_protocol
from stockade.runtime.policies import check_priced, make_budget, make_policy
from stockade.runtime.records import SystemClock, new_run_id
from stockade.runtime.sandboxes import forget, noting_its_holder, own_sandbox, prepare_sandbox, reviewer, sweep
from stockade.runtime.spec import RECORDED, REMOTE, HookCommand, Options, autonomy
from stockade.runtime.tools import chosen, mcp_files, plan_tools
from stockade_sandbox.overlay.snapshot_store import LayerKeeper, forget_holder

MAX_TASK_BYTES = 1_000_000
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


def check_task(task: str) -> str:
    """The task without control characters a terminal or template could trip over."""
    if not task.strip():
        raise UsageError("the task is empty", "stockade run TASK, or - for standard input")
    if len(task.encode(errors="replace")) > MAX_TASK_BYTES:
        raise UsageError(f"the task is larger than {MAX_TASK_BYTES} bytes", "put it in a file and use --copy")
    return "".join(char for char in task if char in "\n\t" or (char >= " " and char != "\x7f"))


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
        info = model.info if own else await models.known_of(model, name, options.answers, on_progress)
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
        return await models.model_of(options, on_progress)
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
    options: Options, spec: BotSpec, plan: ToolPlan, budget: Budget, model: ModelInfo, protocol: AnswerProtocol
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
    if options.answers != AUTO:
        return "as set"
    return model.sources.get("native_tools") or "by what its provider says"


async def start(prepared: Prepared) -> RunFinished:
    """The run to its end, as loop.run.run or loop.resume.resume say. RunTaken when another process drives it."""
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
    plan: ToolPlan,
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
