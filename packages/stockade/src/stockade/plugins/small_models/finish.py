"""What is plainly not done when a bot says that it is: found out without asking the model, told as a fact.

A small model ends after its first command without a look at what came of it, gives up after its first error, or says
"The task is done." where an answer was wanted. Each rule speaks once in a task.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from stockade.core.actions import Failed, Finish, Refused, Shell
from stockade.core.errors import ActionFailed, UsageError
from stockade.extend import HookContext
from stockade.plugins.small_models.task import Task
from stockade_sandbox.results import Change, CommandOutput

MAX_FILES = 8
DO_IT = "That is still to be done: do it now, with a command."
_SHOWN_BYTES = 400
_TASK_CHARS = 600
_ERROR_CHARS = 300
_COMPLAINT = re.compile(rb"^[\w./-]+: .+$", re.MULTILINE)
"""As programs write an error: who, and what. Output is one stream, in which no other mark tells it."""
_NUMBERS = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)")
_MISSING = (
    'cd -- "$1" && shift && for f; do [ -e "$f" ] || [ -n "$(find . -name "${f##*/}" | head -n 1)" ] || echo "$f"; done'
)
_SHOW = 'cd -- "$1" && grep -Iq . -- "$3" && head -c "$2" -- "$3"'


@dataclass(frozen=True, slots=True)
class Work:
    """A finish, and what the rules look at. `changes` is None where no layer can be read."""

    ctx: HookContext
    finish: Finish
    task: Task
    changes: Sequence[Change] | None

    async def exec(self, *argv: str) -> str | None:
        """What a program printed in the shell's folder, None where it failed."""
        try:
            done = await self.ctx.exec(argv, timeout_s=5, max_output_bytes=4096)
        except ActionFailed:
            return None
        return None if done.exit_code else done.stdout.decode(errors="replace").strip()

    @property
    def cwd(self) -> str:
        return self.ctx.state.cwd or "."


async def failed(work: Work) -> str | None:
    """The last thing done ended with an error, or counted nothing because of one."""
    last = work.ctx.state.done[-1] if work.ctx.state.done else None
    seen = last.observation if last is not None else None
    if isinstance(seen, Failed):
        return f"Your last action failed: {seen.message[:_ERROR_CHARS]}\nDo it in another way."
    if last is None or not isinstance(seen, CommandOutput) or not isinstance(last.step.action, Shell):
        return None
    errors = b"\n".join(_COMPLAINT.findall(seen.output))
    in_vain = seen.exit_code or _COMPLAINT.sub(b"", seen.output).strip() == b"0"
    if not (seen.timed_out or (in_vain and errors)):
        return None
    why = errors.decode(errors="replace")[-_ERROR_CHARS:] or "it took too long"
    command = last.step.action.command.strip()[:_ERROR_CHARS]
    return f"Your last command has failed, and you have not done it in another way:\n{command}\n{why}\nDo that now."


async def missing(work: Work) -> str | None:
    """The task names a file or a new folder, and there is none."""
    gone = {one.path for one in work.changes or () if one.kind == "deleted"}
    names = [name for name in work.task.files if name not in gone and name.rpartition("/")[2] not in gone]
    if work.changes is None or work.task.asks or not names:
        return None
    lacking = (await work.exec("sh", "-c", _MISSING, "sh", work.cwd, *names[:MAX_FILES]) or "").splitlines()
    return f"The task speaks of {', '.join(lacking)}, and there is no such file." if lacking else None


async def gone(work: Work) -> str | None:
    """A file that the task names is no longer there, and the task speaks of no file that goes."""
    deleted = [one.path for one in work.changes or () if one.kind == "deleted" and one.entry == "file"]
    named = [path for path in deleted if path in work.task.files]
    return f"{', '.join(named[:MAX_FILES])} was there before, and is gone." if named and not work.task.removes else None


async def content(ctx: HookContext, path: str) -> str | None:
    """How a text file begins, in a sentence; None for any other, and for one that holds nothing."""
    argv = ["sh", "-c", _SHOW, "sh", ctx.state.cwd or ".", str(_SHOWN_BYTES), path]
    try:
        read = await ctx.exec(argv, timeout_s=5, max_output_bytes=2 * _SHOWN_BYTES)
    except ActionFailed:
        return None
    text = read.stdout.decode(errors="replace")
    if read.exit_code or not text.strip() or not all(char.isprintable() or char in "\n\t" for char in text):
        return None
    how = "begins with" if len(read.stdout) == _SHOWN_BYTES else "holds"
    return f"{path} {how}:\n{text.rstrip()}"


