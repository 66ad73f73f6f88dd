"""Commands on a table with a header line, judged with a look at the table: sorted with its header, averaged with it,
copied whole where a column was wanted.
"""

import csv
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stockade.core.errors import ActionFailed
from stockade.core.ports import Sandbox
from stockade.loop.advice.commands import MAX_LOOKED_AT
from stockade.loop.advice.said import INSTEAD

FIRST_BYTES = 2000
_FILE = r"(?P<file>[\w./-]+\.csv)\b"
_OUT = r"(?P<out>\s*>\s*[\w./-]+)?"
_SORTED = re.compile(rf"^sort\s+(?P<flags>(?:-[^|;&>]*?\s+)?){_FILE}{_OUT}$")
_SORTED_LATER = re.compile(r"\|\s*sort\b(?!\s[^|]*-t)(?=\s[^|]*-\w*k)")
_RESHAPES = re.compile(r"\b(?:awk|sed|tr|cut|uniq|jq|python3)\b")
_WHOLE_LINES = re.compile(
    r"^awk\s+-F\s?['\"]?,['\"]?\s+'(?P<lines>\s*NR\s*(?:>|!=|>=)\s*\d+\s*)(?:\{\s*print\s*(?:\$0)?;?\s*\})?\s*'\s+"
    rf"{_FILE}{_OUT}$"
)
_REST = re.compile(rf"^(?:tail\s+-n\s*\+2|sed\s+-?n?\s*'?1d'?)\s+{_FILE}{_OUT}$")
_MEAN = re.compile(rf"\bawk\b(?![^|]*\bF?NR\s*(?:>|!=)).*?'\s*(?P<first>\{{).*\bEND\b.*/\s*NR\b.*?{_FILE}")
_GROUPED = re.compile(
    rf"\bawk\s+-F\s?['\"]?,['\"]?\s+'\s*(?P<first>\{{)[^}}]*\w+\[\$\d+\]\s*(?:\+=|\+\+)[^}}]*\}}\s*END\b.*'\s+{_FILE}"
)
_VALUES = re.compile(
    r"^(?:awk\s+-F\s?['\"]?,['\"]?\s+'\s*\{\s*print\s+\$(?P<field>\d+)\s*;?\s*\}\s*'"
    r"|cut\s+-d\s?['\"]?,['\"]?\s+-f\s?(?P<cut>\d+))"
    rf"\s+{_FILE}(?P<rest>\s*\|.*)$"
)
_LINES = re.compile(
    rf"^(?:cat\s+{_FILE}\s*\|\s*)?(?:wc\s+-l|awk\s+'END\s*\{{\s*print\s+NR;?\s*\}}')(?:\s*<?\s*[\w./-]+\.csv)?"
    rf"(?:\s*\|\s*(?:awk|cut)\b[^|;&>]*[^|;&>\s])?{_OUT}$"
)
_UNSET = re.compile(
    r"^awk\s+-F\s?['\"]?,['\"]?\s+'[^']*?\$(?P<by>\d+)\s*(?:==|>=?|<=?)\s*(?P<name>[a-z_]\w*)\b(?P<rest>[^']*)'\s+"
    rf"{_FILE}{_OUT}$"
)
_TABLE_MADE = re.compile(
    r"^awk\s+-F\s?['\"]?,['\"]?\s+'[^']*\bprint\b[^'};]*\w[\])]?\s*,\s*[$\w][^']*'\s+"
    rf"{_FILE}\s*>\s*(?P<table>[\w./-]+\.csv)$"
)
_COLUMNS = re.compile(r"(?<![\w,])[A-Za-z_]\w*(?:,[A-Za-z_]\w*)+(?![\w,])")
_MOST = re.compile(r"\b(?:highest|largest|biggest|most|greatest|longest|maximum|latest|newest|dearest|best)\b", re.I)
_LEAST = re.compile(r"\b(?:lowest|smallest|least|fewest|shortest|minimum|earliest|oldest|cheapest)\b", re.I)
_ROWS = re.compile(
    r"\bheader\b[^.]*\bnot\b|\bwithout\b[^.]*\bheader\b|\bdata (?:rows|lines|records)\b|\b(?:rows|records|entries)\b"
)
_LIST = re.compile(r"\bone (?:\w+ )?(?:on|per|in|to) (?:each|every|a|its own)? ?line\b|\beach on (?:a|its own) line\b")


