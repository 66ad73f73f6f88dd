"""From a RunSpec to a run ready to start: new, resumed and branched ones are made here, and nowhere else."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread

from stockade import __version__
from stockade.answers.action_codec import AUTO
from stockade.answers.output_schema import read_schema, under_schema
from stockade.approval.approver import Authoriser
from stockade.bestof.contest import BestOf
from stockade.bestof.terms import check_best_of, known_events, led_by, sampled_otherwise, undecided_count
from stockade.bots.model_profiles import ModelProfile, profile_of, reason
from stockade.bots.opening import opening
from stockade.bots.others import HELPER
from stockade.bots.spec import BotSpec
from stockade.bots.surroundings import guidance_files
from stockade.core.budget import Account, Budget
from stockade.core.errors import UsageError
from stockade.core.events import BOTS_OWN, ActionStarted, RunEvent, RunFinished, RunResumed, RunStarted
from stockade.core.messages import ModelInfo
from stockade.core.ports import AnswerProtocol, Model, OnEvent, OnProgress, OnText, RunStore, Sandbox
from stockade.core.secrets import EXACT, Redactor, build_redactor, redact_callbacks
from stockade.core.tool_plan import ToolContext, ToolPlan
from stockade.loop.conversation import effective
from stockade.loop.pause import Pause, PausingPrompt
from stockade.loop.resume import resume
from stockade.loop.run import Dependencies, run
from stockade.loop.run_context import Bot, Setup
from stockade.loop.state import fold
from stockade.loop.subagents import SubAgents, borrowed
from stockade.models.settings import silent
from stockade.paths import run_dir, state_dir
from stockade.run_lock import lock
from stockade.runtime import models
from stockade.runtime.bots import bot_of, driver_of, find_bot, with_all
from stockade.runtime.hooks import approval_notes, hooks_of, make_approver, make_network_asker, read_rules
from stockade.runtime.images import check_sees, read_images
from stockade.runtime.judging import judge_of
from stockade.runtime.models import pick_protocol
from stockade.runtime.policy import make_policy
from stockade.runtime.records import SystemClock, new_run_id
from stockade.runtime.resume import last_snapshots, resumed_event, sandbox_again, spec_of
from stockade.runtime.sandboxes import (
    forget,
    is_far,
    noting_its_holder,
    own_sandbox,
    prepare_sandbox,
    reviewer,
    sweep_all,
)
from stockade.runtime.spec import (
    RECORDED,
    Recorded,
    RunSpec,
    autonomy,
    check_priced,
    make_budget,
)
from stockade.runtime.toolchains import own_toolchain, undecided
from stockade.runtime.tools import chosen, mcp_files, plan_tools
from stockade_sandbox.overlay.restore import forget_holder
from stockade_sandbox.overlay.snapshots import LayerSnapshots
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import TellsPrograms

MAX_TASK_BYTES = 1_000_000
_GOES_ON = frozenset({"user", "model", "sandbox", "store"})
"""Reasons of an end that is no end of the task's."""
_NO_MODEL = {"smart_model": None, "fast_model": None, "fallback": ()}
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


_LOG = logging.getLogger("stockade.run")


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
    """Everything of a run but its start, whether it is new or on record. Raises UsageError, PolicyNotEnforceable,
    SandboxFailed, ModelFailed, and LayerLost where what a run on record wrote is gone.

    `attended`: on a terminal.
    """
    build = _Build(spec, store, _logged(on_event), on_text, on_progress or silent, attended)
    return await (build.new() if spec.objects.record is None else build.again(spec.objects.record))


def _logged(on_event: OnEvent | None) -> OnEvent:
    """The same, with each event in the log, as it is told: what is secret is hidden already."""

    def heard(event: RunEvent) -> None:
        if _LOG.isEnabledFor(logging.DEBUG):
            _LOG.debug(event.line)
        else:
            _LOG.info("%s%s", event.type, f", turn {turn}" if (turn := getattr(event, "turn", None)) else "")
        if on_event is not None:
            on_event(event)

    return heard


