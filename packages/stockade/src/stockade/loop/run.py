"""The loop. Read this first.

    task ─► ask the model ─► understand the answer ─► act in the sandbox ─► observe ─┐
                 ▲                                                                    │
                 └────────────────────────────────────────────────────────────────────┘

Every arrow is an event, on disk before its effect is used (record.py). The run's state and the conversation are folds
over those events (state.py, context.py). Nothing here knows which model, sandbox, spelling or store is in use.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio

from stockade.core.actions import Answer, Finish, Step
from stockade.core.budget import Account
from stockade.core.errors import HookFailed, StoreFailed, UnreadableAnswer
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    ModelAnswered,
    ModelStarted,
    RunEvent,
    RunFinished,
    RunStarted,
    SandboxStarted,
)
from stockade.core.messages import ModelRequest
from stockade.loop import window
from stockade.loop.act import Actor, Tools, ready
from stockade.loop.context import Context
from stockade.loop.conversation import go_on, lead
from stockade.loop.ending import FORESEEN, Ending, close, cut, failed, judged
from stockade.loop.hooks import EndRun, Hooks
from stockade.loop.record import Record, recorded
from stockade.loop.run_context import Dependencies, RunContext, hooks_in

__all__ = ["Dependencies", "run", "run_to_completion"]
ResumeHook = Callable[[], Awaitable[Finish | None]]
"""What a run that goes on has to do first; returns the bot's last word when it is still to be answered."""


async def run(started: RunStarted, parts: Dependencies) -> RunFinished:
    """One run from its first event to its last. Every ending is on record but StoreFailed, which is raised."""
    record = Record(started.run_id, parts.store, Context(parts.protocol), parts.on_event, parts.redactor)
    await record.add(started)
    return await run_to_completion(started, parts, record)


async def run_to_completion(
    started: RunStarted, parts: Dependencies, record: Record, again: ResumeHook | None = None
) -> RunFinished:
    """What `run` and `resume` have in common; `again` is done when sandbox and model are there."""
    try:
        ending = await _still_verified(await _in_sandbox(started, parts, record, again), parts, record)
    except FORESEEN as error:
        ending = failed(error)
    except StoreFailed:
        raise
    except (Exception, anyio.get_cancelled_exc_class()) as error:
        with anyio.CancelScope(shield=True):
            await close(record, parts.reviewer, parts.clock, cut(record, error, parts.pause.stopped))
        raise
    finally:
        await go_on(parts.conversation)
    return await close(record, parts.reviewer, parts.clock, ending)


async def _still_verified(ending: Ending, parts: Dependencies, record: Record) -> Ending:
    """What a verdict was about is what there is now that nothing runs any more: else it holds no longer."""
    snapshots, last = parts.snapshots, record.state.checkpoint
    if not ending.verified or snapshots is None or last is None or await snapshots.keep() == last.files:
        return ending
    return replace(ending, reason="check_failed", detail="it was written to after the check had passed", verified=False)


async def _in_sandbox(started: RunStarted, parts: Dependencies, record: Record, again: ResumeHook | None) -> Ending:
    """Sandbox first: a policy that cannot be held is refused before the model is asked anything."""
    async with recorded(record, parts.sandbox, parts.network), parts.entered or parts.sandbox as sandbox:
        now = parts.clock.now()
        await record.add(
            SandboxStarted(at=now, backend=sandbox.backend, layers=sandbox.layers, guarantees=sandbox.guarantees)
        )
        async with ready(parts.tools, parts.toolboxes, record, parts.clock) as tools, parts.model as model:
            left_out = record.context.left_out(model.info.context_window)
            await record.add(ModelStarted(at=parts.clock.now(), info=model.info, task_left_out=left_out))
            if (problem := window.unfit(record.context, model.info)) is not None:
                return Ending("failed", "model", problem)
            begin = [again] if again is not None else []

            async def do(started: RunStarted) -> Ending:
                hooks = hooks_in(started, parts, record, Account(started.budget, record.state.spent, parts.shared))

                async def loop(intro: Sequence[Step]) -> Ending:
                    pending = await begin.pop()() if begin else None
                    return await _Loop(started, parts, record, hooks, tools).until_end(intro, pending)

                ending = await parts.bot.run(RunContext(started, parts, record, hooks.ctx.account, hooks, loop))
                return await judged(ending, hooks.ctx)

            return await lead(started, parts, record, do)


