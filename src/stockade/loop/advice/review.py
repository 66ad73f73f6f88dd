"""Before a run is accepted as done, the bot is shown once what it really changed.

Small models end a task without looking ("4 data.csv" where a number was asked for). Shown the exact content and asked
to say what it should be, the 1.5B model mends most of these; asked "is this right?" it says yes. A file of several
lines it would copy wrongly, so that is only shown (docs/small-models.md).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from stockade.core.actions import CommandOutput, WriteFile
from stockade.core.changes import Change, FolderLayer
from stockade.core.errors import ActionFailed, UsageError
from stockade.core.events import Nudged, RunStarted
from stockade.core.ports import Reviewer, Sandbox
from stockade.loop.advice import asked, undone, wanted, ways
from stockade.loop.advice.said import Said, quoted
from stockade.loop.advice.undone import Work
from stockade.loop.state import RunState

MAX_REVIEWS = 2
"""The second one only for what is plainly not done: a file that is missing, a syntax error, a failed command."""
MAX_FILES = 8
MAX_CONTENT_BYTES = 300
MAX_TASK_CHARS = 600
SEEN_ACTIONS = 3
_BY_OTHERS = {".git", "__pycache__"}
_NOTHING = "Nothing in the folder has changed so far."


Why = Literal["review", "undone"]
"""Of a nudge by a review; `undone` when something is plainly not done."""


def is_review(nudge: Nudged) -> bool:
    return nudge.why in get_args(Why)


def reviews(state: RunState) -> int:
    return sum(is_review(nudge) for nudge in state.nudges)


async def still_undone(
    started: RunStarted, state: RunState, reviewer: Reviewer | None, sandbox: Sandbox
) -> Sequence[str]:
    """What is plainly wrong or missing, a line each, without what could be done about it."""
    work = await _work(state, reviewer, sandbox) if reviewer is not None else None
    if work is None:
        return []
    left = await undone.facts(started, state, work, sandbox, not_run=False)
    nothing = [_NOTHING] if work.untouched and not asked.may_be_a_question(started.task) else []
    return [*nothing, *(Said.of(line).words.strip() for line in left)]


async def of_changes(
    started: RunStarted, state: RunState, reviewer: Reviewer | None, sandbox: Sandbox
) -> tuple[Why, Said] | None:
    """What to show before a `finish` is accepted, or None when there is nothing to look at.

    A file of one line is always shown, unless it is a number where a number was wanted: having printed it is not having
    compared it with the task. What git keeps for itself is not the bot's work to judge.
    """
    before = reviews(state)
    if reviewer is None or before >= MAX_REVIEWS or (work := await _work(state, reviewer, sandbox)) is None:
        return None
    left = await undone.facts(started, state, work, sandbox)
    plain = wanted.numbers(started.task, work.contents)
    unseen = [path for path, content in work.contents.items() if path not in plain and not _seen(content, state)]
    copies = [] if before else await undone.copies(state, sandbox)
    looked = work.untouched and asked.only_asks(started.task) and bool(state.done)
    if not (left or copies) and (before or looked or not (unseen or work.untouched)):
        return None
    way = await ways.way(started, state, work, sandbox) if left else None
    shown = [*([_NOTHING] if work.untouched else () if before else work.shown), *copies, *left]
    task = f"Task: {started.task[:MAX_TASK_CHARS]}"
    text = "\n".join(["Not accepted yet.", *(Said.of(line).words for line in shown), task])
    proposed = next((said.command for line in left if (said := Said.of(line)).command), "")
    command = way or proposed
    way_on = "That is still to be done. " if command else _ask(work, left, shown, started.task)
    return "undone" if left else "review", Said(f"{text}\n{way_on}", command)


def _ask(work: Work, left: Sequence[str], shown: Sequence[str], task: str) -> str:
    if left:
        return "That is still to be done: do it now. Only if it cannot be done, look why and say so."
    if asked.only_asks(task) and not work.untouched:
        return "The task only asks something: finish with its answer, as it follows from what you have seen."
    if work.untouched:
        return "If the task asks for a change or a file, do that now; if it is only a question, finish with its answer."
    one_line = len(shown) == 1 and not any("\n" in content for content in work.contents.values()) and work.contents
    return (
        "If the task asks for a value, the file must hold the bare value and nothing else: no name, no label, no unit."
        " Say in thought what the exact content should be, then fix the file, or finish if it is exactly that."
        if one_line
        else "If that is all the task asks for, finish. If something is missing, do it."
    )


async def _work(state: RunState, reviewer: Reviewer, sandbox: Sandbox) -> Work | None:
    """None when a layer cannot be read."""
    work, untouched = Work([], {}, [], [], [], untouched=False), bool(state.layers)
    for layer in state.layers:
        try:
            found = reviewer.changes(layer)
        except UsageError:
            return None
        untouched = untouched and layer.mode == "overlay" and not found
        changes = [change for change in found if not _BY_OTHERS & set(change.path.split("/"))]
        moved = _moved(changes)
        work.shown.extend(f"{old} is now {new}" for new, old in moved.items())
        work.deleted.extend(moved.values())
        changes = [change for change in changes if change.path not in moved and change.path not in moved.values()]
        for change in changes[: MAX_FILES - len(work.shown)]:
            content = await _content(layer, change, sandbox)
            if content is not None and not content.strip():
                work.blank.append(change.path)
                content = None
            if content is not None:
                work.contents[change.path] = content
            if change.kind == "deleted":
                work.deleted.append(change.path)
            elif change.entry == "file" and change.kind != "mode" and change.path.endswith(wanted.PROGRAMS):
                work.programs.append(change.path)
            work.shown.append(_in_words(change) if content is None else f"Content of {change.path}: {_quoted(content)}")
        if len(changes) > MAX_FILES:
            work.shown.append(f"and {len(changes) - MAX_FILES} more changes")
    return replace(work, untouched=untouched)


def _moved(changes: Sequence[Change]) -> dict[str, str]:
    """New path to old one, of files that seem to have been moved: one came, one went, and only the suffix or only the
    folder differs. A model that is shown "deleted" and "added" believes that it is not done.
    """
    gone = [change.path for change in changes if change.kind == "deleted" and change.entry == "file"]
    came = [change.path for change in changes if change.kind == "added" and change.entry == "file"]
    found: dict[str, str] = {}
    for new in came:
        like = [old for old in gone if _stem(old) == _stem(new) or old.rpartition("/")[2] == new.rpartition("/")[2]]
        if len(like) == 1 and like[0] not in found.values():
            found[new] = like[0]
    return found if len(found) <= MAX_FILES else {}


def _stem(path: str) -> str:
    """Without what stands behind the last dot of its name."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name.rpartition('.')[0] or name}"