@dataclass(slots=True)
class _Build:
    """One run that is being made."""

    spec: RunSpec
    store: RunStore
    on_event: OnEvent | None
    on_text: OnText | None
    on_progress: OnProgress
    attended: bool
    redactor: Redactor = EXACT

    async def new(self) -> Prepared:
        """Of what was asked for. When it fails, nothing is left of it."""
        objects, bot, notes = self.spec.objects, self.spec.objects.bot or find_bot(self.spec.bot), list[str | None]()
        asked, spec = self.spec, with_all(self.spec, bot)
        unused = _unused(spec, bot)
        none = {} if bot.bot.asks else {**_NO_MODEL, "model": f"program/{bot.name}"}
        spec = self.spec = spec.model_copy(
            update={**{key: RunSpec.model_fields[key].default for key in unused}, **none}
        )
        task, run_id = check_task(spec.task), objects.run_id or new_run_id()
        pick_protocol(spec.answers)
        images = await to_thread.run_sync(read_images, spec.attach)
        await to_thread.run_sync(sweep_all, state_dir())
        tools, policy = _asked(spec, bot)
        plan = await self._plan(tools, policy)
        check_best_of(spec, bot, plan.policy, live=bool(objects.sandbox), far=is_far(spec.sandbox))
        try:
            if objects.sandbox:
                sandbox = objects.sandbox[0]
            else:
                sandbox = await prepare_sandbox(plan.policy, spec.sandbox, run_dir(run_id), self.on_progress)
            model, name, choice = await self._model()
            known = objects.model or not bot.bot.asks
            info = model.info if known else await models.known_of_all(spec, model, name, self.on_progress)
            unsure, profile = check_sees(images, info, name), profile_of(info)
            plan = replace(plan, actions=profile.offered(plan.actions, (*bot.tools, *spec.tool)))
            budget = make_budget(spec, bot.budget or profile.budget(attended=self.attended))
            check_priced(budget, info, name)  # of what a server here hands to another one, that alone tells it
            started = _first_event(spec, bot, plan, budget, info, pick_protocol(spec.answers, info))
            names = {"run_id": run_id, "task": task, "images": images, "model": name, "sandbox": sandbox.backend}
            started = started.model_copy(update=names)
            started.options.update(self.redactor.recorded)
            ask = partial(models.ask_once, model, self.redactor)
            started = await bot.bot.begin(Setup(started, ask, notes.append, self.on_progress, spec.program_model))
            parts = self._parts(started, bot.bot, plan, sandbox, model, info)
            if (spec.best_of or 1) > 1:
                parts = led_by(parts, BestOf(spec.best_of or 1, partial(self._candidate, asked)))
        except BaseException:
            forget(run_id)
            raise
        if isinstance(parts.approver, Authoriser) and started.approve != "rules":  # what those ask, nobody has granted
            parts.approver.granted = spec.granted
        started = started.model_copy(update={"hooks": tuple(hook.name for hook in parts.hooks)})
        if not (objects.sandbox or objects.policy) and (unseen := undecided(spec, started.policy)):
            programs = ", ".join(one.name for one in unseen if one.needed)
            notes.append(f"not seen inside: {programs} (--toolchain auto)" if programs else None)
        notes.insert(0, _note(started, bot, self.redactor.names(task), choice, profile))
        own_way = f"the bot {bot.name} has a way of its own to work, and no use for: {', '.join(unused)}"
        idle = (*_idle(spec, tools), *((own_way,) if unused else ()))
        warnings = (*approval_notes(started), *self.redactor.warnings, *unsure, *idle)
        return Prepared(started, parts, ". ".join(filter(None, notes)) or None, warnings=warnings)

    async def _candidate(
        self, asked: RunSpec, boss: RunStarted, number: int, run_id: str, account: Account, pause: Pause
    ) -> RunFinished:
        """Implements bestof.contest.Drive: a run as `asked` for, with another sampling than those before it; or the one
        that there is already, to its end.
        """
        objects, history = asked.objects, await known_events(self.store, run_id)
        if history and (end := fold(history).finished) is not None and end.reason not in _GOES_ON:
            return end
        model = borrowed(objects.model) if objects.model is not None else None
        if history:
            spec = spec_of(history, asked)
            spec = spec.model_copy(update={"objects": spec.objects.but(model=model, tools=objects.tools)})
        else:
            await to_thread.run_sync(forget, run_id)
            own = {**sampled_otherwise(self.spec, boss, number), "best_of": 1, "task": boss.task}
            objects = objects.but(run_id=run_id, model=model, record=None)
            spec = asked.model_copy(update={**own, "objects": objects})
        with lock(run_id, wait=False):
            prepared = await prepare(spec, self.store)
            started = prepared.started.model_copy(update={"boss": boss.run_id})
            parts = replace(prepared.parts, shared=account, pause=pause)
            return await start(replace(prepared, started=started, parts=parts))

    async def again(self, record: Recorded) -> Prepared:
        """Of a record: what the run is, it says; whether it may go on is asked first."""
        started, state, objects = record.started, fold(record.history), self.spec.objects
        bot = objects.bot.bot if objects.bot is not None else bot_of(started)
        resumed = resumed_event(self.spec, bot, record, state, check_task(self.spec.task) if self.spec.task else "")
        images = await to_thread.run_sync(read_images, self.spec.attach)
        if images and not resumed.task:
            raise UsageError("--attach shows an image beside a task, and none is given", 'stockade run -c "..."')
        plan = await self._plan(self.spec.tool, started.policy, again=True)
        if objects.sandbox is None:
            sandbox, names, restore = await sandbox_again(record, state, self.on_progress)
        else:
            sandbox = objects.sandbox[0]
            names, restore = last_snapshots(state, len(sandbox.layers)), None
        model, name, note = await self._model()
        if (skip := getattr(model, "skip", None)) is not None:
            before = bool(started.used.prompt_tokens) and not self.spec.fast_model  # what its bot asked to begin with
            skip(state.turns + state.helpers_turns + before)  # a script goes on where it was
        parts = self._parts(effective(started, resumed), bot, plan, sandbox, model, model.info, names)
        if resumed.task is None and (count := undecided_count(record.history)):
            parts = led_by(parts, BestOf(count, partial(self._candidate, self.spec)))
        if isinstance(parts.approver, Authoriser):
            parts.approver.ran(one.action.action for one in record.history if isinstance(one, ActionStarted))
        unsure, hooks = check_sees(images, model.info, name), tuple(hook.name for hook in parts.hooks)
        resumed = resumed.model_copy(update={"model": name, "hooks": hooks, "images": images})
        lost = (f"what it wrote to {host} before is gone; it goes on from the folder as it is" for host in resumed.lost)
        warnings = (*approval_notes(started), *unsure, *lost)
        return Prepared(started, parts, note, record.history, resumed, restore, warnings)

    async def _plan(self, tools: Sequence[str], policy: Policy, *, again: bool = False) -> ToolPlan:
        """The tools of the run, and `policy` with what they need; from here on secrets are hidden."""
        spec = self.spec
        planned = partial(
            plan_tools, tools, policy, allowed_external=spec.allow_external,
            redact=spec.redact, on_progress=self.on_progress, again=again,
        )  # fmt: skip
        plan = (await to_thread.run_sync(planned)).with_objects(spec.objects.tools)
        self.redactor = build_redactor(os.environ, plan.policy.environment, spec.redact)
        self.on_event, self.on_text = redact_callbacks(self.redactor, self.on_event, self.on_text)
        return plan

    async def _model(self) -> tuple[Model, str, str | None]:
        """The model, its full name, and the line on why this one."""
        model, name, choice = await models.model_of(self.spec, self.on_progress)
        check_priced(make_budget(self.spec, Budget()), model.info, name)
        return model, name, choice

    def _parts(
        self, started: RunStarted, bot: Bot, plan: ToolPlan, sandbox: Sandbox, model: Model, info: ModelInfo,
        names: Sequence[str | None] = (),
    ) -> Dependencies:  # fmt: skip
        """All that a run has; its files are kept turn by turn, from the snapshots `names` on."""
        pause, objects = Pause(), self.spec.objects
        if bot.tells_programs and isinstance(sandbox, TellsPrograms):
            sandbox.tells_programs = True
        approver, user = make_approver(started, pause, self.redactor), PausingPrompt(pause)
        search = started.options.get("search")
        context = ToolContext(sandbox, started.policy, started.bot, state_dir(), search=search)
        hooks = hooks_of(started, info, approver, (*self.spec.hooks, *objects.hooks), bot)
        protocol = pick_protocol(started.answers)
        parts = Dependencies(
            model=model,
            protocol=under_schema(protocol, started.output_schema, hooks),
            sandbox=sandbox,
            store=self.store,
            clock=SystemClock(),
            tools=plan.actions,
            toolboxes=plan.toolboxes(context),
            asker=user,
            reviewer=reviewer(),
            pause=pause,
            approver=approver,
            network=make_network_asker(started, pause, self.redactor),
            hooks=hooks,
            on_event=noting_its_holder(started.run_id, sandbox, self.on_event),
            on_text=self.on_text,
            redactor=self.redactor,
            bot=bot,
            open_sandbox=partial(own_sandbox, backend=started.sandbox),
        )
        checked = started.check or started.options.get("score")
        if not (bot.loops or checked):
            return parts
        snapshots = LayerSnapshots(sandbox.layers, names, KEPT_BYTES, lambda: getattr(sandbox, "host_pid", None))
        judge = judge_of(started) if checked else None
        parts = replace(parts, snapshots=snapshots, judge=judge)
        if "sub_task" not in plan.actions:
            return parts
        tools = tuple(name for name in plan.actions if name != "sub_task")
        here = not is_far(started.sandbox, started.policy)
        prompt = opening(HELPER, protocol, started.policy, tools, plan.usage, here=here)
        return replace(parts, sub_agents=SubAgents(started, replace(parts, protocol=protocol), prompt, tools))


