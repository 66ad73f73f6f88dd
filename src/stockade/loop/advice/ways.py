"""Commands that do what is left of a task, where there is one that surely does: a small model copies them."""

import re
import shlex

from stockade.core.actions import CommandOutput, EditFile, Shell, WriteFile
from stockade.core.events import RunStarted
from stockade.core.ports import Sandbox
from stockade.loop.advice import undone, wanted
from stockade.loop.advice.undone import PROGRAM, Work
from stockade.loop.advice.wanted import FILE_NAME
from stockade.loop.state import RunState

MAX_KEPT_LINES = 50
_CHANGES = re.compile(
    r"[>\n]|^\s*(?:cd|rm|mv|cp|mkdir|touch|unzip|zip|chmod|ln|git\s+(?:add|commit|init|tag|checkout|branch|mv|rm))\b"
    r"|\btar\s+-?\w*[xc]|\bsed\s+-\w*i|\btee\b|-exec\b|-delete\b|\bxargs\b"
)


async def way(started: RunStarted, state: RunState, work: Work, sandbox: Sandbox) -> str | None:
    """What to run next, when something is plainly not done; None where that is for the model to find."""
    if (again := _again(state, work, started.task)) is not None:
        return again
    missing = await undone.missing(started.task, work.deleted, sandbox)
    for name in missing:
        like = [path for path in work.contents if path.rpartition("/")[2] == name.rpartition("/")[2]]
        if len(like) == 1 and "/" not in name:
            return f"{'cp' if like[0] in FILE_NAME.findall(started.task) else 'mv'} {shlex.quote(like[0])} {name}"
    no_number = wanted.for_a_number(started.task, work.contents)
    into = missing if len(missing) == 1 else no_number if len(no_number) == 1 else []
    return kept_in(into[0], state, started.task, number=bool(no_number)) if into else None


def _again(state: RunState, work: Work, task: str) -> str | None:
    """The command that failed before the bot mended what it had to mend, or the one by which the task runs a program
    that was changed and has not run since.
    """
    failed: str | None = None
    mended = False
    for entry in state.done:
        action, seen = entry.step.action, entry.observation
        if isinstance(action, Shell) and isinstance(seen, CommandOutput):
            if seen.exit_code:
                failed, mended = action.command.strip(), False
            elif action.command.strip() == failed:
                failed = None
            else:
                mended = mended or undone.may_write(action)
        else:
            mended = mended or isinstance(action, WriteFile | EditFile)
    if failed is not None and mended and "\n" not in failed and PROGRAM.search(failed):
        return failed
    named = PROGRAM.findall(task)
    return named[0] if len(set(named)) == 1 and undone.unrun(work.programs, state) else None


async def to_be_kept(started: RunStarted, state: RunState, sandbox: Sandbox) -> str | None:
    """A command that puts what was just printed into the one file that the task names and that is not there."""
    missing = await undone.missing(started.task, (), sandbox)
    return kept_in(missing[0], state, started.task) if len(missing) == 1 else None


def kept_in(path: str, state: RunState, task: str, *, number: bool = False) -> str | None:
    """The last command, if it only printed something short, with its output into `path`. `number`: one and no more."""
    for entry in reversed(state.done):
        action, seen = entry.step.action, entry.observation
        if not isinstance(action, Shell) or not isinstance(seen, CommandOutput):
            continue
        printed = seen.output.decode(errors="replace").strip()
        short = 0 < len(printed.splitlines()) <= MAX_KEPT_LINES
        if seen.exit_code or not short or _CHANGES.search(action.command):
            return None
        if number and not wanted.is_number(printed):
            return None
        alone = f" | {wanted.UNCOUNTED}" if wanted.wants_no_count(task, printed) else ""
        return f"{action.command.strip()}{alone} > {path}"
    return None
