"""Commands that surely do something else than what was meant: refused once, with the command that does it.

Told afterwards a small model goes on from what it has spoiled; told before, it runs what is proposed. A proposal has no
double quotes where that can be: in a JSON answer a small model ends its text at the first one.
"""

import csv
import re
from collections.abc import Awaitable, Callable

from stockade.core.actions import Shell
from stockade.core.errors import ActionFailed
from stockade.extend import HookContext
from stockade.plugins.small_models.commands import Program, pipelines
from stockade.plugins.small_models.commands import objection as miscount
from stockade.plugins.small_models.finish import content
from stockade.plugins.small_models.task import Task
from stockade_sandbox.results import CommandOutput

RUN_THIS = "Run this instead: "
_FIRST_BYTES = 2000
_ERROR_CHARS = 300
_FIELDS = re.compile(r"\$[1-9]")
_SEPARATED = re.compile(r"\s-F|\bFS\s*=|--field-separator|--csv|\bsplit\(")
_PRINTS_FIELDS = re.compile(r"\bprint\b[^;}]*\$\d+\s*,\s*\$\d")
_JOINED = re.compile(r"\bOFS\b|['\"],['\"]|printf")
_WAITS = {"sleep", "wait"}
"""Programs after which the same command may come out otherwise."""

Rule = Callable[[HookContext, str, list[list[Program]]], Awaitable[str | None]]


async def separator(ctx: HookContext, command: str, lines: list[list[Program]]) -> str | None:
    """awk splits at blanks and writes blanks, and this file is split at commas."""
    if len(lines) != 1 or (first := lines[0][0]).name != "awk" or not _FIELDS.search(command):
        return None
    path, (out,) = first.words[-1], (lines[0][-1].writes or [""])[:1]
    reads = path.endswith(".csv") and not _SEPARATED.search(command)
    if out.endswith(".csv") and _PRINTS_FIELDS.search(command) and not _JOINED.search(command):
        way = re.sub(r"^awk(?:\s+-F\s?['\"]?,['\"]?)?", "awk -F, -v OFS=,", command.strip())
        return f"awk writes blanks between fields, and {out} is to be split at commas. {RUN_THIS}{way}"
    if not reads or not await _table(ctx, path):
        return None
    return (
        f"awk splits at blanks, and {path} is split at commas. {RUN_THIS}{command.strip().replace('awk', 'awk -F,', 1)}"
    )


async def again(ctx: HookContext, command: str, lines: list[list[Program]]) -> str | None:
    """The very command that was run just now: what came of it then, and what it wrote."""
    last = ctx.state.done[-1] if ctx.state.done else None
    if last is None or not isinstance(last.step.action, Shell) or last.step.action.command.strip() != command.strip():
        return None
    waits = any(not _WAITS.isdisjoint(one.words) for line in lines for one in line)
    if not isinstance(last.observation, CommandOutput) or waits:
        return None
    seen = last.observation
    if seen.exit_code:
        error = seen.output.decode(errors="replace").strip()[-_ERROR_CHARS:]
        return f"You have run exactly this just now, and it failed: {error}\nWrite another command."
    task, printed = Task(ctx.started.task), seen.output.decode(errors="replace").strip()
    if printed and task.asks:
        return (
            f"You have run exactly this just now. It printed:\n{printed[-_ERROR_CHARS:]}\nFinish now with the answer."
        )
    texts = [await content(ctx, path) for line in lines for one in line for path in (*one.writes, *one.appends)]
    shown = "".join(f"\n{text}" for text in texts if text)
    return f"You have run exactly this just now, and it succeeded.{shown}\nDo what is still missing, or finish."


AGAIN = "again"
RULES: tuple[tuple[str, Rule], ...] = ((AGAIN, again), ("separator", separator))


async def objection(ctx: HookContext, command: str) -> tuple[str, str] | None:
    """The rule that speaks against `command`, and its words."""
    lines = pipelines(command)
    for name, rule in RULES if all(pipeline[0].words for pipeline in lines) else ():
        if (said := await rule(ctx, command, lines)) is not None:
            return name, said
    found = miscount(Task(ctx.started.task), command)
    return (found[0], f"{found[1]} {RUN_THIS}{found[2]}") if found is not None else None


async def _table(ctx: HookContext, path: str) -> list[list[str]]:
    """The first rows of a file of values between commas; none where it is not there, or no such file."""
    script = 'cd -- "$1" && head -c "$2" -- "$3"'
    try:
        read = await ctx.exec(["sh", "-c", script, "sh", ctx.state.cwd or ".", str(_FIRST_BYTES), path], timeout_s=5)
        rows = [row for row in csv.reader(read.stdout.decode(errors="replace").splitlines()) if row]
    except (ActionFailed, csv.Error):
        return []
    return rows if not read.exit_code and rows and len(rows[0]) > 1 else []
