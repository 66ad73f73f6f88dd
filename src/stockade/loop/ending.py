"""How a run ends, by name: status, reason and verification are three separate things."""

from dataclasses import dataclass

from stockade.core.budget import exhausted
from stockade.core.events import RunStarted, Status, StopReason
from stockade.loop import stuck
from stockade.loop.state import RunState

MAX_UNREADABLE = 3
_BOUNDS: dict[str, StopReason] = {"turns": "turns", "time": "time", "tokens": "tokens", "cost": "cost"}


@dataclass(frozen=True, slots=True)
class Ending:
    """`detail` is for the person; `verified` is None when no check was asked for."""

    status: Status
    reason: StopReason
    detail: str = ""
    answer: str | None = None
    verified: bool | None = None


def over(started: RunStarted, state: RunState, now: float) -> Ending | None:
    """Why the run must stop before its next turn, or None: a budget, a loop, unreadable answers."""
    verified = None if started.check is None else False
    if (bound := exhausted(started.budget, state.spent(now))) is not None:
        return Ending("stopped", _BOUNDS[bound.split(":")[0]], bound, verified=verified)
    if state.unreadable >= MAX_UNREADABLE:
        words = f"{state.unreadable} answers in a row held no action"
        return Ending("stopped", "unreadable", words, verified=verified)
    if (loop := stuck.is_loop(state)) is not None:
        return Ending("stopped", "loop", loop, verified=verified)
    return None