@dataclass(slots=True)
class _Loop:
    """Turn by turn until there is an ending."""

    started: RunStarted
    parts: Dependencies
    record: Record
    hooks: Hooks
    tools: Tools
    actor: Actor = field(init=False)

    def __post_init__(self) -> None:
        parts, account, sub_agents = self.parts, self.hooks.ctx.account, self.parts.sub_agents
        hand_on = None if sub_agents is None else lambda task: sub_agents.do(task, account, self.record.add)
        self.actor = Actor(parts.sandbox, self.started.policy.limits, self.tools, parts.asker, hand_on)

    async def until_end(self, intro: Sequence[Step], pending: Finish | None) -> Ending:
        """`pending`: what the bot said last, and nobody answered yet."""
        if pending is not None and (ending := await self._finish(pending)) is not None:
            return ending
        state = self.record.state
        for number, step in enumerate(() if state.turns or state.acted else intro):
            await self.record.add(AnswerUnderstood(at=self._now(), turn=0, answer=Answer(steps=(step,))))
            if (ending := await self._act(number, step, begun=False)) is not None:
                return ending
        while True:
            await self.parts.pause.passed(self.record, self.parts.clock)
            if self.parts.pause.stopped is not None:
                return Ending.by(EndRun("stopped", "user", self.parts.pause.stopped))
            await self.parts.pause.said(self.record, self.parts.clock, state.turns + 1)
            if (end := await self.hooks.before_turn(state.turns + 1)) is not None:
                return Ending.by(end)
            answer = await self._ask()
            for number, step in enumerate(answer.steps if answer else ()):
                if not await self.parts.pause.passed(self.record, self.parts.clock):
                    break
                if isinstance(step.action, Finish):
                    if (ending := await self._finish(step.action, spoken=bool(answer and answer.spoken))) is not None:
                        return ending
                    break
                if (ending := await self._act(number, step, begun=not number)) is not None:
                    return ending

    async def _act(self, number: int, step: Step, *, begun: bool) -> Ending | None:
        """One step; what came of it and the files it left are on record together. `begun`: its start is on record."""
        turn = self.record.state.turns
        if not begun:
            await self.record.add(ActionStarted(at=self._now(), turn=turn, step=number, action=step))
        refused, end = await self.hooks.before_action(step.action)
        observation = refused or await self.actor.do(step.action, self.hooks.ctx.account.seconds_left(self._now()))
        words, broken = ((), None) if end is not None else await self.hooks.after_action(step, observation)
        kept = await self.hooks.ctx.checkpoints.after(step.action, observation, self.record.state)
        done = ActionFinished(at=self._now(), turn=turn, step=number, observation=observation, words=words)
        await self.record.add(*kept, done)
        if isinstance(end := end or broken, HookFailed):  # what was done is on record first
            raise end
        return None if end is None else Ending.by(end)

    def _now(self) -> float:
        return self.parts.clock.now()

    async def _ask(self) -> Answer | None:
        """One turn of the model. None when no action could be read from its answer: that is on record, ask again."""
        state, turn = self.record.state, self.record.state.turns + 1
        sampling = self.hooks.sampling(self.started.sampling)

        def request() -> ModelRequest:
            asked = ModelRequest(messages=self.record.context.messages(), sampling=sampling)
            return self.parts.protocol.constrain(asked, self.tools.offered)

        answer = await window.ask(self.parts.model, self.record, request, turn, self._now, self.parts.on_text)
        other = sampling if sampling != self.started.sampling else None
        answered = ModelAnswered(at=self._now(), turn=turn, answer=answer, sampling=other)
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

    async def _finish(self, finish: Finish, *, spoken: bool = False) -> Ending | None:
        end = await self.hooks.before_finish(finish, spoken=spoken)
        return None if end is None else Ending.by(end, finish.answer)
