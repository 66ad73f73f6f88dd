"""What is plainly not done when a bot says that it is: found out without asking the model.

Files that the task names and that are not there, errors of syntax, commands that failed and were given up, programs
that were changed and not run; and files that the bot wrote by hand and that are copies of another.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath as Path

from stockade.core.actions import RUN_THIS, Action, CommandOutput, FileWritten, Shell, WriteFile
from stockade.core.errors import ActionFailed
from stockade.core.events import RunStarted
from stockade.core.ports import Sandbox
from stockade.loop.advice import committed, wanted
from stockade.loop.advice.said import quoted
from stockade.loop.advice.searches import found_nothing
from stockade.loop.advice.wanted import FILE_NAME
from stockade.loop.advice.wrote import wrote_since
from stockade.loop.state import RunState

MAX_FILES = 8
_ALL = re.compile(r"\b(?:all|every|each)\b", re.IGNORECASE)
PROGRAM = re.compile(r"\b(?:python3|bash|sh|node|perl|ruby) [\w./-]+\.\w+\b")
"""A command that runs a program, as tasks name it."""
_WRITES = re.compile(r"\bsed\s+-\w*i|(?<![0-9&])>|\btee\b|\bpatch\b|\bperl\s+-\w*i")
_ELSEWHERE = 'find . -xdev -name .git -prune -o -name "$1" -print 2>/dev/null | head -n 8'
_COPIES = """
for f; do
  [ -s "$f" ] && [ -f "$f" ] && [ ! -L "$f" ] || continue
  size=$(wc -c < "$f")
  find . -xdev -name .git -prune -o -type f ! -samefile "$f" \\( -size "${size}c" -o -size "$((size + 1))c" \\) \\
    -exec sh -c 'head -c "$1" -- "$3" | cmp -s -- - "$2" && [ -z "$(tail -c "+$(($1 + 1))" -- "$3")" ]' \\
      sh "$size" "$f" {} \\; -print |
    head -n 1 | while IFS= read -r other; do echo "$f now holds exactly what ${other#./} holds."; done
