"""How a run ends, by name: status, reason and verification are three separate things."""

from dataclasses import dataclass, replace
from typing import Self

from stockade.core.errors import (
    NO_MEMORY,
    AnswerHeldBack,
    HookFailed,
    ModelFailed,
    PolicyNotEnforceable,
    SandboxFailed,
    StockadeError,
    StoreFailed,
    ToolsUnavailable,
    UsageError,
)
from stockade.core.events import RunFinished, Status, StopReason
from stockade.core.ports import Clock, Reviewer
from stockade.loop.hooks import EndedByHook, EndRun, HookContext
from stockade.loop.record import Record
from stockade.loop.verdict import changed_tests
from stockade_sandbox.results import Change

_REASONS: dict[type[StockadeError], StopReason] = {
    HookFailed: "hook", UsageError: "usage", ToolsUnavailable: "tools", AnswerHeldBack: "declined",
    ModelFailed: "model", SandboxFailed: "sandbox", PolicyNotEnforceable: "sandbox",
}  # fmt: skip
FORESEEN: tuple[type[StockadeError] | type[EndedByHook], ...] = (*_REASONS, EndedByHook)
"""What ends a run and is no bug."""


@dataclass(frozen=True, slots=True)
class Ending:
    """`detail` is for the user; `verified` is None when no check was asked for."""

    status: Status
    reason: StopReason
    detail: str = ""
    answer: str | None = None
    verified: bool | None = None

    @classmethod
    def by(cls, end: EndRun, answer: str | None = None) -> Self:
        """As a hook ends it, or lets it end."""
        return cls(end.status, end.reason, end.detail, answer)


def reason_of(error: StockadeError) -> StopReason:
    """Of any, also one that a run lets through or that came before it."""
    if isinstance(error, StoreFailed):
        return "store"
    return next((reason for kind, reason in _REASONS.items() if isinstance(error, kind)), "usage")


def failed(error: StockadeError | EndedByHook) -> Ending:
    """The ending of one of the FORESEEN."""
    if isinstance(error, EndedByHook):
        return Ending.by(error.end)
    return Ending("failed", reason_of(error), str(error))


async def judged(ending: Ending, ctx: HookContext) -> Ending:
    """With what the checks say at a finish, also of a bot that asked none; where there are some, no other end is
    verified.
    """
    if not ctx.started.check:
        return ending
    if ending.reason != "finish":
        return replace(ending, verified=False)
    for command in ctx.started.check:
        passed = ctx.state.checked.get(command)
        if not ((await ctx.check(command)).passed if passed is None else passed):
            return replace(ending, reason="check_failed", detail="the check does not pass", verified=False)
    return replace(ending, verified=ending.verified is not False)


INTERRUPTED = Ending("stopped", "user", "interrupted")


def cut(record: Record, error: BaseException, why: str | None) -> Ending:
    """The ending of a run that was cancelled, as it had ended already where the user was being asked; or of a bug.

    `why` it was, where that was said.
    """
    if isinstance(error, MemoryError):
        return Ending("failed", "sandbox", NO_MEMORY)
    if isinstance(error, Exception):
        return Ending("failed", "bug", f"{type(error).__name__}: {error}")
    if (done := record.state.finished) is not None:
        return Ending(done.status, done.reason, done.detail, done.answer, done.verified)
    return replace(INTERRUPTED, detail=why or INTERRUPTED.detail)


async def close(
    record: Record, reviewer: Reviewer | None, clock: Clock, ending: Ending, *, sealed: bool = True
) -> RunFinished:
    """The last event: how it ended and what it changed. Changes that cannot be read are named, and do not hide it.

    Not `sealed`: what runs may still write. Where the record says the same already, that stands.
    """
    started = record.state.started
    changes: list[Change] = []
    seals: list[str | None] = []
    detail = ending.detail
    for layer in record.state.layers:
        seals.append(None)
        try:
            changes.extend(reviewer.changes(layer) if reviewer else ())
            seals[-1] = reviewer.seal(layer) if reviewer and sealed else None
        except StockadeError as error:
            detail = f"{detail}; {error}" if detail else str(error)
    finished = RunFinished(
        at=clock.now(),
        status=ending.status,
        reason=ending.reason,
        detail=detail,
        answer=ending.answer,
        verified=ending.verified,
        changed_tests=changed_tests(changes, started.protect) if ending.verified and started else (),
        turns=record.state.readable,
        usage=record.state.usage,
        changes=tuple(changes),
        seals=tuple(seals),
    )
    if (before := record.state.finished) is not None and _key(before) == _key(finished):
        return before
    await record.add(finished)
    return finished


def _key(finished: RunFinished) -> tuple[object, ...]:
    return finished.status, finished.reason, finished.answer, finished.verified, finished.seals
