"""A search that found nothing: whether there is something in other letters, as ERROR for error."""

import re
import shlex

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


async def in_other_letters(command: str, output: CommandOutput, sandbox: Sandbox) -> str:
    """The same search in upper and lower case, for the bot, where that finds something; else "".

    Only for one `grep` alone, which is run again as it is, with `-i`: nothing else of the command is.
    """
    words = _words(command)
    if len(words) < 3 or words[0] not in ("grep", "egrep", "fgrep") or _ignores_case(words):
        return ""
    argv = ["sh", "-c", _SEARCHES, "sh", output.cwd or ".", words[0], "-i", *words[1:]]
    try:
        found = await sandbox.exec(argv, timeout_s=5, max_output_bytes=1024)
    except ActionFailed:
        return ""
    if found.exit_code:
        return ""
    way = re.sub(r"^\s*(\w+)", r"\1 -i", command.rstrip(), count=1)
    if '"' in way and "'" in way:
        return "With -i there is such a line: in other letters, upper or lower case."
    # Without double quotes: in JSON a small model ends its answer at one.
    return Said("There is such a line in other letters, upper or lower case. ", way.replace('"', "'")).spoken


def _words(command: str) -> list[str]:
    """Of a command that is one program; none of any other."""
    try:
        return [] if _NOT_ALONE.search(command) else shlex.split(command)
    except ValueError:
        return []


def _ignores_case(words: list[str]) -> bool:
    return any(re.fullmatch(r"-\w*[iy]\w*|--ignore-case|-\w*v\w*|--invert-match", word) for word in words[1:])
