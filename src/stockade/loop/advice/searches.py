"""A search that found nothing: whether there is something in other letters, as ERROR for error, or within a line."""

import re
import shlex
from collections.abc import Sequence

from stockade.core.actions import CommandOutput
from stockade.core.errors import ActionFailed
from stockade.core.ports import Sandbox
from stockade.loop.advice.said import Said

MAX_LOOKED_AT = 2000
"""Characters of a command: a longer one is a program, and not looked at."""
_LAST = re.compile(r"\s*[ef]?grep\b")
_NOT_ALONE = re.compile(r"[|;&<>$`\n\\()]")
_SEARCHES = 'cd -- "$1" && shift && exec "$@" >/dev/null 2>&1'


def found_nothing(command: str, output: CommandOutput) -> bool:
    """Whether the command was a search that came to its end and found no line."""
    if len(command) > MAX_LOOKED_AT:
        return False
    return output.exit_code == 1 and not output.stderr and _LAST.match(re.split(r"[|;&\n]", command)[-1]) is not None


async def found_otherwise(command: str, output: CommandOutput, sandbox: Sandbox) -> str:
    """What to tell the bot where the same search finds something in upper and lower case, or anywhere in a line; else
    "".

    Only for one `grep` alone, which is run again as it is but for that: nothing else of the command is.
    """
    words = _words(command)
    if len(words) < 3 or words[0] not in ("grep", "egrep", "fgrep") or _takes_all(words):
        return ""
    anchored = next((word for word in words[1:] if word.startswith("^") and word[1:].isalnum()), None)
    for free, flags, why in (
        (False, ("-i",), "There is such a line in other letters, upper or lower case. "),
        (True, (), "There is such a line, and it begins with something else. "),
        (True, ("-i",), "There is such a line in other letters, and it begins with something else. "),
    ):
        if free and anchored is None:
            break
        given = [word[1:] if free and word == anchored else word for word in words[1:]]
        if await _finds((words[0], *flags, *given), output.cwd or ".", sandbox):
            way = command.strip().replace(anchored, anchored[1:], 1) if free and anchored else command.strip()
            return _told(why, way.replace(words[0], " ".join((words[0], *flags)), 1))
    return ""


def _told(why: str, way: str) -> str:
    if '"' in way and "'" in way:
        return why.strip()
    # Without double quotes: in JSON a small model ends its answer at one.
    return Said(why, way.replace('"', "'")).spoken


async def _finds(words: Sequence[str], folder: str, sandbox: Sandbox) -> bool:
    try:
        done = await sandbox.exec(["sh", "-c", _SEARCHES, "sh", folder, *words], timeout_s=5, max_output_bytes=1024)
    except ActionFailed:
        return False
    return not done.exit_code


def _words(command: str) -> list[str]:
    """Of a command that is one program; none of any other."""
    try:
        return [] if _NOT_ALONE.search(command) else shlex.split(command)
    except ValueError:
        return []


def _takes_all(words: list[str]) -> bool:
    return any(re.fullmatch(r"-\w*[iy]\w*|--ignore-case|-\w*v\w*|--invert-match", word) for word in words[1:])
