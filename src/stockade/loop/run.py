"""The loop. Read this first.

    task ─► ask the model ─► understand the answer ─► act in the sandbox ─► observe ─┐
                 ▲                                                                    │
                 └────────────────────────────────────────────────────────────────────┘

Every arrow is an event, on disk before its effect is used (record.py). The run's state and the conversation are folds
over those events (state.py, context.py). Nothing here knows which model, sandbox, spelling or store is in use.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from stockade.core.actions import Answer, Finish, Step
from stockade.core.budget import Account
from stockade.core.errors import StoreFailed, UnreadableAnswer
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    ModelAnswered,
    ModelStarted,
    Nudged,
    RunEvent,
    RunFinished,
    RunStarted,
    SandboxStarted,
)
from stockade.core.messages import ModelRequest
from stockade.loop import window
from stockade.loop.accept import accept
from stockade.loop.act import Actor
from stockade.loop.context import Context
from stockade.loop.ending import FORESEEN, Ending, close, failed, over
from stockade.loop.kept import Checkpoints
from stockade.loop.network import recorded
from stockade.loop.parts import Parts
from stockade.loop.record import Record
from stockade.loop.tools import Tools, ready

__all__ = ["Parts", "run", "to_the_end"]

Again = Callable[[], Awaitable[Finish | None]]
"""What a run that goes on has to do first; returns the bot's last word when it is still to be answered."""


async def run(started: RunStarted, parts: Parts) -> RunFinished:
    """One run from its first event to its last. Every ending is on record but StoreFailed, which is raised."""
    record = Record(started.run_id, parts.store, Context(parts.protocol), parts.on_event, parts.redactor)
    await record.add(started)
    return await to_the_end(started, parts, record)


async def to_the_end(started: RunStarted, parts: Parts, record: Record, again: Again | None = None) -> RunFinished:
    """What `run` and `resume` have in common; `again` is done when sandbox and model are there."""
    try:
        ending = await _in_sandbox(started, parts, record, again)
    except FORESEEN as error:
        ending = failed(error)
    except StoreFailed:
        raise
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await close(record, parts.reviewer, parts.clock, Ending("stopped", "user", "interrupted"))
        raise
    except Exception as bug:
        words = f"{type(bug).__name__}: {bug}"
        await close(record, parts.reviewer, parts.clock, Ending("failed", "bug", words))
        raise
    return await close(record, parts.reviewer, parts.clock, ending)


async def _in_sandbox(started: RunStarted, parts: Parts, record: Record, again: Again | None) -> Ending:
    """Sandbox first: a policy that cannot be held is refused before the model is asked anything."""
    async with recorded(record, parts.sandbox), parts.sandbox as sandbox:
        now = parts.clock.now()
        await record.add(
            SandboxStarted(at=now, backend=sandbox.backend, layers=sandbox.layers, guarantees=sandbox.guarantees)
        )
        async with ready(parts, record) as tools, parts.model as model:
            await record.add(ModelStarted(at=parts.clock.now(), info=model.info))
            if (problem := window.too_small(record.context)) is not None:
                return Ending("failed", "model", problem)
            account = Account(started.budget, record.state.spent, parts.shared)
            if parts.drive is not None:
                return await parts.drive(started, parts, record, account)
            left = account.seconds_left(parts.clock.now())
            with anyio.move_on_after(left) as deadline:
                parts.pause.watch(deadline)
                pending = await again() if again is not None else None
                return await _Loop(started, parts, record, account, tools).until_end(pending)
            assert deadline.cancelled_caught
            return Ending("stopped", "time", f"time: {started.budget.timeout_s:g} s are over")


