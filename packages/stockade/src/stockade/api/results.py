"""What a run came to, for whoever started it from Python."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
from pydantic import TypeAdapter, ValidationError

from stockade import changes
from stockade.changes import Pending
from stockade.core.actions import Action, Finish, Observation
from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    ChangesDiscarded,
    CheckFinished,
    MessageInjected,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    Status,
)
from stockade.core.messages import Usage
from stockade.core.ports import Reviewer, RunStore
from stockade.core.secrets import EXACT, Redactor
from stockade.run_lock import cleanup
from stockade.runtime import records, sandboxes
from stockade_sandbox.results import Change, Decision, FolderLayer

T = TypeVar("T")


class Exchange(Data):
    """One thing that was said or done, in order. `who`: the user, the model, the sandbox, or Stockade itself."""

    turn: int
    who: str
    text: str = ""
    action: Action | None = None
    observation: Observation | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """True when it is done, and the check passed where there was one. `status` is how it ended, `error` why not well,
    else None. `value`: what the answer holds where it had to fit a schema or a type, and does. `changed_tests`: of a
    verified run, what the bot changed of the files that test runners obey.
    """

    run_id: str
    status: Status
    answer: str | None
    error: str | None
    verified: bool | None
    reason: str
    turns: int
    usage: Usage
    log: tuple[Exchange, ...]
    changed_tests: tuple[str, ...] = ()
    layers: tuple[FolderLayer, ...] = ()
    store: str | None = None
    value: Any = None
    events: tuple[RunEvent, ...] = field(default=(), repr=False)
    redactor: Redactor = field(default=EXACT, repr=False)
    is_up: Callable[[], bool] = field(default=bool, repr=False)
    """Whether its sandbox still is."""

    def __bool__(self) -> bool:
        return self.error is None

    @property
    def changes(self) -> tuple[Change, ...]:
        """What differs from the host's folders now; empty once applied or thrown away. Blocks.

        LayerLost when what it wrote is not on this machine any more and nobody decided on it; so do `diff` and `apply`.
        """
        work = self._pending(self._reviewer())
        return tuple(change for one in work for change in one.changes)

    @property
    def diff(self) -> str:
        """The changes as a unified diff, to be read: what is hidden is masked in it, unchanged in the files."""
        reviewer = self._reviewer()
        work = self._pending(reviewer)
        diffs = (reviewer.unified_diff(one.layer, change) for one in work for change in one.changes)
        return "".join(map(self.redactor.text, diffs))

    def apply(self, *, flagged: bool = False, force: bool = False, merge: bool = False) -> tuple[str, ...]:
        """Write the changes to the host's folders; the paths that were written.

        What would run on the host later (hooks, shell start-up files) is left out unless `flagged`. ChangedOnHost, and
        nothing of that folder written, when a file has other content there than the run met: unless `force` writes over
        it, or `merge` merges both sides; what it cannot merge stays among `changes`.
        """
        done, reviewer = changes.Applied(), self._reviewer()
        try:
            work = self._pending(reviewer)
            changes.apply(reviewer, work, done, flagged=flagged, force=force, merge=merge, record=self._keep)
            again = changes.move(reviewer, self.layers, back=False, force=force, record=self._keep)
        finally:
            cleanup(self.run_id)
        return (*done.paths, *again.paths)

    def undo(self, *, force: bool = False) -> tuple[str, ...]:
        """Take back what was applied; the paths that are as they were before. `apply` applies it again.

        What was edited since stays, unless `force`. Blocks.
        """
        reviewer = self._reviewer()
        return tuple(changes.move(reviewer, self.layers, back=True, force=force, record=self._keep).paths)

    def discard(self) -> None:
        """Throw the changes away. UsageError while its sandbox is up, which shows them to the bot."""
        if self.is_up():
            raise UsageError("the sandbox of this run is still up", "discard it behind `with bot:`")
        self._record(ChangesDiscarded(at=records.SystemClock().now()))
        changes.discard(sandboxes.reviewer(), self.layers)
        cleanup(self.run_id)

    def _reviewer(self) -> Reviewer:
        return sandboxes.reviewer(up=self.is_up())

    def _pending(self, reviewer: Reviewer) -> list[Pending]:
        if any(layer.is_lost for layer in self.layers):
            changes.check_kept(changes.facts(self._on_record(lambda store: store.events(self.run_id))))
        return changes.pending(reviewer, self.layers)

    def _keep(self, decision: Decision) -> None:
        self._record(changes.event_of(decision))

    def _record(self, event: RunEvent) -> None:
        self._on_record(lambda store: store.append(self.run_id, [event]))

    def _on_record(self, what: Callable[[RunStore], Awaitable[T]]) -> T:
        async def work() -> T:
            store = records.open_store(self.store)
            try:
                return await what(store)
            finally:
                await store.close()

        return anyio.run(work)


def result_of(
    run_id: str,
    events: Iterable[RunEvent],
    store: str | None,
    redactor: Redactor = EXACT,
    wanted: Any = Any,
    is_up: Callable[[], bool] = bool,
) -> RunResult:
    """The result of a run's record, or of the part of it since it went on, which ends with its end. `wanted`: the type
    of its value.
    """
    seen = tuple(events)
    finished = next(event for event in reversed(seen) if isinstance(event, RunFinished))
    is_good = finished.status == "done" and finished.verified is not False
    value, error = None, None if is_good else error_of(finished)
    if is_good and finished.answer is not None and is_data(seen):
        try:
            value = TypeAdapter(wanted).validate_json(finished.answer)
        except ValidationError as wrong:
            why = "; ".join(one["msg"] for one in wrong.errors(include_url=False, include_input=False))
            error = f"the answer fits the schema and is no {getattr(wanted, '__name__', wanted)}: {why}"
    return RunResult(
        run_id=run_id,
        status=finished.status,
        answer=finished.answer,
        error=error,
        value=value,
        is_up=is_up,
        verified=finished.verified,
        reason=finished.reason,
        turns=finished.turns,
        usage=finished.usage,
        log=tuple(log_of(seen)),
        changed_tests=finished.changed_tests,
        layers=changes.facts(seen).layers,
        store=store,
        events=seen,
        redactor=redactor,
    )


def is_data(events: Iterable[RunEvent]) -> bool:
    """Whether the last answer had to fit a schema."""
    schema = None
    for event in events:
        if isinstance(event, RunStarted) or (isinstance(event, RunResumed) and event.output_schema is not None):
            schema = event.output_schema
    return bool(schema)


def error_of(finished: RunFinished) -> str:
    """One line; for the bounds that Microbots has, in its words."""
    match finished.reason:
        case "turns":
            return f"Max iterations {finished.turns} reached"
        case "time":
            return f"Timeout reached: {finished.detail.removeprefix('time: ')}"
        case "check_failed":
            return finished.detail or "the check does not pass"
        case _:
            return f"Did not complete ({finished.reason}): {finished.detail}".removesuffix(": ")


def log_of(events: Iterable[RunEvent]) -> Iterable[Exchange]:
    """Every exchange in order: the user's tasks, the model's thoughts, actions and answers, what the sandbox said."""
    for event in events:
        match event:
            case RunStarted(task=str() as task) | RunResumed(task=str() as task):
                yield Exchange(turn=0, who="user", text=task)
            case AnswerUnderstood():
                yield Exchange(turn=event.turn, who="model", text=event.answer.shown)
                for step in event.answer.steps:
                    if isinstance(step.action, Finish):
                        yield Exchange(turn=event.turn, who="model", action=step.action)
            case AnswerUnreadable():
                yield Exchange(turn=event.turn, who="stockade", text=f"unreadable answer: {event.message}")
            case ActionStarted():
                yield Exchange(turn=event.turn, who="model", action=event.action.action)
            case ActionFinished() | CheckFinished():
                yield Exchange(turn=event.turn, who="sandbox", observation=event.observation)
            case MessageInjected():
                yield Exchange(turn=event.turn, who="stockade", text=event.text)
            case _:
                pass
