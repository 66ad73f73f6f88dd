"""What a run is made of, and a run as its bot has it.

A bot drives a run once its sandbox and its model are there. Hooks watch one loop; a bot is more: it runs the loop of
run.py once (the plain Bot), several times, or not at all. All that it does goes on record before it takes effect, as
everything else in a run.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import anyio

from stockade.core.actions import Observation, Step
from stockade.core.budget import Account
from stockade.core.errors import HookFailed, UsageError
from stockade.core.events import ActionFinished, ActionStarted, MessageInjected, RunEvent, RunStarted
from stockade.core.messages import ModelAnswer, ModelRequest
from stockade.core.ports import (
    AnswerProtocol,
    Approver,
    Clock,
    Model,
    NetworkApprover,
    OnEvent,
    OnProgress,
    OnText,
    Reviewer,
    RunStore,
    Sandbox,
    SnapshotStore,
    SubAgentRunner,
    Toolbox,
    UserPrompt,
)
from stockade.core.secrets import Redactor
from stockade.core.tool_plan import OpenSandbox
from stockade.loop.act import Actor
from stockade.loop.conversation import Conversation
from stockade.loop.ending import Ending
from stockade.loop.hooks import EndedByHook, Hook, HookContext, Hooks
from stockade.loop.pause import Pause
from stockade.loop.record import Checkpoints, Record
from stockade.loop.state import RunState
from stockade.loop.verdict import Judge
from stockade_sandbox.policy import Policy


@dataclass(frozen=True, slots=True)
class Setup:
    """A run that is about to begin, as its bot has it. `started` is its first event as it will be on record, the prompt
    of the bot's role in it. `ask`: a question to the model, the fast one where there is one; secrets are hidden from
    it. `note` and `on_progress` are for the user. `program_model`: what the user named for a bot that asks its own.
    """

    started: RunStarted
    ask: Callable[[ModelRequest], Awaitable[ModelAnswer]]
    note: Callable[[str], None]
    on_progress: OnProgress
    program_model: str = ""


Narrator = Callable[[RunEvent], Sequence[tuple[str, str]] | None]
"""Gets the events of a run in order. The lines for the user in place of one, each with its style ("", "dim", "green",
"magenta" ...); None: it is drawn as for every bot. Lines may hold anything: they are made safe when they are drawn."""


class Bot:
    """Drives a run. This one is the plain loop; a bot that is more overrides what it needs. One object may drive many
    runs, also at once, unless its maker says otherwise. What it was made with and needs later it puts on record in
    `begin`: a run that goes on is driven by the bot of that name as it is registered.
    """

    loops: ClassVar[bool] = True
    """Whether it runs the loop: one that never does has no tools, of hooks its own and the chosen ones, and its files
    are in no snapshots but for checks."""
    asks: ClassVar[bool] = True
    """Whether it asks a model: a run of one that never does has none."""
    enters: ClassVar[bool] = True
    """Whether it works in the run's own sandbox, which is up then, and where the user may go on with it."""
    tells_programs: ClassVar[bool] = False
    """Whether its sandbox writes down what is started in it, where that can."""

    def policy(self, policy: Policy) -> Policy:
        """What its sandbox has, beside what the user gave."""
        return policy

    async def begin(self, setup: Setup) -> RunStarted:
        """The first event of a new run as it shall be. UsageError, and the run does not begin."""
        return setup.started

    def check_resume(self, started: RunStarted, changed: Collection[str], *, done: bool) -> None:
        """UsageError where the run cannot go on. `changed`: of `task`, `check`, `model` ... what is another one from
        now on; `done`: it came to its end.
        """

    def facts(self, events: Sequence[RunEvent]) -> dict[str, Any]:
        """What the last line of --json tells beside the run's end. Blocks."""
        return {}

    def told(self, started: RunStarted) -> tuple[str, ...]:
        """Paragraphs for the opening of its prompt, behind its role; `started` has no prompt yet."""
        return ()

    def narrator(self, started: RunStarted) -> Narrator | None:
        """What tells the user of its run in its own words; None: each step is drawn as it is."""
        return None

    def goals(
        self, started: RunStarted, history: Sequence[RunEvent], change: Callable[[Any], Awaitable[Any]]
    ) -> Callable[[], Awaitable[str]] | None:
        """Has the user change in mid-run what it is to be, and returns what it is told of that; None: they cannot.

        `history` is on record already; `change` shows the user a profile and returns what they made of it.
        """
        return None

    def hooks(self, started: RunStarted) -> tuple[Hook, ...]:
        """Its own, beside those of every run; their names are on record."""
        return ()

    async def run(self, ctx: "RunContext") -> Ending:
        """From the start, or from where the record ends, to the run's ending.

        Keeps to `ctx.account` and to the user's pause. Raised may be what core.errors has: the run ends by its name.
        """
        return await ctx.loop()


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The adapters of one run, chosen by runtime/factory.py."""

    model: Model
    protocol: AnswerProtocol
    sandbox: Sandbox
    store: RunStore
    clock: Clock
    tools: tuple[str, ...]
    toolboxes: tuple[Toolbox, ...] = ()
    asker: UserPrompt | None = None
    sub_agents: SubAgentRunner | None = None
    reviewer: Reviewer | None = None
    snapshots: SnapshotStore | None = None
    judge: Judge | None = None
    pause: Pause = field(default_factory=Pause)
    approver: Approver | None = None
    """Also among the hooks, as Approval; here so that a terminal can attach its user to it."""
    network: NetworkApprover | None = None
    """Who is asked for names that the network's list does not have."""
    hooks: tuple[Hook, ...] = ()
    """All of them, in the order in which they are asked."""
    on_event: OnEvent | None = None
    on_text: OnText | None = None
    redactor: Redactor = field(default_factory=Redactor)
    shared: Account | None = None
    """Of the bot that this one works for."""
    bot: Bot = field(default_factory=Bot)
    """What drives the run."""
    conversation: Conversation | None = None
    """With a user who may go on when the bot has ended."""
    open_sandbox: OpenSandbox | None = None
    """Another sandbox, for a bot that needs one."""
    entered: AbstractAsyncContextManager[Sandbox] | None = None
    """The sandbox, where it stays up after this run."""


