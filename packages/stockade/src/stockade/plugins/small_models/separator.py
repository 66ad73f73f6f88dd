"""awk on tables of values between commas."""

import csv
import re

from stockade.core.errors import ActionFailed
from stockade.extend import HookContext
from stockade.plugins.small_models.commands import pipelines

_FIRST_BYTES = 2000
_FIELDS = re.compile(r"\$[1-9]")
_SEPARATED = re.compile(r"\s-F|\bFS\s*=|--field-separator|--csv|\bsplit\(")
_PRINTS_FIELDS = re.compile(r"\bprint\b[^;}]*\$\d+\s*,\s*\$\d")
_JOINED = re.compile(r"\bOFS\b|['\"],['\"]|printf")


async def separator(ctx: HookContext, command: str) -> tuple[str, str, str] | None:
    """awk splits at blanks and writes blanks, and this file is split at commas. As `miscount` says it."""
    lines = pipelines(command)
    if len(lines) != 1 or (first := lines[0][0]).name != "awk" or not _FIELDS.search(command):
        return None
    path, (out,) = first.words[-1], (lines[0][-1].writes or [""])[:1]
    reads = path.endswith(".csv") and not _SEPARATED.search(command)
    if out.endswith(".csv") and _PRINTS_FIELDS.search(command) and not _JOINED.search(command):
        way = re.sub(r"^awk(?:\s+-F\s?['\"]?,['\"]?)?", "awk -F, -v OFS=,", command.strip())
        return "separator", f"awk writes blanks between fields, and {out} is to be split at commas.", way
    if not reads or not await _is_table(ctx, path):
        return None
    way = command.strip().replace("awk", "awk -F,", 1)
    return "separator", f"awk splits at blanks, and {path} is split at commas.", way


async def _is_table(ctx: HookContext, path: str) -> bool:
    """Whether a file holds values between commas, by its beginning."""
    script = 'cd -- "$1" && head -c "$2" -- "$3"'
    try:
        read = await ctx.exec(["sh", "-c", script, "sh", ctx.state.cwd or ".", str(_FIRST_BYTES), path], timeout_s=5)
        first = next(filter(None, csv.reader(read.stdout.decode(errors="replace").splitlines())), [])
    except (ActionFailed, csv.Error):
        return False
    return not read.exit_code and len(first) > 1
