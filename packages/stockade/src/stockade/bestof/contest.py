"""The same task by several candidates at once, each in a sandbox of its own on a copy of the run's folders.

Each is a run on record, with the one that asked for it as its boss. With `--check` the first that passes is taken over
and the others are stopped; without one the user chooses. What the candidate did becomes the run's own record, and its
files the run's: they are reviewed, applied and gone on with as those of any run.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import anyio
from anyio import to_thread

from stockade.bestof.adopting import adopt
from stockade.changes import discard_decided
from stockade.core.budget import Account, Budget, Spent
from stockade.core.errors import StockadeError, StoreFailed, UsageError
from stockade.core.events import RunEvent, RunFinished, RunStarted, SubRunFinished, SubRunStarted
from stockade.core.messages import Usage
from stockade.core.ports import Reviewer
from stockade.core.text import one_line
from stockade.loop.ending import Ending
from stockade.loop.pause import Pause
from stockade.loop.run_context import Bot, RunContext
from stockade.loop.state import fold
from stockade.run_lock import cleanup
from stockade_sandbox.results import FolderLayer

Drive = Callable[[RunStarted, int, str, Account, Pause], Awaitable[RunFinished]]
"""Does the task as candidate N under that id, to its end. It is bounded by its own budget and by the account."""
_NOTHING = Budget(max_turns=0, timeout_s=0.0)
_SHOWN = 200


@dataclass(slots=True)
class Candidate:
    """`error`: why it did not begin, or broke."""

    number: int
    run_id: str
    finished: RunFinished | None = None
    usage: Usage = field(default_factory=Usage)
    turns: int = 0
    error: str = ""
    layers: tuple[FolderLayer, ...] = ()
    told: Usage = field(default_factory=Usage)
    told_turns: int = 0
    """What the run's record has of it already, from before it was cut."""

    @property
    def done(self) -> bool:
        return self.finished is not None and self.finished.status == "done"

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self.finished is None:
            return f"failed: {self.error}"
        if self.finished.verified is not None and self.done:
            return "the check passes" if self.finished.verified else "the check fails"
        why = f" ({self.finished.reason})" if not self.done else ""
        return f"{self.finished.status}{why}"

    def words(self) -> str:
        """A line for the user, who compares it with the others."""
        files = len(self.finished.changes) if self.finished else 0
        cost = f", {self.usage.cost:.4f} USD" if self.usage.cost else ""
        answer = one_line(self.finished.answer or "", _SHOWN) if self.finished else ""
        told = f": {answer}" if answer else ""
        changed = f"{files} {'file' if files == 1 else 'files'} changed"
        return f"{self.number}  {self.run_id}  {self.end}, {self.turns} turns{cost}, {changed}{told}"

    def facts(self) -> dict[str, Any]:
        """For who reads JSON."""
        end = self.finished
        return {
            "run": self.run_id,
            "status": end.status if end else "failed",
            "reason": end.reason if end else "",
            "detail": end.detail if end else self.error,
            "verified": end.verified if end else None,
            "answer": end.answer if end else None,
            "turns": self.turns,
            "usage": self.usage.model_dump(),
            "changes": [change.path for change in end.changes] if end else [],
        }


