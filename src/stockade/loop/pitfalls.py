"""What small models often get wrong in an action, told in a sentence when it has just happened.

Each line here was seen with the default model on `bench/ability`, where an error message or silence alone did not bring
it on (docs/ability.md). What is surely not meant is asked about before it is done: doubts.py.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stockade.core.actions import INSTEAD, CommandOutput
from stockade.core.errors import ActionFailed
from stockade.core.ports import Sandbox

_NOT_FOUND = 127
_MISSING = {
    "python": "Python is called python3 here.",
    "pip": "Here it is: python3 -m pip.",
    "sudo": "There is no sudo here, and nothing that needs it: do without.",
    "jq": "There is no jq here: read JSON with python3 -c 'import json; ...'.",
}
"""What bots type out of habit, and what they can do instead; the default model asked for sudo to install Python."""
MAX_LOOKED_AT = 2000
"""Characters of a command: a longer one is a program, and not looked at."""
MAX_FILES = 2
FIRST_LINES = 4
MAX_LINE_CHARS = 120
_WORD = re.compile(r"[\w./-]*\w[\w./-]*")
_BEGIN = f"""
shown=0
for f; do
  if [ $shown -lt {MAX_FILES} ] && [ -f "$f" ] && [ ! -L "$f" ] && grep -Iq . -- "$f" 2>/dev/null; then
    printf '%s begins with:\\n' "$f"; head -n {FIRST_LINES} -- "$f" | cut -c -{MAX_LINE_CHARS}
    shown=$((shown + 1))
  fi
done
"""


@dataclass(frozen=True, slots=True)
class _Rule:
    """Holds for a command that matches `command` and, where it is given, printed `printed`; `failed` as it ended."""

    command: re.Pattern[str]
    words: str | Callable[[re.Match[str]], str]
    failed: bool
    printed: re.Pattern[str] | None = None


_RULES = (
    _Rule(
        re.compile(r"\b(?P<log>git shortlog(?:\s+-\S+)*)(?=\s*(?:\||>|$))"),
        lambda found: f"{INSTEAD}{found.string.strip().replace(found['log'], found['log'] + ' HEAD', 1)}",
        failed=False,
        printed=re.compile(r"\A\Z"),
    ),
    _Rule(
        re.compile(r"-exec\b"),
        "Let -exec end with a plus sign: find ... -exec COMMAND {} +",
        failed=True,
        printed=re.compile("missing argument to `-exec'"),
    ),
    _Rule(
        re.compile(r"(?s).*"),
        "A quote in that command has no partner.",
        failed=True,
        printed=re.compile("unexpected EOF while looking for matching"),
    ),
    _Rule(
        re.compile(r"\btar\b.*?\s(?:-C|--directory)[ =]?(?P<folder>[\w./-]+)"),
        lambda found: f"{INSTEAD}mkdir -p {found['folder']} && {found.string.strip()}",
        failed=True,
        printed=re.compile("Cannot open: No such file"),
    ),
)


def of_command(command: str, output: CommandOutput) -> str:
    """What to tell the bot about `command` beside its output; "" for nothing."""
    return "\n".join(dict.fromkeys(_said(command, output))) if len(command) <= MAX_LOOKED_AT else ""


def _said(command: str, output: CommandOutput) -> Iterator[str]:
    failed, printed = bool(output.exit_code), output.output[:MAX_LOOKED_AT].decode(errors="replace")
    for rule in _RULES:
        found = rule.command.search(command)
        if found and rule.failed == failed and (rule.printed is None or rule.printed.search(printed)):
            yield rule.words if isinstance(rule.words, str) else rule.words(found)
    if output.exit_code == _NOT_FOUND:
        yield from (way_out for name, way_out in _MISSING.items() if f": {name}: command not found" in printed)


async def beginnings(command: str, sandbox: Sandbox) -> str:
    """How the text files begin that `command` names; "" when it names none, or they cannot be read."""
    try:
        argv = ["sh", "-c", _BEGIN, "sh", *dict.fromkeys(_WORD.findall(command))]
        result = await sandbox.exec(argv, timeout_s=5, max_output_bytes=4096)
        text = result.stdout.decode().strip()
    except (ActionFailed, UnicodeDecodeError):
        return ""
    return text if all(char.isprintable() or char in "\n\t" for char in text) else ""


def found_nothing(command: str, output: CommandOutput) -> bool:
    """Whether the command was a search that came to its end and found no line."""
    if len(command) > MAX_LOOKED_AT:
        return False
    last = re.split(r"[|;&\n]", command)[-1]
    return output.exit_code == 1 and not output.stderr and re.match(r"\s*[ef]?grep\b", last) is not None