def _seen(content: str, state: RunState) -> bool:
    """Whether the bot has compared it: it wrote it word for word, or was shown these lines by a last action.

    A line alone is not compared because it was printed.
    """
    for entry in state.done[-SEEN_ACTIONS:]:
        action, seen = entry.step.action, entry.observation
        if isinstance(action, WriteFile) and action.content.rstrip("\n") == content:
            return True
        told = seen.output.decode(errors="replace") + seen.wrote if isinstance(seen, CommandOutput) else ""
        if "\n" in content and content in told:
            return True
    return False


async def _content(layer: FolderLayer, change: Change, sandbox: Sandbox) -> str | None:
    """A small text file as the bot left it, without its last line break; None for everything else."""
    small = change.entry == "file" and change.size <= MAX_CONTENT_BYTES and not change.binary
    if not small or change.kind in ("deleted", "mode"):
        return None
    path = f"{layer.inside}/{change.path}"
    try:
        result = await sandbox.exec(["cat", "--", path], timeout_s=5, max_output_bytes=MAX_CONTENT_BYTES)
        text = quoted(result.stdout.decode().rstrip("\n"))
    except (ActionFailed, UnicodeDecodeError):
        return None
    return text if result.exit_code == 0 else None


def _quoted(content: str) -> str:
    """One line in quotes: so the model sees what is too much in it, '4 data.csv' for a number; without, it does not."""
    return f"\n{content}" if "\n" in content else repr(content)


def _in_words(change: Change) -> str:
    if change.kind == "mode":
        runs = change.entry == "file" and change.mode & 0o111
        return f"{change.path[:200]!r} has mode {change.mode:o} now{', it is executable' if runs else ''}"
    size = f", {change.size} bytes" if change.entry == "file" and change.kind != "deleted" else ""
    return f"{change.kind}: {change.path[:200]!r}{size}"
