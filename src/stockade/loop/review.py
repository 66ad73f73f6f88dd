"""Before a run is accepted as done, the bot is shown once what it really changed.

Small models end a task without looking ("4 data.csv" where a number was asked for). Shown the exact content and asked
to say what it should be, the 1.5B model mends most of these; asked "is this right?" it says yes. A file of several
lines it would copy wrongly, so that is only shown (docs/small-models.md).
"""

import re
from collections.abc import Sequence

from stockade.core.actions import CommandOutput, Shell, WriteFile
from stockade.core.changes import Change, FolderLayer
from stockade.core.errors import ActionFailed, UsageError
from stockade.core.events import RunStarted
from stockade.core.ports import Reviewer, Sandbox
from stockade.loop.state import RunState
from stockade.loop.wrote import wrote_since

MAX_FILES = 8
MAX_CONTENT_BYTES = 300
MAX_TASK_CHARS = 600
SEEN_ACTIONS = 3
_PROGRAMS = (".py", ".sh", ".pl", ".js", ".rb")
_FILE_NAME = re.compile(r"(?<![\w./:@*-])\w[\w/-]+(?:\.\w+)*\.(?!com\b|org\b|net\b|io\b)[a-z]\w{1,4}\b(?![\w/*])")
_NOTHING = (
    "Before the end: nothing in the folder has changed so far. If the task asks for a change or for a file, do that"
    " now; if it is only a question, finish with its answer."
)


async def of_changes(started: RunStarted, state: RunState, reviewer: Reviewer | None, sandbox: Sandbox) -> str | None:
    """What to show before a first `finish` is accepted, or None when there is nothing to look at.

    A file of one line is always shown: having printed it is not having compared it with the task. What git keeps for
    itself is not the bot's work to judge.
    """
    if reviewer is None or any(nudge.why == "review" for nudge in state.nudges):
        return None
    shown: list[str] = []
    contents: list[str] = []
    deleted: list[str] = []
    programs: list[str] = []
    untouched = bool(state.layers)
    for layer in state.layers:
        try:
            found = reviewer.changes(layer)
        except UsageError:
            return None
        untouched = untouched and layer.mode == "overlay" and not found
        changes = [change for change in found if ".git" not in change.path.split("/")]
        for change in changes[: MAX_FILES - len(shown)]:
            content = await _content(layer, change, sandbox)
            contents += [] if content is None else [content]
            if change.kind == "deleted":
                deleted.append(change.path)
            elif change.entry == "file" and change.path.endswith(_PROGRAMS):
                programs.append(change.path)
            shown.append(_in_words(change) if content is None else f"Content of {change.path}: {_quoted(content)}")
        if len(changes) > MAX_FILES:
            shown.append(f"and {len(changes) - MAX_FILES} more changes")
    wrong = await wrote_since(sandbox, started.at, contents=False) if state.layers else ""
    shown += [wrong] if wrong else []
    missing = await _missing(started.task, deleted, sandbox) if state.layers else []
    if untouched:
        return _NOTHING
    failed, unrun = _failed(state), _unrun(programs, state)
    if not (missing or wrong or failed or unrun) and all(_seen(content, state) for content in contents):
        return None
    shown += [f"Your command `{command}` has failed, and you have not done it again." for command in failed]
    shown += [f"You have not run {name} since you changed it: run it, and compare what it prints." for name in unrun]
    shown += [f"The task speaks of {name}, and there is no such file." for name in missing]
    ask = (
        "Say in thought what the exact content of the file should be, then fix it, or finish if it is exactly that."
        if len(contents) == len(shown) == 1 and not any("\n" in content for content in contents)
        else "If that is all the task asks for, finish. If something is missing, do it."
    )
    opening = "Not accepted yet."
    return "\n".join([opening, *shown, f"Task: {started.task[:MAX_TASK_CHARS]}", ask])


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


def _failed(state: RunState) -> list[str]:
    """The last command that failed, as a list, unless one of the same name has succeeded afterwards."""
    last: list[str] = []
    for entry in state.done:
        action, seen = entry.step.action, entry.observation
        if isinstance(action, Shell) and isinstance(seen, CommandOutput):
            if seen.exit_code:
                last = [action.command]
            elif last and action.command.split()[:1] == last[0].split()[:1]:
                last = []
    return [command[:200] for command in last]


def _unrun(programs: Sequence[str], state: RunState) -> list[str]:
    """Which of these changed programs no command has run since the bot last named them in another action."""
    found: list[str] = []
    for path in programs:
        name = re.escape(path.rpartition("/")[2])
        run = re.compile(rf"(?:\b(?:python3?|bash|sh|perl|node|ruby|pytest)\s[^;|&\n]*|\./[^;|&\s]*){name}\b")
        touched = False
        for entry in state.done:
            action = entry.step.action
            if isinstance(action, Shell) and run.search(action.command):
                touched = False
            elif name.replace("\\", "") in action.model_dump_json():
                touched = True
        found += [path] if touched else []
    return found


async def _missing(task: str, deleted: Sequence[str], sandbox: Sandbox) -> list[str]:
    """The files that the task names and that are not there, though nobody has deleted them."""
    names = [name for name in dict.fromkeys(_FILE_NAME.findall(task)) if name not in deleted][:MAX_FILES]
    found: list[str] = []
    for name in names:
        try:
            there = await sandbox.exec(["test", "-e", name], timeout_s=5)
        except ActionFailed:
            return []
        found += [name] if there.exit_code == 1 else []
    return found


def _quoted(content: str) -> str:
    return f"\n{content}" if "\n" in content else repr(content)


async def _content(layer: FolderLayer, change: Change, sandbox: Sandbox) -> str | None:
    """A small text file as the bot left it, without its last line break; None for everything else."""
    small = change.entry == "file" and 0 < change.size <= MAX_CONTENT_BYTES and not change.binary
    if not small or change.kind == "deleted":
        return None
    path = f"{layer.inside}/{change.path}"
    try:
        result = await sandbox.exec(["cat", "--", path], timeout_s=5, max_output_bytes=MAX_CONTENT_BYTES)
        text = result.stdout.decode().rstrip("\n")
    except (ActionFailed, UnicodeDecodeError):
        return None
    return text if result.exit_code == 0 and text else None


def _in_words(change: Change) -> str:
    size = f", {change.size} bytes" if change.entry == "file" and change.kind != "deleted" else ""
    return f"{change.kind}: {change.path[:200]!r}{size}"
