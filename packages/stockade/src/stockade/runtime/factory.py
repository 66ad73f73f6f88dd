"""From what the user asked for to a run ready to start. New, resumed and branched runs are made here."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread

from stockade import __version__
from stockade.answers.action_codec import AUTO
from stockade.approval.approver import Authoriser
from stockade.bots.guidance import guidance_files
from stockade.bots.model_profiles import ModelProfile, profile_of, reason
from stockade.bots.opening import opening
from stockade.bots.others import HELPER
from stockade.bots.spec import BotSpec
from stockade.core.budget import Budget
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, RunFinished, RunResumed, RunStarted
from stockade.core.messages import ModelInfo
from stockade.core.ports import AnswerProtocol, OnEvent, OnProgress, OnText, RunStore
from stockade.core.secrets import build_redactor, redact_callbacks
from stockade.core.tool_plan import ToolContext, ToolPlan
from stockade.loop.hooks import Hook
from stockade.loop.pause import Pause, PausingPrompt
from stockade.loop.resume import resume
from stockade.loop.run import Dependencies, run
from stockade.loop.run_context import Setup
from stockade.loop.subagents import SubAgents
from stockade.models.settings import silent
from stockade.paths import run_dir, state_dir
from stockade.runtime import models
from stockade.runtime.bots import driver_of, find_bot, with_defaults
from stockade.runtime.hooks import approval_notes, hooks_of, make_approver
from stockade.runtime.models import pick_protocol
from stockade.runtime.policy import make_policy
from stockade.runtime.records import SystemClock, new_run_id
from stockade.runtime.sandboxes import forget, noting_its_holder, own_sandbox, prepare_sandbox, reviewer, sweep
from stockade.runtime.spec import (
    RECORDED,
    REMOTE,
    HookCommand,
    RunSpec,
    autonomy,
    check_priced,
    make_budget,
)
from stockade.runtime.tools import chosen, mcp_files, plan_tools
from stockade_sandbox.overlay.snapshot_store import LayerSnapshots, forget_holder

MAX_TASK_BYTES = 1_000_000
KEPT_BYTES = 2 << 30
"""Of what a bot wrote in earlier turns, a folder, for going back to them."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that only has to be started with loop.run.run. `note` says which model was picked and why."""

    started: RunStarted
    parts: Dependencies
    note: str | None = None
    history: tuple[RunEvent, ...] = ()
    resumed: RunResumed | None = None
    restore: Callable[[], None] | None = None
    """Of a run that goes on: what is on record, how it goes on, and what brings its folders back. Blocks."""
    warnings: tuple[str, ...] = ()
    """Lines that the user gets to see in any case."""


def check_task(task: str) -> str:
    """The task without control characters a terminal or template could trip over."""
    if not task.strip():
        raise UsageError("the task is empty", "stockade run TASK, or - for standard input")
    if len(task.encode(errors="replace")) > MAX_TASK_BYTES:
        raise UsageError(f"the task is larger than {MAX_TASK_BYTES} bytes", "put it in a file and use --copy")
    return "".join(char for char in task if char in "\n\t" or (char >= " " and char != "\x7f"))


