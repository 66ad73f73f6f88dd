"""A run as its bot has it (bot.py)."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import anyio

from stockade.core.actions import Observation, Refused, Step
from stockade.core.budget import Account
from stockade.core.errors import UsageError
from stockade.core.events import ActionFinished, ActionStarted, MessageInjected, RunEvent, RunStarted
from stockade.core.messages import ModelAnswer, ModelRequest
from stockade.core.policy import Policy
from stockade.core.ports import OnText, Sandbox
from stockade.loop.act import Actor
from stockade.loop.ending import Ending
from stockade.loop.parts import Parts
from stockade.loop.record import Record
from stockade.loop.state import RunState

RunLoop = Callable[[Sequence[Step]], Awaitable[Ending]]
"""The loop of run.py, behind these steps."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """A run as its bot has it: its first event, its parts (model, sandbox, clock, pause ...), its record, and what it
    may still use.
    """

    started: RunStarted
    parts: Parts
    record: Record
    account: Account
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
            self.parts.pause.watch(deadline)
            return await work()
        assert deadline.cancelled_caught
        words = f"time: {self.started.budget.timeout_s:g} s are over"
        return Ending("stopped", "time", words) if late is None else late(words)

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
        """One action in the run's sandbox, if nobody refuses it. On record before (with `before`) and after."""
        await self.add(*before, ActionStarted(at=self.now(), turn=turn, step=number, action=step))
        approver = self.parts.approver
        reason = await approver.judge(step.action) if approver is not None else None
        actor = Actor(self.sandbox, self.started.policy.limits.command_timeout_s)
        left = self.account.seconds_left(self.now())
        observation = Refused(reason=reason) if reason is not None else await actor.do(step.action, left)
        await self.add(ActionFinished(at=self.now(), turn=turn, step=number, observation=observation))
        return observation

    def open_sandbox(self, policy: Policy) -> AbstractAsyncContextManager[Sandbox]:
        """Another sandbox, which holds nothing of the run but what `policy` gives. UsageError where the run can have
        none.
        """
        if self.parts.open_sandbox is None:
            raise UsageError("this run can have no second sandbox")
        return self.parts.open_sandbox(policy)