def _unused(spec: RunSpec, bot: BotSpec) -> tuple[str, ...]:
    """Settings that are about the loop, where the bot never runs it."""
    of_the_loop = ("attach", "best_of", "tool", "mcp", "no_tool", "output_schema")
    return () if bot.bot.loops else tuple(key for key in of_the_loop if getattr(spec, key))


def _idle(spec: RunSpec, tools: Sequence[str]) -> Iterator[str]:
    """Of what was set and does nothing in this run."""
    if spec.protect and not (spec.check or spec.score):
        yield "--protect holds while a check runs, and there is none (--check CMD)"
    if spec.search and "web_search" not in tools:
        yield "--search is for the tool web_search, which this bot does not have (--tool web_search)"


def _asked(spec: RunSpec, bot: BotSpec) -> tuple[tuple[str, ...], Policy]:
    """The names of the tools, and the policy with what the bot needs. UsageError for what the bot has no use for."""
    objects = spec.objects
    if not bot.bot.loops and objects.tools:
        names = ", ".join(one.name for box in objects.tools for one in box.specs)
        what = f"the bot {bot.name} has a way of its own to work, in which nothing calls a tool: {names}"
        raise UsageError(what, "leave it out, or take another bot")
    own = objects.sandbox[1] if objects.sandbox else objects.policy
    own = own or own_toolchain(spec, make_policy(spec, bot.folder_mode))
    policy = bot.bot.policy(own)
    if objects.sandbox and policy != own:
        what = f"the bot {bot.name} needs folders of its own in its sandbox, which one that runs already does not get"
        raise UsageError(what, "pass a Policy in its place")
    return chosen(bot.all_tools, (*spec.tool, *mcp_files(spec.mcp)), spec.no_tool), policy


