"""How a run ends, by name: status, reason and verification are three separate things."""

from dataclasses import dataclass

from stockade.core.budget import Account
from stockade.core.changes import Change
from stockade.core.errors import (
    ModelFailed,
    PolicyNotEnforceable,
    SandboxFailed,
    StockadeError,
    ToolsUnavailable,
    UsageError,
)
from stockade.core.events import RunFinished, RunStarted, Status, StopReason
from stockade.core.ports import Clock, Reviewer
from stockade.loop.parts import Parts
from stockade.loop.record import Record
from stockade.loop.state import RunState

_REASONS: dict[type[StockadeError], StopReason] = {
    UsageError: "usage", ToolsUnavailable: "tools", ModelFailed: "model", SandboxFailed: "sandbox",
    PolicyNotEnforceable: "sandbox",
}  # fmt: skip
FORESEEN = tuple(_REASONS)
"""What ends a run and is no bug."""
_BOUNDS: dict[str, StopReason] = {"turns": "turns", "time": "time", "tokens": "tokens", "cost": "cost"}


@dataclass(frozen=True, slots=True)
class Ending:
    """`detail` is for the person; `verified` is None when no check was asked for."""

    status: Status
    reason: StopReason
    detail: str = ""
    answer: str | None = None
    verified: bool | None = None


def failed(error: StockadeError) -> Ending:
    """The ending of one of the FORESEEN."""
    reason = next(reason for kind, reason in _REASONS.items() if isinstance(error, kind))
    return Ending("failed", reason, str(error))


def over(started: RunStarted, state: RunState, account: Account, parts: Parts, now: float) -> Ending | None:
    """Why the run must stop before its next turn, or None: the person, a budget, a loop, unreadable answers."""
    verified = None if started.check is None else False
    if parts.pause.stopped is not None:
        return Ending("stopped", "user", parts.pause.stopped, verified=verified)
    if (bound := account.exhausted(now)) is not None:
        return Ending("stopped", _BOUNDS[bound.split(":")[0]], bound, verified=verified)
    if (why := parts.steering.over(state)) is not None:
        return Ending("stopped", why[0], why[1], verified=verified)
    return None


async def close(record: Record, reviewer: Reviewer | None, clock: Clock, ending: Ending) -> RunFinished:
    """The last event: how it ended and what it changed. Changes that cannot be read are named, and do not hide it."""
    changes: list[Change] = []
    detail = ending.detail
    for layer in record.state.layers:
        try:
            changes.extend(reviewer.changes(layer) if reviewer else ())
        except StockadeError as error:
            detail = f"{detail}; {error}" if detail else str(error)
    finished = RunFinished(
        at=clock.now(),
        status=ending.status,
        reason=ending.reason,
        detail=detail,
        answer=ending.answer,
        verified=ending.verified,
        turns=record.state.readable,
        usage=record.state.usage,
        changes=tuple(changes),
    )
    await record.add(finished)
    return finished
