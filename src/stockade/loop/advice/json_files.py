"""Commands on JSON files that do something else than what they look like."""

import re
from collections.abc import Callable

from stockade.loop.advice.said import INSTEAD
from stockade.loop.advice.wanted import FILE_NAME

MAX_COLUMNS = 12
_JSON = r"(?P<file>[\w./-]+\.json)"
_KEY_FOR_FUNCTION = re.compile(
    rf"(?:\bcat\s+(?P<cat>[\w./-]+\.json)\s*\|\s*)?\bjq(?:\s+-\w+)*\s+'\.(?P<name>keys|length)'(?:\s+{_JSON})?"
)
_TO_INDENT = re.compile(r"\b(?:indent\w*|pretty[ -]?print\w*|prettify|nicely format\w*|readable)\b", re.IGNORECASE)
_NO_PARSER = re.compile(rf"^(?:sed|tr|fold|fmt|awk|column)\s[^|;&]*?{_JSON}(?:\s*>\s*(?P<out>[\w./-]+))?$")
_OBJECT_AS_ROW = re.compile(r"\bjq(?:\s+-\w+)*\s+'\.(?:\w+)?\[\]\s*\|\s*@csv'")
_COLUMNS = re.compile(r"(?<![\w,])[A-Za-z_]\w*(?:,[A-Za-z_]\w*)+(?![\w,])")


def _key_for_function(command: str, task: str) -> str | None:
    """`.keys` is a key of that name."""
    found = _KEY_FOR_FUNCTION.search(command)
    if not found or not (file := found["file"] or found["cat"]):
        return None
    function = "length" if found["name"] == "length" else "-r 'keys_unsorted[]'"
    way = command.replace(found[0], f"jq {function} {file}")
    return f".{found['name']} is a key of that name, and there is none. {INSTEAD}{way}"


def _without_a_parser(command: str, task: str) -> str | None:
    found = _NO_PARSER.search(command)
    if not found or not _TO_INDENT.search(task):
        return None
    file = found["file"]
    onto_itself = found["out"] in (None, file)
    out = f"{file}.new" if onto_itself else found["out"]
    way = f"python3 -m json.tool --no-ensure-ascii {file} {out}{f' && mv {out} {file}' if onto_itself else ''}"
    return f"that knows nothing of JSON. {INSTEAD}{way}"


def _object_as_row(command: str, task: str) -> str | None:
    """@csv takes lists; which columns are wanted, the task may say."""
    found, columns = _OBJECT_AS_ROW.search(command), _COLUMNS.findall(task)
    if not found or len(columns) != 1 or columns[0].count(",") >= MAX_COLUMNS:
        return None
    tables = [name for name in dict.fromkeys(FILE_NAME.findall(task)) if name.endswith(".csv")]
    fields = ", ".join(f".{name}" for name in columns[0].split(","))
    way = command.replace("@csv'", f"[{fields}] | @csv'").partition(">")[0].rstrip()
    if len(tables) == 1:
        way = f"echo {columns[0]} > {tables[0]} && {way} >> {tables[0]}"
    return f"@csv takes lists, and these are objects. {INSTEAD}{way}"


RULES: tuple[Callable[[str, str], str | None], ...] = (_key_for_function, _without_a_parser, _object_as_row)