def _note(
    started: RunStarted, bot: BotSpec, hidden: Sequence[str], choice: str | None, profile: ModelProfile
) -> str | None:
    """Lines for the user: that the task holds what is `hidden`; what a model is good for that was the `choice` of
    `auto`; which words of the folder the model is told.
    """
    secret = f"the task holds a secret ({', '.join(hidden)}), which the model does not see: give it with --env"
    notes = [secret if hidden else "", *([choice, profile.good_for] if choice else [])]
    here = not is_far(started.sandbox, started.policy)
    if started.policy.folder is not None and bot.bot.loops and bot.bot.asks and not bot.autonomous and here:
        folder = started.policy.folder.host
        if files := guidance_files(Path(folder)):
            notes.append(f"the model reads {files} of {folder}")
    return ". ".join(part for part in notes if part) or None


def _first_event(
    spec: RunSpec, bot: BotSpec, plan: ToolPlan, budget: Budget, model: ModelInfo, protocol: AnswerProtocol
) -> RunStarted:
    """All that is needed to run it again, but for its id, task, model and sandbox."""
    may = autonomy(spec) if bot.autonomous else None
    policy = plan.policy
    here = not is_far(spec.sandbox, policy)  # a path of its folders is another thing there
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
        sampling=spec.sampling(local=model.local, local_tokens=bot.local_answer_tokens).model_copy(
            update={"grammar": models.read_grammar(spec.grammar, model.provider, protocol.name)}
        ),
        system_prompt="",
        check=spec.check,
        protect=spec.protect,
        output_schema=read_schema(spec.output_schema) if spec.output_schema else None,
        options={**spec.model_dump(include=RECORDED, exclude_none=True), **_granted(spec)},
        tools=plan.asked,
        actions=plan.actions,
        approve="rules" if spec.approve.startswith("rules") else spec.approve,
        rules=read_rules(spec.approve),
        authorised=bot.authorised,
        autonomy=may,
        model_profile=profile_of(model).name,
        sources={"model_profile": reason(model), "answers": _why_these(spec, bot, model)},
    )
    usage = (*plan.usage, *bot.bot.told(started))
    protocol = under_schema(protocol, started.output_schema)
    prompt = opening(bot, protocol, policy, plan.actions, usage, here=here, lines=lines)
    return started.model_copy(update={"system_prompt": prompt})


def _granted(spec: RunSpec) -> dict[str, Any]:
    return {} if spec.granted == 0 else {"continuous": spec.granted or "unlimited"}


def _why_these(spec: RunSpec, bot: BotSpec, model: ModelInfo) -> str:
    """Who chose the answer protocol, in words."""
    if bot.answers:
        return BOTS_OWN
    if spec.answers != AUTO:
        return "as set"
    told = model.native_tools or model.enforces_schema
    return model.sources.get("native_tools") or (
        "by what its provider says" if told else "nobody knows what the model can do"
    )


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