async def prepare(
    spec: RunSpec,
    store: RunStore,
    on_event: OnEvent | None = None,
    on_text: OnText | None = None,
    on_progress: OnProgress | None = None,
    *,
    attended: bool = False,
) -> Prepared:
    """Everything of a run but its start. Raises UsageError, PolicyNotEnforceable, SandboxFailed or ModelFailed.

    `attended`: on a terminal.
    """
    given = spec.objects
    bot = given.bot or find_bot(spec.bot)
    spec = with_defaults(spec, bot)
    unused = _unused(spec, bot)
    spec = spec.model_copy(update={key: RunSpec.model_fields[key].default for key in unused})
    task = check_task(spec.task)
    pick_protocol(spec.answers)
    run_id = new_run_id()
    await to_thread.run_sync(sweep)
    plan = await _plan(spec, bot, on_progress)
    redactor = build_redactor(os.environ, plan.policy.environment, spec.redact)
    on_event, on_text = redact_callbacks(redactor, on_event, on_text)
    notes: list[str | None] = []
    try:
        base = run_dir(run_id)
        sandbox = (
            given.sandbox[0] if given.sandbox else await prepare_sandbox(plan.policy, spec.sandbox, base, on_progress)
        )
        model, name, choice = await models.model_of(spec, on_progress)
        check_priced(make_budget(spec, Budget()), model.info, name)
        info = model.info if given.model else await models.known_of(model, name, spec.answers, on_progress)
        protocol = pick_protocol(spec.answers, info)
        profile = profile_of(info)
        plan = replace(plan, actions=profile.offered(plan.actions, (*bot.tools, *spec.tool)))
        budget = make_budget(spec, bot.budget or profile.budget(attended=attended))
        started = _first_event(spec, bot, plan, budget, info, protocol)
        started = started.model_copy(update={"run_id": run_id, "task": task, "model": name, "sandbox": sandbox.backend})
        started.options.update(redactor.recorded)
        ask = partial(models.ask_once, model, redactor)
        started = await bot.bot.begin(Setup(started, ask, notes.append, on_progress or silent))
        model = await models.several(model, spec, name, bot.bot.at_once(started))
        base_parts = Dependencies(
            model, protocol, sandbox, store, SystemClock(), (), on_event=on_event, on_text=on_text, redactor=redactor,
            bot=bot.bot,
        )  # fmt: skip
        parts = make_parts(started, plan, base_parts, info=info, hooks=(*spec.hooks, *given.hooks))
    except BaseException:
        forget(run_id)
        raise
    if isinstance(parts.approver, Authoriser):
        parts.approver.granted = spec.granted
    started = started.model_copy(update={"hooks": tuple(hook.name for hook in parts.hooks)})
    notes.insert(0, _note(started, bot, redactor.names(task), choice, profile))
    words = f"the bot {bot.name} has a way of its own to work, and no use for: {', '.join(unused)}"
    warnings = (*approval_notes(started), *redactor.warnings, *((words,) if unused else ()))
    return Prepared(started, parts, ". ".join(filter(None, notes)) or None, warnings=warnings)


def _unused(spec: RunSpec, bot: BotSpec) -> tuple[str, ...]:
    """Settings that are about the loop, where the bot never runs it."""
    return () if bot.bot.loops else tuple(key for key in ("tool", "mcp", "no_tool", "check") if getattr(spec, key))


async def _plan(spec: RunSpec, bot: BotSpec, on_progress: OnProgress | None) -> ToolPlan:
    """The tools of the run, and its policy with what they and the bot need."""
    given = spec.objects
    if not bot.bot.loops and given.tools:
        names = ", ".join(one.name for box in given.tools for one in box.specs)
        what = f"the bot {bot.name} has a way of its own to work, in which nothing calls a tool: {names}"
        raise UsageError(what, "leave it out, or take another bot")
    own = given.sandbox[1] if given.sandbox else given.policy or make_policy(spec, bot.folder_mode)
    policy = bot.bot.policy(own)
    if given.sandbox and policy != own:
        what = f"the bot {bot.name} needs folders of its own in its sandbox, which one that runs already does not get"
        raise UsageError(what, "pass a Policy in its place")
    tools = chosen(bot.all_tools, (*spec.tool, *mcp_files(spec.mcp)), spec.no_tool)
    allowed = partial(plan_tools, allowed_external=spec.allow_external)
    plan = await to_thread.run_sync(partial(allowed, tools, policy, redact=spec.redact, on_progress=on_progress))
    return plan.with_objects(given.tools)


def _note(
    started: RunStarted, bot: BotSpec, hidden: Sequence[str], choice: str | None, profile: ModelProfile
) -> str | None:
    """Lines for the user: that the task holds what is `hidden`; what a model is good for that was the `choice` of
    `auto`; which words of the folder the model is told.
    """
    told = f"the task holds a secret ({', '.join(hidden)}), which the model does not see: give it with --env"
    words = [told if hidden else "", *([choice, profile.good_for] if choice else [])]
    if started.policy.folders and bot.bot.loops and not bot.autonomous and not started.sandbox.startswith(REMOTE):
        folder = started.policy.folders[0].host
        if files := guidance_files(Path(folder)):
            words.append(f"the model reads {files} of {folder}")
    return ". ".join(part for part in words if part) or None