done
"""
"""A line break more at the end makes no difference."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a bot has done to its folders, by paths in them. `contents`: of the small text files it made
    or changed; `blank`: those that hold nothing."""

    shown: list[str]
    contents: dict[str, str]
    deleted: list[str]
    programs: list[str]
    blank: list[str]
    untouched: bool


async def facts(
    started: RunStarted, state: RunState, work: Work, sandbox: Sandbox, *, not_run: bool = True
) -> list[str]:
    """What is plainly not done, in words for the bot. `not_run`: programs that were changed and not run too."""
    if not state.layers:
        return []
    wrong = await wrote_since(sandbox, started.at, contents=False)
    return [
        *([quoted(wrong)] if wrong else []),
        *(f"Your command `{command}` has failed, and you have not done it again." for command in _failed(state)),
        *(
            f"You have not run {name} since you changed it: run it, and compare what it prints."
            for name in (unrun(work.programs, state) if not_run and not ran_as_named(started.task, state) else [])
        ),
        *(
            f"The task speaks of {name}, and there is no such file."
            for name in await missing(started.task, work.deleted, sandbox)
        ),
        *await _left_over(started.task, work.deleted, sandbox),
        *(f"{name} holds nothing." for name in work.blank if name in _to_be_filled(started.task)),
        *wanted.unlike(started.task, work.contents),
        *await committed.lacking(started.task, started.at, sandbox),
    ]


def _to_be_filled(task: str) -> list[str]:
    return [] if wanted.TO_EMPTY.search(task) else FILE_NAME.findall(task)


async def _left_over(task: str, deleted: Sequence[str], sandbox: Sandbox) -> list[str]:
    """Files beside those that went, of the same kind, where the task speaks of all of that kind."""
    kinds = dict.fromkeys((path.rpartition("/")[0] or ".", Path(path).suffix) for path in deleted if Path(path).suffix)
    found: list[str] = []
    for folder, suffix in list(kinds)[:MAX_FILES] if _ALL.search(task) else ():
        if not re.search(rf"(?<!\w){re.escape(suffix)}\b|\b{re.escape(suffix[1:])}\b", task):
            continue
        argv = ["find", folder, "-maxdepth", "1", "-type", "f", "-name", f"*{suffix}"]
        try:
            there = await sandbox.exec(argv, timeout_s=5, max_output_bytes=4096)
        except ActionFailed:
            return []
        found += sorted(path.removeprefix("./") for path in there.stdout.decode(errors="replace").splitlines())
    more = f" and {len(found) - MAX_FILES} more" if len(found) > MAX_FILES else ""
    return [f"Still there: {', '.join(found[:MAX_FILES])}{more}."] if found else []


async def copies(state: RunState, sandbox: Sandbox) -> list[str]:
    """Of the files that the bot wrote word by word, those that hold what another file holds: it meant to change it."""
    done = [entry.step.action for entry in state.done if isinstance(entry.observation, FileWritten)]
    written = list(dict.fromkeys(action.path for action in done if isinstance(action, WriteFile)))[-MAX_FILES:]
    try:
        found = await sandbox.exec(["sh", "-c", _COPIES, "sh", *written], timeout_s=5) if written else None
        return found.stdout.decode().splitlines() if found is not None and found.exit_code == 0 else []
    except (ActionFailed, UnicodeDecodeError):
        return []


def _failed(state: RunState) -> list[str]:
    """The last command that failed, as a list, unless one of the same name has succeeded afterwards, or what it was
    told to run instead, or itself before: a rename that is done again fails.
    """
    last, instead = "", ""
    succeeded: set[str] = set()
    for entry in state.since_anew:
        action, seen = entry.step.action, entry.observation
        if not isinstance(action, Shell) or not isinstance(seen, CommandOutput):
            continue
        command = action.command.strip()
        if seen.exit_code and not found_nothing(command, seen):
            last, instead = "" if command in succeeded else command, seen.hint.partition(RUN_THIS)[2].strip()
            continue
        succeeded.add(command)
        if command == instead or command.split()[:1] == last.split()[:1]:
            last = ""
    return [quoted(last[:200])] if last else []


def unrun(programs: Sequence[str], state: RunState) -> list[str]:
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
            elif name.replace("\\", "") in action.model_dump_json() and may_write(action):
                touched = True
        found += [path] if touched else []
    return found


def ran_as_named(task: str, state: RunState) -> bool:
    """Whether the one command by which the task runs a program has succeeded since the bot last wrote anything."""
    named = set(PROGRAM.findall(task))
    well = False
    for entry in state.done:
        action, seen = entry.step.action, entry.observation
        if (
            isinstance(action, Shell)
            and isinstance(seen, CommandOutput)
            and named
            and named <= {action.command.strip()}
        ):
            well = not seen.exit_code
        elif not isinstance(action, Shell) or may_write(action):
            well = False
    return well


def may_write(action: Action) -> bool:
    return _WRITES.search(action.command) is not None if isinstance(action, Shell) else True


async def missing(task: str, deleted: Sequence[str], sandbox: Sandbox) -> list[str]:
    """The files that the task names and that are not there, though nobody has deleted them.

    One that is named without its folder may be in any that the task names too.
    """
    names = FILE_NAME.findall(task)
    found: list[str] = []
    for name in [name for name in dict.fromkeys(names) if name not in deleted][:MAX_FILES]:
        try:
            there = await sandbox.exec(["test", "-e", name], timeout_s=5)
            if there.exit_code == 1 and not await _is_in_named_folder(name, task, names, sandbox):
                found.append(name)
        except ActionFailed:
            return []
    return found


async def _is_in_named_folder(name: str, task: str, names: Sequence[str], sandbox: Sandbox) -> bool:
    if "/" in name:
        return False
    elsewhere = await sandbox.exec(["sh", "-c", _ELSEWHERE, "sh", name], timeout_s=5)
    paths = [path.removeprefix("./") for path in elsewhere.stdout.decode(errors="replace").splitlines()]
    folders = [path.rpartition("/")[0].rpartition("/")[2] for path in paths if path not in names]
    return any(folder and re.search(rf"\b{re.escape(folder)}\b", task) for folder in folders)
