"""The first part of a run, up to the end of one of its turns, as the beginning of another."""

from collections.abc import Sequence

from stockade.core.changes import FolderLayer
from stockade.core.errors import UsageError
from stockade.core.events import (
    ChangesApplied,
    ChangesDiscarded,
    ChangesUndone,
    ModelAnswered,
    ModelStarted,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    SandboxStarted,
)

_BETWEEN = (RunFinished, RunResumed, ChangesApplied, ChangesUndone, ChangesDiscarded, SandboxStarted, ModelStarted)


def up_to(history: Sequence[RunEvent], turn: int) -> list[RunEvent]:
    """The events up to the end of `turn`; 0 is before the first. UsageError when there is no such turn."""
    last = max((event.turn for event in history if isinstance(event, ModelAnswered)), default=0)
    if not 0 <= turn <= last:
        raise UsageError(f"the run has no turn {turn}: it has {last}", f"--to 0 to {last}")
    end = next((place for place, event in enumerate(history) if getattr(event, "turn", 0) > turn), len(history))
    while end > 1 and isinstance(history[end - 1], _BETWEEN):
        end -= 1
    return list(history[:end])


def branch(
    events: Sequence[RunEvent], run_id: str, turn: int, layers: tuple[FolderLayer, ...], now: float
) -> list[RunEvent]:
    """The same events as those of run `run_id`, which writes to `layers`."""
    made: list[RunEvent] = []
    for event in events:
        match event:
            case RunStarted():
                origin = {"run_id": run_id, "parent": event.run_id, "parent_turn": turn, "at": now}
                made.append(event.model_copy(update=origin))
            case SandboxStarted():
                made.append(event.model_copy(update={"layers": layers}))
            case _:
                made.append(event)
    return made