def _first_event(
    spec: RunSpec, bot: BotSpec, plan: ToolPlan, budget: Budget, model: ModelInfo, protocol: AnswerProtocol
) -> RunStarted:
    """All that is needed to run it again, but for its id, task, model and sandbox."""
    may = autonomy(spec) if bot.autonomous else None
    policy = plan.policy
    here = not spec.sandbox.startswith(REMOTE)  # a path of its folders is another thing there
    lines = model.local and bool(model.small)
    started = RunStarted(
        at=time.time(),
        version=__version__,
        run_id="",
        task="",
        bot=bot.file or bot.name,
        driver=driver_of(bot),
        model="",
        answers=protocol.name,
        sandbox="",
        policy=policy,
        budget=budget,
        sampling=spec.sampling(local=model.local, local_tokens=bot.local_answer_tokens),
        system_prompt="",
        check=spec.check,
        options={**spec.model_dump(include=RECORDED, exclude_none=True), **_granted(spec)},
        tools=plan.asked,
        actions=plan.actions,
        approve=spec.approve,
        authorised=bot.authorised,
        autonomy=may,
        model_profile=profile_of(model).name,
        sources={"model_profile": reason(model), "answers": _why_these(spec, bot, model)},
    )
    usage = (*plan.usage, *bot.bot.told(started))
    prompt = opening(bot, protocol, policy, plan.actions, usage, here=here, lines=lines)
    return started.model_copy(update={"system_prompt": prompt})


def _granted(spec: RunSpec) -> dict[str, Any]:
    return {} if spec.granted == 0 else {"continuous": spec.granted or "unlimited"}


def _why_these(spec: RunSpec, bot: BotSpec, model: ModelInfo) -> str:
    """Who chose the answer protocol, in words."""
    if bot.answers:
        return "the bot's own"
    if spec.answers != AUTO:
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
            if prepared.parts.snapshots is not None:
                prepared.parts.snapshots.close()
            forget_holder(run_dir(run_id))


def make_parts(
    started: RunStarted,
    plan: ToolPlan,
    base: Dependencies,
    *,
    info: ModelInfo | None = None,
    names: Sequence[str | None] = (),
    hooks: Sequence[str | HookCommand | Hook] = (),
) -> Dependencies:
    """`base` with all else that a run has, which begins or goes on; its files are kept turn by turn, from the snapshots
    `names` on.
    """
    sandbox, bot, pause = base.sandbox, base.bot, Pause()
    approver, user = make_approver(started, pause, base.redactor), PausingPrompt(pause)
    search = started.options.get("search")
    context = ToolContext(sandbox, started.policy, started.bot, state_dir(), search=search)
    parts = replace(
        base,
        tools=plan.actions,
        toolboxes=plan.toolboxes(context),
        approver=approver,
        asker=user,
        reviewer=reviewer(),
        on_event=noting_its_holder(started.run_id, sandbox, base.on_event),
        pause=pause,
        open_sandbox=partial(own_sandbox, backend=started.sandbox),
    )
    parts = replace(parts, hooks=hooks_of(started, info or base.model.info, approver, hooks, bot))
    if not bot.loops:
        return parts
    snapshots = LayerSnapshots(sandbox.layers, names, KEPT_BYTES, lambda: getattr(sandbox, "host_pid", None))
    parts = replace(parts, snapshots=snapshots)
    if "sub_task" not in plan.actions:
        return parts
    tools = tuple(name for name in plan.actions if name != "sub_task")
    here = not started.sandbox.startswith(REMOTE)
    prompt = opening(HELPER, base.protocol, started.policy, tools, plan.usage, here=here)
    return replace(parts, sub_agents=SubAgents(started, parts, prompt, tools))
