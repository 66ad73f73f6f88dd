"""How a run ends, by name: status, reason and verification are three separate things."""

from dataclasses import dataclass

from stockade.core.errors import (
    HookFailed,
    ModelFailed,
    PolicyNotEnforceable,
    SandboxFailed,
    StockadeError,
    ToolsUnavailable,
    UsageError,
)
from stockade.core.events import RunFinished, Status, StopReason
from stockade.core.ports import Clock, Reviewer
from stockade.loop.record import Record
from stockade.loop.verdict import changed_tests
from stockade_sandbox.results import Change

_REASONS: dict[type[StockadeError], StopReason] = {
    HookFailed: "hook", UsageError: "usage", ToolsUnavailable: "tools", ModelFailed: "model", SandboxFailed: "sandbox",
    PolicyNotEnforceable: "sandbox",
}  # fmt: skip
FORESEEN = tuple(_REASONS)
"""What ends a run and is no bug."""


@dataclass(frozen=True, slots=True)
class Ending:
    """`detail` is for the user; `verified` is None when no check was asked for."""

    status: Status
    reason: StopReason
    detail: str = ""
    answer: str | None = None
    verified: bool | None = None


def failed(error: StockadeError) -> Ending:
    """The ending of one of the FORESEEN."""
    reason = next(reason for kind, reason in _REASONS.items() if isinstance(error, kind))
    return Ending("failed", reason, str(error))


async def close(record: Record, reviewer: Reviewer | None, clock: Clock, ending: Ending) -> RunFinished:
    """The last event: how it ended and what it changed. Changes that cannot be read are named, and do not hide it."""
    started = record.state.started
    changes: list[Change] = []
    seals: list[str | None] = []
    detail = ending.detail
    for layer in record.state.layers:
        seals.append(None)
        try:
            changes.extend(reviewer.changes(layer) if reviewer else ())
            seals[-1] = reviewer.seal(layer) if reviewer else None
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
    await record.add(finished)
    return finished
