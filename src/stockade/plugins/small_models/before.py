"""Commands that surely do something else than what was meant: refused once, with the command that does it.

Told afterwards a small model goes on from what it has spoiled; told before, it runs what is proposed. A proposal has no
double quotes where that can be: in a JSON answer a small model ends its text at the first one.
"""

import csv
import re
from collections.abc import Awaitable, Callable

from stockade.core.actions import CommandOutput, Shell
from stockade.core.errors import ActionFailed
from stockade.loop.hooks import HookContext
from stockade.plugins.small_models.commands import Program, pipelines
from stockade.plugins.small_models.finish import content

RUN_THIS = "Run this instead: "
_FIRST_BYTES = 2000
_ERROR_CHARS = 300
_PLAIN = re.compile(r"[\w./-]+")
_DROPS_HEADER = re.compile(r"\btail\s+-n\s*\+|\bF?NR\s*(?:>|!=|==)|\bsed\s+(?:-n\s+)?'?1d|\b2,\$p|next\b")
_FIELDS = re.compile(r"\$[1-9]")
_SEPARATED = re.compile(r"\s-F|\bFS\s*=|--field-separator|--csv|\bsplit\(")
_PRINTS_FIELDS = re.compile(r"\bprint\b[^;}]*\$\d+\s*,\s*\$\d")
_JOINED = re.compile(r"\bOFS\b|['\"],['\"]|printf")
_GROUPS = re.compile(r"\[\$\d+\]\s*(?:\+=|\+\+)|/\s*NR\b")
_WAITS = re.compile(r"\b(?:sleep|wait)\b")
_PASSES_LINES = ("cat", "cut", "awk", "grep", "sort", "uniq", "head", "tail")

Rule = Callable[[HookContext, str, list[list[Program]]], Awaitable[str | None]]


async def onto_itself(ctx: HookContext, command: str, lines: list[list[Program]]) -> str | None:
    """A file that a pipeline reads and writes is empty before anything reads it."""
    for pipeline in lines:
        read = {word for one in pipeline if one.name not in ("echo", "printf", "tee") for word in one.words[1:]}
        read |= {path for one in pipeline for path in one.reads}
        for path in (path for one in pipeline for path in one.writes if path in read):
            tail = re.compile(rf">\s*{re.escape(path)}\s*$")
            way = tail.sub(f"> {path}.new && mv {path}.new {path}", command.strip())
            proposed = f" {RUN_THIS}{way}" if _PLAIN.fullmatch(path) and tail.search(command.strip()) else ""
            return f"{path} would be empty before it is read.{proposed}"
    return None


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


async def header(ctx: HookContext, command: str, lines: list[list[Program]]) -> str | None:
    """The first line of a table holds the names of its columns: sorted, counted or averaged it is one row too many."""
    if len(lines) != 1 or _DROPS_HEADER.search(command) or re.search(r"\$\(|`", command):
        return None
    pipeline = lines[0]
    path = next((word for word in (*pipeline[0].words[1:], *pipeline[0].reads) if word.endswith(".csv")), "")
    names = [one.name for one in pipeline]
    groups = names[0] == "awk" and _GROUPS.search(command) is not None
    orders = names[0] in _PASSES_LINES and bool({"sort", "uniq"} & set(names))
    if not path or not (groups or orders) or not await _has_header(ctx, path):
        return None
    said = f"The first line of {path} is a header, and it would be taken for a row."
    rest = re.sub(rf"(?:<\s*)?(?<![\w./-]){re.escape(path)}(?![\w./-])\s?", "", command.strip(), count=1)
    if names != ["sort"]:
        way = f"tail -n +2 {path} | {rest}" if names[0] != "cat" else rest.replace("cat", f"tail -n +2 {path}", 1)
        return f"{said} {RUN_THIS}{way.replace('  ', ' ').strip()}"
    sort, arrow, out = rest.partition(">")
    if not arrow:
        return f"{said} {RUN_THIS}head -n 1 {path}; tail -n +2 {path} | {sort.strip()}"
    out = out.strip()
    return f"{said} {RUN_THIS}head -n 1 {path} > {out} && tail -n +2 {path} | {sort.strip()} >> {out}"


async def again(ctx: HookContext, command: str, lines: list[list[Program]]) -> str | None:
    """The very command that was run just now: what came of it then, and what it wrote."""
    last = ctx.state.done[-1] if ctx.state.done else None
    if last is None or not isinstance(last.step.action, Shell) or last.step.action.command.strip() != command.strip():
        return None
    if not isinstance(last.observation, CommandOutput) or _WAITS.search(command):
        return None
    seen = last.observation
    if seen.exit_code:
        error = seen.output.decode(errors="replace").strip()[-_ERROR_CHARS:]
        return f"You have run exactly this just now, and it failed: {error}\nWrite another command."
    texts = [await content(ctx, path) for line in lines for one in line for path in (*one.writes, *one.appends)]
    shown = "".join(f"\n{text}" for text in texts if text)
    return f"You have run exactly this just now, and it succeeded.{shown}\nDo what is still missing, or finish."


AGAIN = "again"
RULES: tuple[tuple[str, Rule], ...] = (
    (AGAIN, again),
    ("onto_itself", onto_itself),
    ("separator", separator),
    ("header", header),
)


async def objection(ctx: HookContext, command: str) -> tuple[str, str] | None:
    """The rule that speaks against `command`, and its words."""
    lines = pipelines(command)
    for name, rule in RULES if all(pipeline[0].words for pipeline in lines) else ():
        if (said := await rule(ctx, command, lines)) is not None:
            return name, said
    return None


async def _table(ctx: HookContext, path: str) -> list[list[str]]:
    """The first rows of a file of values between commas; none where it is not there, or no such file."""
    script = 'cd -- "$1" && head -c "$2" -- "$3"'
    try:
        read = await ctx.exec(["sh", "-c", script, "sh", ctx.state.cwd or ".", str(_FIRST_BYTES), path], timeout_s=5)
        rows = [row for row in csv.reader(read.stdout.decode(errors="replace").splitlines()) if row]
    except (ActionFailed, csv.Error):
        return []
    return rows if not read.exit_code and rows and len(rows[0]) > 1 else []


async def _has_header(ctx: HookContext, path: str) -> bool:
    """Whether the first row has names only, and the next one a number or a date below one of them."""
    rows = await _table(ctx, path)
    if len(rows) < 2 or len(rows[0]) != len(rows[1]):
        return False
    named = all(re.fullmatch(r"\s*[A-Za-z_][\w .()-]*", name) for name in rows[0])
    return named and any(re.match(r"\s*[-+]?\d", cell) for cell in rows[1])
