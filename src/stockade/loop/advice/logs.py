"""Commands on a log that read another field than the task speaks of: of access logs, and of logs with levels."""

import re

from stockade.core.ports import Sandbox
from stockade.loop.advice.after import beginnings
from stockade.loop.advice.commands import MAX_LOOKED_AT
from stockade.loop.advice.said import INSTEAD

LEVELS = ("TRACE", "DEBUG", "INFO", "NOTICE", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL")
_ACCESS = re.compile(r'\S+ \S+ \S+ \[[^\]]+\] "[A-Z]+ \S+ [^"]*" \d{3} \S+')
"""A line in the common log format of web servers, or the combined one, which only adds to it."""
_BY_STATUS = re.compile(
    r"^(?:cat\s+(?P<read>[\w./-]+)\s*\|\s*)?grep\s+(?:-\w+\s+)*['\"]?\s?(?P<status>[1-5]\d\d)\s?['\"]?"
    r"(?:\s+(?P<file>[\w./-]+))?(?P<awk>\s*\|\s*awk\s+'\{\s*print\s+\$\d+\s*;?\s*\}')?(?=\s*[|>]|$)"
)
_FIELDS = ((r"\b(?:paths?|urls?|pages?)\b", 7), (r"\b(?:clients?|addresse?s?|ips?|hosts?)\b", 1))
_PRINTS = re.compile(
    r"\bawk\s+'\s*(?:/[^/']*/\s*)?\{\s*print\s+(?P<fields>\$\d+(?:\s*,\s*\$\d+)*)\s*;?\s*\}\s*'(?P<file>(?:\s+[\w./-]+)?)"
)
_MARKS = "[]:<>()|"


async def doubt(command: str, task: str, sandbox: Sandbox) -> str | None:
    """Why `command` is not what was meant, with one that is; None when nothing is known against it."""
    command = command.strip()
    if len(command) > MAX_LOOKED_AT or "\n" in command:
        return None
    by_status, prints = _BY_STATUS.search(command), _PRINTS.search(command)
    if by_status is None and prints is None:
        return None
    _, _, first = (await beginnings(command, sandbox, lines=1)).partition(" begins with:\n")
    if by_status is not None and _ACCESS.match(first):
        return _of_access(by_status, task)
    return _of_levels(prints, first.split(), task) if prints is not None else None


def _of_access(found: re.Match[str], task: str) -> str | None:
    wanted = [field for words, field in _FIELDS if re.search(words, task, re.IGNORECASE)]
    file = found["read"] or found["file"]
    if not file or len(wanted) != 1 or (not found["awk"] and re.search(r"\b(?:lines?|requests?|count|many)\b", task)):
        return None
    way = f"awk '$9 == {found['status']} {{print ${wanted[0]}}}' {file}{found.string[found.end() :]}"
    return f"in an access log the status is $9, and {found['status']} may stand elsewhere too. {INSTEAD}{way}"


def _of_levels(found: re.Match[str], words: list[str], task: str) -> str | None:
    """The fields that are printed are none that the task wants: it asks for levels, and they stand elsewhere."""
    places = [place for place, word in enumerate(words, 1) if word.strip(_MARKS) in LEVELS]
    asked = re.search(r"\blevels?\b", task) or sum(level in task for level in LEVELS) > 1
    if len(places) != 1 or not asked or f"${places[0]}" in found["fields"].replace(" ", "").split(","):
        return None
    bare = "" if words[places[0] - 1] in LEVELS else f" | tr -d '{_MARKS}'"
    way = found.string.replace(found[0], f"awk '{{print ${places[0]}}}'{found['file']}{bare}")
    return f"the level is ${places[0]}. {INSTEAD}{way}"