@dataclass(frozen=True, slots=True)
class _Loop:
    """Turn by turn until there is an ending."""

    started: RunStarted
    parts: Parts
    record: Record
    account: Account
    tools: Tools

    async def until_end(self, pending: Finish | None = None) -> Ending:
        """`pending`: what the bot said last, and nobody answered yet."""
        if pending is not None and (ending := await self._finish(pending)) is not None:
            return ending
        actor = self._actor()
        for number, step in enumerate(self.parts.steering.opening(self.record.state)):
            await self.record.add(AnswerUnderstood(at=self._now(), turn=0, answer=Answer(steps=(step,))))
            await self._act(actor, number, step, begun=False)
        while True:
            await self.parts.pause.passed(self.record, self.parts.clock)
            if (ending := over(self.started, self.record.state, self.account, self.parts, self._now())) is not None:
                return ending
            answer = await self._ask()
            for number, step in enumerate(answer.steps if answer else ()):
                if not await self.parts.pause.passed(self.record, self.parts.clock):
                    break
                if isinstance(step.action, Finish):
                    if (ending := await self._finish(step.action)) is not None:
                        return ending
                    break
                await self._act(actor, number, step, begun=not number)

    def _actor(self) -> Actor:
        parts, helper = self.parts, self.parts.helper
        return Actor(
            parts.sandbox,
            parts.approver,
            self.started.policy.limits.command_timeout_s,
            self.tools,
            parts.asker,
            None if helper is None else lambda task: helper.do(task, self.account, self.record.add),
            self.started.advice,
        )

    async def _act(self, actor: Actor, number: int, step: Step, *, begun: bool) -> None:
        """One step; what came of it and the files it left are on record together. `begun`: its start is on record."""
        turn = self.record.state.turns
        if not begun:
            await self.record.add(ActionStarted(at=self._now(), turn=turn, step=number, action=step))
        left = self.account.seconds_left(self._now())
        refused = await self.parts.steering.refuses(step.action, self.record.state, self.parts.sandbox)
        observation = refused or await actor.do(step.action, left)
        kept = await self._checkpoints().after(step.action, observation, self.record.state)
        await self.record.add(*kept, ActionFinished(at=self._now(), turn=turn, step=number, observation=observation))

    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self.parts.sandbox, self.parts.clock, self.parts.keeper)

    def _now(self) -> float:
        return self.parts.clock.now()

    async def _ask(self) -> Answer | None:
        """One turn of the model. None when no action could be read from its answer: that is on record, ask again."""
        state, turn, steering = self.record.state, self.record.state.turns + 1, self.parts.steering
        await self.parts.pause.said(self.record, self.parts.clock, turn)
        if steering.finishes and (warning := self.account.warning(self._now(), state.warnings)) is not None:
            await self.record.add(Nudged(at=self._now(), turn=turn, why="budget", text=warning))
        await steering.before(self.record, self.parts.sandbox, self.parts.clock, turn)
        answer = await window.ask(self.parts.model, self.record, self._request, turn, self._now, self.parts.on_text)
        sampling = steering.other_sampling(self.started.sampling, state)
        answered = ModelAnswered(at=self._now(), turn=turn, answer=answer, sampling=sampling)
        try:
            understood = self.parts.protocol.read(answer, self.tools.offered)
        except UnreadableAnswer as error:
            bad = AnswerUnreadable(at=self._now(), turn=turn, attempt=state.unreadable + 1, message=error.message)
            await self.record.add(answered, bad)
            return None
        events: list[RunEvent] = [answered, AnswerUnderstood(at=self._now(), turn=turn, answer=understood)]
        if not isinstance((first := understood.steps[0]).action, Finish):  # one sync to disk for all three
            events.append(ActionStarted(at=self._now(), turn=turn, step=0, action=first))
        await self.record.add(*events)
        return understood

    def _request(self) -> ModelRequest:
        """What is asked next."""
        state, steering = self.record.state, self.parts.steering
        sampling = steering.sampling(self.started.sampling, state)
        request = ModelRequest(messages=self.record.context.messages(), sampling=sampling)
        return self.parts.protocol.constrain(request, steering.offered(state, self.tools.offered))

    async def _finish(self, finish: Finish) -> Ending | None:
        last = self.account.exhausted(self._now()) is not None
        return await accept(finish, self.started, self.record, self._checkpoints(), self.parts.reviewer, last=last)