def _names(word: str, path: str) -> bool:
    return path.rpartition("/")[2] in word or ("*" in word and fnmatch(path, word))


async def empty(work: Work) -> str | None:
    """A file that the task names holds nothing."""
    if work.task.empties:
        return None
    names = [one.path for one in work.changes or () if one.kind in ("added", "modified") and one.entry == "file"
             and not one.size and any(_names(name, one.path) for name in work.task.files)]  # fmt: skip
    return f"{', '.join(names[:MAX_FILES])}: there is nothing in it." if names else None


async def value(work: Work) -> str | None:
    """The task asks for an answer, and this is none; or for the bare answer, and this is more."""
    answer = work.finish.answer
    hollow = work.task.asks and work.task.hollow(answer)
    if not hollow and not (work.task.bare and len(answer.split()) > 3):
        return None
    if not work.ctx.state.done:
        return "That is no answer yet: find it out with a command, then finish with the answer itself."
    seen = work.ctx.state.done[-1].observation
    printed = seen.output.decode(errors="replace").strip()[:_SHOWN_BYTES] if isinstance(seen, CommandOutput) else ""
    shown = f" The last command printed:\n{printed}\n" if printed else " "
    if hollow:
        return f"That is no answer.{shown}Finish with the answer itself; if you do not know it yet, find it out."
    return f"The task wants the bare answer.{shown}Finish with that alone, without any other word."


async def unfounded(work: Work) -> str | None:
    """The answer is a number that no command has printed."""
    numbers = _NUMBERS.findall(work.finish.answer)
    printed = [entry.observation.output.decode(errors="replace") for entry in work.ctx.state.done
               if isinstance(entry.observation, CommandOutput)]  # fmt: skip
    if not work.task.asks or len(numbers) != 1 or not printed:
        return None
    if any(number in _NUMBERS.findall(text) for number in numbers for text in printed):
        return None
    return f"No command has printed {numbers[0]}. Find it out with a command, then finish with what that prints."


async def zero(work: Work) -> str | None:
    """The answer is that there is nothing, as the last command found it: most often its pattern is the wrong one."""
    last = work.ctx.state.done[-1] if work.ctx.state.done else None
    if not work.task.asks or last is None or not isinstance(last.observation, CommandOutput):
        return None
    printed = last.observation.output.decode(errors="replace").strip()
    if not isinstance(last.step.action, Shell) or printed not in ("", "0"):
        return None
    if _NUMBERS.findall(work.finish.answer) != ["0"]:
        return None
    command = last.step.action.command.strip()[:_ERROR_CHARS]
    return (
        f"Your command has found nothing:\n{command}\nMostly that is the command's fault. Look at what is there,"
        " then write another command for it; finish with nothing only if that finds nothing either."
    )


Rule = Callable[[Work], Awaitable[str | None]]
RULES: tuple[tuple[str, str, Rule, str], ...] = (
    ("failed", "failed", failed, ""),
    ("files", "missing", missing, DO_IT),
    ("files", "gone", gone, DO_IT),
    ("files", "empty", empty, DO_IT),
    ("value", "value", value, ""),
    ("found", "unfounded", unfounded, ""),
    ("found", "zero", zero, ""),
)
"""Family, name, rule, and what its words end with. One rule of a family speaks in a task."""
WARMER_AFTER = ("unfounded", "zero")
"""What they say is no use to a model that says the same again."""


async def objection(ctx: HookContext, finish: Finish) -> tuple[str, str] | None:
    """The first rule that has not spoken in this task and does not hold, and its words.

    After a user's No the bot may end as it likes, and so it may where it says that it cannot do the task, but for an
    error that it has not tried to mend.
    """
    if any(isinstance(entry.observation, Refused) and entry.observation.by == "user" for entry in ctx.state.done):
        return None
    said = {one.rule for one in ctx.state.injected}
    spoken = {family for family, name, _, _ in RULES if name in said}
    try:
        changes = ctx.changes() if ctx.reviewer is not None and ctx.state.layers else None
    except UsageError:
        changes = None
    work = Work(ctx, finish, Task(ctx.started.task), changes)
    for family, name, rule, ends in RULES if not finish.gave_up else RULES[:1]:
        if family not in spoken and (words := await rule(work)) is not None:
            task = f"The task: {ctx.started.task[:_TASK_CHARS]}"
            return name, "\n".join(filter(None, (words, task, ends)))
    return None
