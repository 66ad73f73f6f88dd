"""Error messages that show the way out to whoever can read them: said again as a command."""

import re
import shlex
from collections.abc import Callable

from stockade.loop.advice.said import INSTEAD

_MISSPELT = re.compile(r"Error: .*'(?P<bad>\w+)'.*\. Did you mean: '(?P<good>\w+)'\?")
_FRAME = re.compile(r'^ *File "(?P<path>[^"<>]+)", line (?P<line>\d+)', re.MULTILINE)
_NO_ACCESS = re.compile(r"^bash: line \d+: (?P<file>\./?[\w./-]+\.(?P<suffix>sh|py)): Permission denied", re.MULTILINE)
_DOS = re.compile(r"^bash: line \d+: dos2unix: command not found", re.MULTILINE)


def _misspelt(command: str, printed: str) -> str | None:
    """Python knows what was meant: the name in the last file of its traceback."""
    found, frames = _MISSPELT.search(printed), _FRAME.findall(printed)
    if not found or not frames:
        return None
    path, line = frames[-1]
    return f"{INSTEAD}sed -i '{line}s/{found['bad']}/{found['good']}/' {shlex.quote(path)}"


def _not_executable(command: str, printed: str) -> str | None:
    if not (found := _NO_ACCESS.search(printed)):
        return None
    program = {"sh": "bash", "py": "python3"}[found["suffix"]]
    way = command.strip().replace(found["file"], f"{program} {found['file']}")
    return f"{INSTEAD}{way}"


def _values_one_by_one(command: str, printed: str) -> str | None:
    files = list(dict.fromkeys(re.findall(r"[\w./-]+\.json\b", command.partition(">")[0])))
    if len(files) < 2 or not re.search(r"\bjq\b(?!.*\s-\w*s)", command) or not printed.startswith("jq: error"):
        return None
    return f"jq takes one file after the other; with -s all at once. {INSTEAD}jq -s add {' '.join(files)}"


def _not_in_archive(command: str, printed: str) -> str | None:
    found = re.search(r"\btar\b.*?\s(?P<file>[\w./-]+\.(?:tar\.\w{2,4}|tar|tgz))\b", command)
    if not found or not re.search(r"^tar: .*: Not found in archive", printed, re.MULTILINE):
        return None
    return f"See what it holds. {INSTEAD}tar -tf {found['file']}"


def _without_its_number(command: str, printed: str) -> str | None:
    if not re.search(r"^bash: line \d+: python: command not found", printed, re.MULTILINE):
        return None
    way = re.sub(r"(?<![/.-])\bpython(?![\w./-])", "python3", command.strip())
    return f"{INSTEAD}{way}"


def _line_ends(command: str, printed: str) -> str | None:
    words = command.split()
    if not _DOS.search(printed) or len(words) != 2:
        return None
    return f"{INSTEAD}sed -i 's/[[:cntrl:]]$//' {words[1]}"


WAYS_OUT: tuple[Callable[[str, str], str | None], ...] = (
    _without_its_number,
    _misspelt,
    _not_executable,
    _values_one_by_one,
    _not_in_archive,
    _line_ends,
)
"""Each takes a command that has failed and what it printed."""
