"""Commands that surely do something else than what was meant, and the command that does it.

Told afterwards a small model goes on from what it has spoiled; told before, it runs what is proposed. A proposal has no
double quotes where that can be: in a JSON answer a small model ends its text at the first one.
"""

import csv
import re

from stockade.core.errors import ActionFailed
from stockade.extend import HookContext
from stockade.plugins.small_models.commands import Program, pipelines
from stockade.plugins.small_models.commands import objection as miscount
from stockade.plugins.small_models.task import Task

RUN_THIS = "Run this instead: "
_FIRST_BYTES = 2000
_FIELDS = re.compile(r"\$[1-9]")
_SEPARATED = re.compile(r"\s-F|\bFS\s*=|--field-separator|--csv|\bsplit\(")
_PRINTS_FIELDS = re.compile(r"\bprint\b[^;}]*\$\d+\s*,\s*\$\d")
_JOINED = re.compile(r"\bOFS\b|['\"],['\"]|printf")


async def separator(ctx: HookContext, command: str, lines: list[list[Program]]) -> str | None:
    """awk splits at blanks and writes blanks, and this file is split at commas."""
    if len(lines) != 1 or (first := lines[0][0]).name != "awk" or not _FIELDS.search(command):
        return None
    path, (out,) = first.words[-1], (lines[0][-1].writes or [""])[:1]
    reads = path.endswith(".csv") and not _SEPARATED.search(command)
    if out.endswith(".csv") and _PRINTS_FIELDS.search(command) and not _JOINED.search(command):
        way = re.sub(r"^awk(?:\s+-F\s?['\"]?,['\"]?)?", "awk -F, -v OFS=,", command.strip())
        return f"awk writes blanks between fields, and {out} is to be split at commas. {RUN_THIS}{way}"
    if not reads or not await _is_table(ctx, path):
        return None
    return (
        f"awk splits at blanks, and {path} is split at commas. {RUN_THIS}{command.strip().replace('awk', 'awk -F,', 1)}"
    )


async def objection(ctx: HookContext, command: str) -> tuple[str, str] | None:
    """The rule that speaks against `command`, and its words."""
    lines = pipelines(command)
    if all(pipeline[0].words for pipeline in lines) and (said := await separator(ctx, command, lines)) is not None:
        return "separator", said
    found = miscount(Task(ctx.started.task), command)
    return (found[0], f"{found[1]} {RUN_THIS}{found[2]}") if found is not None else None


async def _is_table(ctx: HookContext, path: str) -> bool:
    """Whether a file holds values between commas, by its beginning."""
    script = 'cd -- "$1" && head -c "$2" -- "$3"'
    try:
        read = await ctx.exec(["sh", "-c", script, "sh", ctx.state.cwd or ".", str(_FIRST_BYTES), path], timeout_s=5)
        first = next(filter(None, csv.reader(read.stdout.decode(errors="replace").splitlines())), [])
    except (ActionFailed, csv.Error):
        return False
    return not read.exit_code and len(first) > 1
