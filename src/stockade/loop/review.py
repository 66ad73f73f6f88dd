"""Before a run is accepted as done, the bot is shown once what it really changed.

Small models end a task without looking ("4 data.csv" where a number was asked for). One more turn is cheap beside that.
"""

from stockade.core.errors import StockadeError
from stockade.core.events import RunStarted
from stockade.core.ports import Reviewer
from stockade.loop.state import RunState

MAX_FILES = 6
MAX_CHARS = 900


def of_changes(started: RunStarted, state: RunState, reviewer: Reviewer | None) -> str | None:
    """What to show before a first `finish` is accepted, or None when there is nothing to look at."""
    if reviewer is None or any(nudge.why == "review" for nudge in state.nudges):
        return None
    shown: list[str] = []
    for layer in state.layers:
        try:
            changes = [change for change in reviewer.changes(layer) if change.entry == "file"][:MAX_FILES]
            shown += [_cut(reviewer.unified_diff(layer, change), MAX_CHARS // len(changes)) for change in changes]
        except StockadeError:
            return None
    if not shown:
        return None
    changed = "\n".join(shown)
    return (
        f"This is what you changed so far:\n{changed}\n"
        f"The task was: {_cut(started.task, MAX_CHARS)}\n"
        "If every file holds exactly what the task asks for, and nothing more, finish again. If not, correct it first."
    )


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n[...]"
