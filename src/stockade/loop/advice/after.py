"""What small models often get wrong in an action, told in a sentence when it has just happened.

Each line here was seen with the default model on `bench/ability`, where an error message or silence alone did not bring
it on (docs/ability.md). What is surely not meant is asked about before it is done: before.py.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stockade.core.actions import CommandOutput
from stockade.core.errors import ActionFailed
from stockade.core.ports import Sandbox
from stockade.loop.advice import errors
from stockade.loop.advice.said import INSTEAD, Said

_NOT_FOUND = 127
_MISSING = {
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
_WORD = re.compile(r"[\w./-]+")
_BEGIN = f"""
shown=0 lines=$1
shift
for f; do
  if [ $shown -lt {MAX_FILES} ] && [ -f "$f" ] && [ ! -L "$f" ] && grep -Iq . -- "$f" 2>/dev/null; then
    printf '%s begins with:\\n' "$f"; head -n "$lines" -- "$f" | cut -c -{MAX_LINE_CHARS}
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


_SEVERAL = re.compile(r"^(?P<jq>jq)\s+'(?P<filter>\.\[\][^']*)'\s+(?P<rest>[\w./-]+\s*>\s*(?P<out>[\w./-]+\.json))$")
_BY_HAND = re.compile(r"\b(?:awk|sed|echo|printf|paste)\b.*>\s*(?P<out>[\w./-]+\.json)\s*$")
_PRINTS_FIELDS = re.compile(r"\bawk\b(?!.*\s-F)[^|]*\{\s*print\b[^}|]*\$[1-9]")
_TABLE = re.compile(r"[\w./-]+\.csv\b")
_FROM_CSV = (
    "python3 -c 'import csv, json, sys; print(json.dumps(list(csv.DictReader(sys.stdin)), indent=2))' < {table} > {out}"
)
"""Without double quotes: in JSON a small model ends its answer at one."""
MAX_FIELDS = 12


def of_writing(command: str, wrote: str) -> str:
    """The same about what `command` wrote in silence, as the bot is told."""
    if len(command) > MAX_LOOKED_AT:
        return ""
    if (several := _SEVERAL.search(command.strip())) and f"{several['out']} has a syntax error" in wrote:
        return Said("That is several values, and no list. ", f"jq '[{several['filter']}]' {several['rest']}").spoken
    found = _BY_HAND.search(command.strip())
    if not found or f"{found['out']} has a syntax error" not in wrote:
        return ""
    table = _TABLE.search(command)
    if table is None:
        return "Let python3 write JSON, by json.dumps: then its quotes are right."
    return Said("Let python3 write JSON. ", _FROM_CSV.format(table=table[0], out=found["out"])).spoken


async def fields(command: str, output: CommandOutput, wrote: str, sandbox: Sandbox) -> str:
    """A line of the file that `awk` read, by awk's numbers, where it printed fields that are surely the wrong ones:
    dashes, halves of what stands in quotes or brackets, or such that are all counted once.
    """
    if len(command) > MAX_LOOKED_AT or output.exit_code or not _PRINTS_FIELDS.search(command):
        return ""
    printed = output.output[:MAX_LOOKED_AT].decode(errors="replace") or wrote.partition(" now holds:\n")[2]
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    once = "uniq -c" in command and len(lines) > 3 and all(line.startswith("1 ") for line in lines)
    if not lines or not (once or all(re.fullmatch(r"-|\[[^\]]*|[^\[]*\]|[^\"]*\"[^\"]*", line) for line in lines)):
        return ""
    first = await beginnings(command, sandbox, lines=1)
    name, _, line = first.partition(" begins with:\n")
    words = line.split("\n")[0].split()[:MAX_FIELDS]
    numbered = " ".join(f"${place}={word}" for place, word in enumerate(words, 1))
    return f"These are not the fields you want. In the first line of {name} awk has: {numbered}" if words else ""


def of_command(command: str, output: CommandOutput) -> str:
    """What to tell the bot about `command` beside its output; "" for nothing."""
    said = (Said.of(text).spoken for text in _said(command, output)) if len(command) <= MAX_LOOKED_AT else ()
    return "\n".join(dict.fromkeys(said))


def _said(command: str, output: CommandOutput) -> Iterator[str]:
    failed, printed = bool(output.exit_code), output.output[:MAX_LOOKED_AT].decode(errors="replace")
    for rule in _RULES:
        found = rule.command.search(command)
        if found and rule.failed == failed and (rule.printed is None or rule.printed.search(printed)):
            yield rule.words if isinstance(rule.words, str) else rule.words(found)
    if failed:
        yield from (said for look in errors.WAYS_OUT if (said := look(command, printed)))
    if output.exit_code == _NOT_FOUND:
        yield from (way_out for name, way_out in _MISSING.items() if f": {name}: command not found" in printed)


def _words(command: str) -> list[str]:
    """What may be the name of a file, in the beginning of a command."""
    return [word for word in _WORD.findall(command[:MAX_LOOKED_AT]) if word.strip("./-")]


async def beginnings(command: str, sandbox: Sandbox, lines: int = FIRST_LINES) -> str:
    """How the text files begin that `command` names; "" when it names none, or they cannot be read."""
    try:
        argv = ["sh", "-c", _BEGIN, "sh", str(lines), *dict.fromkeys(_words(command))]
        result = await sandbox.exec(argv, timeout_s=5, max_output_bytes=4096)
        text = result.stdout.decode().strip()
    except (ActionFailed, UnicodeDecodeError):
        return ""
    return text if all(char.isprintable() or char in "\n\t" for char in text) else ""
