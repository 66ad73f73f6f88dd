"""Before a run is accepted as done, the bot is shown once what it really changed.

Small models end a task without looking ("4 data.csv" where a number was asked for). Shown the exact content and asked
to say what it should be, the 1.5B model mends most of these; asked "is this right?" it says yes. A file of several
lines it would copy wrongly, so that is only shown (docs/small-models.md).
"""

from stockade.core.changes import Change, FolderLayer
from stockade.core.errors import ActionFailed, UsageError
from stockade.core.events import RunStarted
from stockade.core.ports import Reviewer, Sandbox
from stockade.loop.state import RunState

MAX_FILES = 8
MAX_CONTENT_BYTES = 300
MAX_TASK_CHARS = 600


async def of_changes(started: RunStarted, state: RunState, reviewer: Reviewer | None, sandbox: Sandbox) -> str | None:
    """What to show before a first `finish` is accepted, or None when there is nothing to look at."""
    if reviewer is None or any(nudge.why == "review" for nudge in state.nudges):
        return None
    shown: list[str] = []
    exact = 0
    for layer in state.layers:
        try:
            changes = reviewer.changes(layer)
        except UsageError:
            continue
        for change in changes[: MAX_FILES - len(shown)]:
            content = await _content(layer, change, sandbox)
            exact += content is not None and "\n" not in content
            shown.append(f"Content of {change.path}: {content}" if content is not None else _in_words(change))
        if len(changes) > MAX_FILES:
            shown.append(f"and {len(changes) - MAX_FILES} more changes")
    if not shown:
        return None
    ask = (
        "Say in thought what the exact content of the file should be, then fix it, or finish if it is exactly that."
        if exact == len(shown)
        else "If that is all the task asks for, finish. If something is missing, do it."
    )
    return "\n".join(["Not accepted yet.", *shown, f"Task: {started.task[:MAX_TASK_CHARS]}", ask])


async def _content(layer: FolderLayer, change: Change, sandbox: Sandbox) -> str | None:
    """A small text file as the bot left it, quoted; None for everything else."""
    small = change.entry == "file" and 0 < change.size <= MAX_CONTENT_BYTES and not change.binary
    if not small or change.kind == "deleted":
        return None
    path = f"{layer.inside}/{change.path}"
    try:
        result = await sandbox.exec(["cat", "--", path], timeout_s=5, max_output_bytes=MAX_CONTENT_BYTES)
        text = result.stdout.decode().rstrip("\n")
    except (ActionFailed, UnicodeDecodeError):
        return None
    if result.exit_code != 0 or not text:
        return None
    return repr(text) if "\n" not in text else f"\n{text}"


def _in_words(change: Change) -> str:
    size = f", {change.size} bytes" if change.entry == "file" and change.kind != "deleted" else ""
    return f"{change.kind}: {change.path[:200]!r}{size}"