class BestOf(Bot):
    """Drives the run that asks for `count` candidates; `drive` does each. An object is of one run."""

    enters: ClassVar[bool] = False

    def __init__(self, count: int, drive: Drive) -> None:
        self._count, self._drive = count, drive
        self._candidates = list[Candidate]()
        self._chosen: Candidate | None = None

    def facts(self, events: Sequence[RunEvent]) -> dict[str, Any]:
        told = [{**one.facts(), "chosen": one is self._chosen} for one in self._candidates]
        return {"candidates": told}

    async def run(self, ctx: RunContext) -> Ending:
        if ctx.parts.entered is not None or ctx.parts.conversation is not None:
            what = "candidates have sandboxes of their own, and this run works in one that stays up"
            raise UsageError(what, "leave --best-of out, or begin a run of its own")
        return await ctx.in_time(lambda: self._contest(ctx))

    async def _contest(self, ctx: RunContext) -> Ending:
        started = ctx.started
        whole = Account(started.budget.model_copy(update={"max_turns": 0}), ctx.account.own)
        numbers = range(1, self._count + 1)
        self._candidates = [Candidate(number, f"{started.run_id}.{number}") for number in numbers]
        known = {one.run_id: one for one in self._candidates}
        for event in await ctx.events():
            if isinstance(event, SubRunFinished) and (before := known.get(event.run_id)) is not None:
                before.told, before.told_turns = before.told + event.usage, before.told_turns + event.turns
        await ctx.add(*(_begun(one, started, ctx.now()) for one in self._candidates))
        async with anyio.create_task_group() as group:

            async def one_of_them(one: Candidate) -> None:
                await self._one(ctx, whole, one)
                if one.done and one.finished is not None and one.finished.verified and self._chosen is None:
                    self._chosen = one
                    ctx.parts.pause.stop(f"candidate {one.number} passed the check before")
                    group.cancel_scope.cancel()

            for one in self._candidates:
                group.start_soon(one_of_them, one)
        if self._chosen is None and not started.check:
            self._chosen = await self._choose(ctx)
        if self._chosen is None or self._chosen.finished is None:
            await to_thread.run_sync(_tidy, ctx.parts.reviewer, self._candidates)
            return self._nobody(ctx)
        await adopt(ctx, self._chosen.run_id, self._chosen.usage, self._chosen.turns)
        await to_thread.run_sync(_tidy, ctx.parts.reviewer, self._candidates)
        end = self._chosen.finished
        return Ending(end.status, end.reason, end.detail, end.answer, end.verified)

    async def _one(self, ctx: RunContext, whole: Account, one: Candidate) -> None:
        """To its end, which is on record in both."""
        own = Account(_NOTHING, lambda _: Spent(turns=-one.told_turns, usage=Usage() - one.told), whole)
        try:
            one.finished = await self._drive(ctx.started, one.number, one.run_id, own, ctx.parts.pause)
        except StoreFailed:
            raise
        except StockadeError as error:
            one.error = str(error)
        finally:
            with anyio.CancelScope(shield=True):
                await self._ended(ctx, one)
            whole.shares = [share for share in whole.shares if share is not own]  # from here on the record tells

    async def _ended(self, ctx: RunContext, one: Candidate) -> None:
        try:
            state = fold(await ctx.parts.store.events(one.run_id))
            one.finished, one.usage = one.finished or state.finished, state.usage
            one.layers, one.turns = state.layers, state.readable + state.helpers_turns
        except UsageError:
            pass  # it never began
        end = one.finished
        ended = SubRunFinished(
            at=ctx.now(), run_id=one.run_id, status=end.status if end else "failed",
            turns=one.turns - one.told_turns, usage=one.usage - one.told, number=one.number,
            verified=end.verified if end else None,
        )  # fmt: skip
        await ctx.add(ended)

    async def _choose(self, ctx: RunContext) -> Candidate | None:
        """The one that the user names; the only one that came to an end of its own; else none."""
        done = {str(one.number): one for one in self._candidates if one.done}
        asker = ctx.parts.asker
        if len(done) <= 1 or asker is None or not asker.attended:
            return next(iter(done.values()), None) if len(done) == 1 else None
        lines = "\n".join(one.words() for one in self._candidates)
        look = f"stockade diff {self._candidates[0].run_id} shows what the first has changed."
        question = f"Which candidate shall be taken?\n\n{lines}\n\n{look}\n{', '.join(done)}, or an empty line for none"
        asked = question
        while reply := ((await asker.ask(asked)) or "").strip():
            if reply in done:
                return done[reply]
            asked = f"There is no candidate {one_line(reply, 40)} to take.\n\n{question}"
        return None

    def _nobody(self, ctx: RunContext) -> Ending:
        """None was taken: why, and how to take one."""
        done = [one for one in self._candidates if one.done]
        told = "; ".join(f"{one.run_id} {one.end}" for one in self._candidates)
        if done:
            look = f"stockade diff {done[0].run_id}, stockade apply {done[0].run_id}"
            if ctx.started.check:
                detail = f"no candidate passes the check: {told}. To look at one: {look}"
                return Ending("done", "check_failed", detail, verified=False)
            return Ending("stopped", "user", f"no candidate was chosen: {told}. To choose one: {look}")
        verified = False if ctx.started.check else None
        end = next((one.finished for one in self._candidates if one.finished is not None), None)
        if end is None:
            return Ending("failed", "sandbox", f"no candidate began: {told}", verified=verified)
        return Ending(end.status, end.reason, f"no candidate came to an answer: {told}", verified=verified)


def _tidy(reviewer: Reviewer | None, candidates: Sequence[Candidate]) -> None:
    """Of those that wrote nothing, nothing stays but the record."""
    for one in candidates:
        if reviewer is not None:
            discard_decided(reviewer, one.layers)
        cleanup(one.run_id)


def _begun(one: Candidate, started: RunStarted, now: float) -> SubRunStarted:
    return SubRunStarted(at=now, run_id=one.run_id, task=started.task, number=one.number)