@dataclass(frozen=True, slots=True)
class Table:
    """How a file of values between commas begins. `header`: the names of its columns, when its first line is one."""

    file: str
    header: tuple[str, ...]

    def wanted(self, task: str) -> int | None:
        """The place, from 1, of the one column that the task speaks of by its name or its plural."""
        found = [
            place
            for place, name in enumerate(self.header, 1)
            if re.search(rf"\b{re.escape(name)}(?:s|es)?\b", task, re.IGNORECASE)
        ]
        return found[0] if len(found) == 1 else None


async def doubt(command: str, task: str, sandbox: Sandbox) -> str | None:
    """Why `command` is not what was meant, with one that is; None when nothing is known against it."""
    command = command.strip()
    if len(command) > MAX_LOOKED_AT or "\n" in command or ".csv" not in command:
        return None
    for pattern, rule in _RULES:
        if found := pattern.search(command):
            file = re.search(_FILE, command)
            return rule(found, await _read(file["file"], sandbox), task) if file else None
    return None


async def _read(file: str, sandbox: Sandbox) -> Table:
    """Without a header when it cannot be read."""
    try:
        result = await sandbox.exec(["head", "-n", "3", "--", file], timeout_s=5, max_output_bytes=FIRST_BYTES)
        rows = [row for row in csv.reader(result.stdout.decode().splitlines()) if row]
    except (ActionFailed, UnicodeDecodeError, csv.Error):
        rows = []
    return Table(file, tuple(rows[0]) if _has_header(rows) else ())


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of these rows has names only, and the next one a number or a date below one of them."""
    if len(rows) < 2 or len(rows[0]) < 2 or len(rows[0]) != len(rows[1]):
        return False
    named = all(re.fullmatch(r"\s*[A-Za-z_][\w .()-]*", name) for name in rows[0])
    return named and any(re.match(r"\s*[-+]?\d", cell) for cell in rows[1])


def _sorted(found: re.Match[str], table: Table, task: str) -> str | None:
    try:
        flags = shlex.split(found["flags"])
    except ValueError:
        return None
    text = " ".join(flags)
    split, key = "-t" in text, re.search(r"-\w*k\s?(\d+)", text)
    if (split or not key) and not table.header:
        return None
    letters = "".join(letter for letter in "nrgfu" if re.search(rf"(?<!-t )-(?!t)\S*{letter}", text))
    column = f"-k{key[1]},{key[1]}{letters}" if key else f"-{letters}" if letters else ""
    sort = " ".join(["sort -t,", column]).strip()
    file, out = found["file"], found["out"] or ""
    if not table.header:
        return f"sort splits at blanks, and {file} is split at commas. {INSTEAD}{sort} {file}{out}"
    split_at = "" if split else f"{file} is split at commas, and "
    first, rest = (f"{out} &&", out.replace(">", ">>")) if out else (";", "")
    way = f"head -n 1 {file}{first} tail -n +2 {file} | {sort}{rest}"
    return f"{split_at}its first line is a header, which would be sorted with the rest. {INSTEAD}{way}"


def _sorted_later(found: re.Match[str], table: Table, task: str) -> str | None:
    if _RESHAPES.search(found.string):
        return None
    way = found.string.replace(found[0], found[0].replace("sort", "sort -t,"))
    return f"sort splits at blanks, and {table.file} is split at commas. {INSTEAD}{way}"


def _whole_lines(found: re.Match[str], table: Table, task: str) -> str | None:
    if (place := table.wanted(task)) is None:
        return None
    way = f"awk -F, '{found['lines'].strip()} {{print ${place}}}' {table.file}{found['out'] or ''}"
    return f"that prints whole lines, and the task speaks of {table.header[place - 1]}. {INSTEAD}{way}"


def _rest(found: re.Match[str], table: Table, task: str) -> str | None:
    place = table.wanted(task)
    if place is None or not _LIST.search(task):
        return None
    way = f"tail -n +2 {table.file} | cut -d, -f{place}{found['out'] or ''}"
    return f"that prints whole lines, and the task speaks of {table.header[place - 1]}. {INSTEAD}{way}"


def _values(found: re.Match[str], table: Table, task: str) -> str | None:
    if not table.header or not re.search(r"\b(?:sort|uniq|wc|head)\b", found["rest"]):
        return None
    way = f"tail -n +2 {table.file} | cut -d, -f{found['field'] or found['cut']}{found['rest']}"
    return f"the first line of {table.file} is a header, and would be among the values. {INSTEAD}{way}"


def _lines(found: re.Match[str], table: Table, task: str) -> str | None:
    if not table.header or not _ROWS.search(task):
        return None
    way = f"tail -n +2 {table.file} | wc -l{found['out'] or ''}"
    return f"the first line of {table.file} is a header, and it is counted too. {INSTEAD}{way}"


def _blanks_between(found: re.Match[str], table: Table, task: str) -> str | None:
    """A table is made, and awk writes blanks between its columns; and without the header that the task names."""
    command, columns = found.string, _COLUMNS.findall(task)
    apart = not re.search(r"\bOFS\b|['\"],['\"]|printf", command)
    headless = len(columns) == 1 and columns[0] not in command
    if not apart:
        return None
    way = re.sub(r"^awk\s+-F\s?['\"]?,['\"]?", "awk -F, -v OFS=,", command)
    if table.header and (headless or re.search(r"\w\[\$\d", way)) and not re.search(r"\bF?NR\b", way):
        way = re.sub(r"'\s*\{", "'NR>1 {", way, count=1)
    if headless:
        way = f"echo {columns[0]} > {found['table']} && {way[: way.rindex('>')]}>> {found['table']}"
    return f"awk writes blanks between what it prints, and {found['table']} is to be split at commas. {INSTEAD}{way}"


def _unset(found: re.Match[str], table: Table, task: str) -> str | None:
    """Compared with a variable that only this comparison could set: of numbers above nothing, none is equal to it."""
    most, least = _MOST.search(task), _LEAST.search(task)
    fields = re.findall(r"(?:print\s*\(?|=\s*)\$(\d+)", found["rest"])
    shown = [field for field in fields if field != found["by"]]
    is_set = re.search(rf"\b{found['name']}\s*=[^=]", found.string[: found.start("name")])
    if is_set or "==" not in found[0] or bool(most) == bool(least) or len(set(shown)) != 1:
        return None
    order = f"-k{found['by']},{found['by']}g{'r' if most else ''}"
    way = f"tail -n +{2 if table.header else 1} {table.file} | sort -t, {order} | head -n 1 | cut -d, -f{shown[0]}"
    return f"nothing is equal to {found['name']}, which has no value yet. {INSTEAD}{way}{found['out'] or ''}"


def _grouped(found: re.Match[str], table: Table, task: str) -> str | None:
    if not table.header:
        return None
    at = found.start("first")
    way = f"{found.string[:at]}NR>1 {found.string[at:]}"
    return f"the first line of {table.file} is a header, and would be a group of its own. {INSTEAD}{way}"


def _mean(found: re.Match[str], table: Table, task: str) -> str | None:
    if not table.header:
        return None
    at = found.start("first")
    way = re.sub(r"/\s*NR\b", "/(NR-1)", f"{found.string[:at]}NR>1 {found.string[at:]}")
    return f"the first line of {table.file} is a header, and NR counts it. {INSTEAD}{way}"


def selected(file: str, text: str, task: str, out: str) -> str | None:
    """A command for the rows of a table with the one value in them that the task speaks of; None for none or more."""
    rows = [row for row in csv.reader(text.splitlines()) if row]
    if not _has_header(rows):
        return None
    found = {
        (place, cell)
        for row in rows[1:]
        for place, cell in enumerate(row, 1)
        if re.fullmatch(r"[A-Za-z][\w -]*", cell) and re.search(rf"\b{re.escape(cell)}\b", task)
    }
    if len(found) != 1:
        return None
    place, cell = found.pop()
    header = "" if re.search(r"\bwithout (?:the |a |its )?header\b", task) else "NR==1 || "
    return f"awk -F, '{header}${place} ~ /^{cell}$/' {file} > {out}"


_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Table, str], str | None]], ...] = (
    (_SORTED, _sorted),
    (_SORTED_LATER, _sorted_later),
    (_WHOLE_LINES, _whole_lines),
    (_REST, _rest),
    (_TABLE_MADE, _blanks_between),
    (_UNSET, _unset),
    (_MEAN, _mean),
    (_GROUPED, _grouped),
    (_LINES, _lines),
    (_VALUES, _values),
)