def hooks_in(started: RunStarted, parts: Dependencies, record: Record, account: Account) -> Hooks:
    """The hooks of a run with what they see of it."""
    checkpoints = Checkpoints(parts.sandbox, parts.clock, parts.snapshots)
    attended = parts.asker is not None and parts.asker.attended
    ctx = HookContext(started, record, account, checkpoints, parts.judge, attended)
    return Hooks(ctx, parts.hooks)


RunLoop = Callable[[Sequence[Step]], Awaitable[Ending]]
"""The loop of run.py, behind these steps."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """A run as its bot has it: its first event, its parts (model, sandbox, clock, pause ...), its record, and what it
    may still use. `hooks` are asked about actions by `act`; about turns, sampling and a finish by the loop, or by a bot
    that does without it.
    """

    started: RunStarted
    parts: Dependencies
    record: Record
    account: Account
    hooks: Hooks
    run_loop: RunLoop

    @property
    def sandbox(self) -> Sandbox:
        """The run's own, entered."""
        return self.parts.sandbox

    @property
    def state(self) -> RunState:
        """What is on record, folded."""
        return self.record.state

    async def events(self) -> Sequence[RunEvent]:
        """The record so far, whole."""
        return await self.parts.store.events(self.started.run_id)

    def now(self) -> float:
        return self.parts.clock.now()

    async def loop(self, intro: Sequence[Step] = ()) -> Ending:
        """Turn by turn until the bot finishes, a hook ends it or the run's time is over; may be called again after
        `say`. `intro`: steps that are done before the first turn of a run that begins.
        """
        return await self.in_time(lambda: self.run_loop(intro))

    async def in_time(
        self, work: Callable[[], Awaitable[Ending]], late: Callable[[str], Ending] | None = None
    ) -> Ending:
        """`work`, cut when the run's time is over; `late` makes the ending then, of the words for it."""
        with anyio.move_on_after(self.account.seconds_left(self.now())) as deadline:
            with self.parts.pause.watching(deadline, self.record, self.parts.clock):
                return await work()
        assert deadline.cancelled_caught
        message = f"time: {self.started.budget.timeout_s:g} s are over"
        return Ending("stopped", "time", message) if late is None else late(message)

    async def add(self, *events: RunEvent) -> None:
        """On record, together, before this returns."""
        await self.record.add(*events)

    async def say(self, text: str, source: str) -> None:
        """A message for the model from the bot itself; `source` names who speaks."""
        await self.add(MessageInjected(at=self.now(), turn=self.state.turns, source=source, text=text))

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """A question of the bot's own; who asks puts the answer on record (ModelAnswered), which counts its tokens."""
        return await self.parts.model.ask(request, on_text)

    async def act(self, turn: int, number: int, step: Step, before: Sequence[RunEvent] = ()) -> Observation:
        """One action in the run's sandbox, if no hook refuses it. On record before (with `before`) and after.

        EndedByHook and HookFailed are raised when that is on record.
        """
        await self.add(*before, ActionStarted(at=self.now(), turn=turn, step=number, action=step))
        refused, end = await self.hooks.before_action(step.action)
        actor = Actor(self.sandbox, self.started.policy.limits)
        observation = refused or await actor.do(step.action, self.account.seconds_left(self.now()))
        words, broken = ((), None) if end is not None else await self.hooks.after_action(step, observation)
        await self.add(ActionFinished(at=self.now(), turn=turn, step=number, observation=observation, words=words))
        if (end := end or broken) is not None:
            raise end if isinstance(end, HookFailed) else EndedByHook(end)
        return observation

    def open_sandbox(self, policy: Policy) -> AbstractAsyncContextManager[Sandbox]:
        """Another sandbox, which holds nothing of the run but what `policy` gives. UsageError where the run can have
        none.
        """
        if self.parts.open_sandbox is None:
            raise UsageError("this run can have no second sandbox")
        return self.parts.open_sandbox(policy)
