"""Texts that are surely not meant so: a command where its output was wanted, and what would be lost of a file."""

import json
import re
import shlex
from collections.abc import Sequence

from stockade.core.actions import Action, CommandOutput, EditFile, ReadFile, Shell, WriteFile
from stockade.core.errors import ActionFailed
from stockade.core.ports import Sandbox
from stockade.loop.advice import commands
from stockade.loop.advice.said import INSTEAD, Said
from stockade.loop.advice.tables import selected
from stockade.loop.advice.wanted import FILE_NAME, in_case
from stockade.loop.state import Done

MAX_REPLACED_BYTES = 1500
MAX_LOOKED_AT = 400
"""Characters of a text: a longer one is no single command."""
_SCRIPTS = re.compile(r"\.(?:sh|bash|py|md|rst|mk|ya?ml|toml|js|ts|pl|rb)$|(?:^|/)(?:Makefile|Dockerfile|\.\w+)$")
_COMMAND_LINE = re.compile(
    r"""\$\([^)]+\)
    | ^(?:cat|grep|awk|sed|wc|jq|find|ls|sort|cut|head|tail|tr|python3?|git|tar|du|date)\s.*(?:\s\||\s-\w|>)""",
    re.VERBOSE,
)
MAX_NAMES = 3
MIN_LINES = 3
_OTHERS_STAY = re.compile(
    r"\b(?:other|remaining) \w+ (?:must |should )?(?:stays?|remains?|keeps?|untouched|unchanged|as (?:they|it))"
    r"|\b(?:leave|keep) (?:the rest|all (?:the )?others?|everything else|the other \w+)\b"
    r"|\b(?:the rest|everything else|nothing else) (?:must |should )?(?:stays?|remains?|changes?|may change)\b",
    re.IGNORECASE,
)
_COPY = re.compile(r"\b(?:cop(?:y|ies|ied)|duplicate|same|backup|rename|move)\b", re.IGNORECASE)
MAX_ERROR_CHARS = 200
_TO_ADD = re.compile(r"\b(?:add|append|put in|insert|at the end of|must stay|stays? (?:as|in))\b", re.IGNORECASE)
_FROM_FILE = re.compile(r"[\w./-]+\.\w+\s*\|\s*(?P<way>(?:tail|head|sort|uniq|wc|grep|cut|tr|awk|sed)\b.*)")
_TO_MEND = re.compile(
    r"\b(?:fix|mend|repair|change|edit|modify|correct) (?:the (?:file|program|script) )?(?P<file>[\w/-]+(?:\.\w+)+)\b",
    re.IGNORECASE,
)
_SUBSTITUTED = re.compile(r"[\"']?\$\(([^()]+)\)[\"']?")


async def doubt(
    action: WriteFile, task: str, done: Sequence[Done], shown: Sequence[str], sandbox: Sandbox
) -> str | None:
    """Why `action` is not what was meant; None when nothing is known against it. Raises SandboxDied."""
    held = await _held(action.path, sandbox)
    told = (task, *shown)
    return (
        _of_many(action, held)
        or _of_text(action, task)
        or _of_quotes(action, held)
        or _of_no_change(action, held, done)
        or _of_another_file(action, held, task)
        or await _of_copying(action, task, sandbox)
        or _of_adding(action, held, task, done)
        or (None if held else await _of_no_text(action, task, sandbox))
        or _of_replacing(action, held, done, told)
        or _of_no_json(action, held)
        or _of_every_line(action, held, task)
    )


def _of_many(action: WriteFile, held: str) -> str | None:
    """`src/*.py` would be one file of that name."""
    if held or "*" not in action.path:
        return None
    return f"write_file writes one file, and {action.path} stands for many. Change them by a command"


def _of_text(action: WriteFile, task: str) -> str | None:
    line = action.content.strip()
    if len(line) > MAX_LOOKED_AT or "\n" in line or line.startswith("#!"):
        return None
    if _SCRIPTS.search(action.path):
        return None
    if _FROM_FILE.fullmatch(line):
        line = f"cat {line}"
    elif not _COMMAND_LINE.search(line):
        return None
    substituted = _SUBSTITUTED.fullmatch(line)
    command = substituted[1] if substituted else f'echo "{line}"' if "$(" in line else line
    way = command if ">" in command else f"{command} > {shlex.quote(action.path)}"
    if (better := commands.doubt(way, task)) is not None:
        way = Said.of(better).command or way
    return f"{action.path} would hold the words of a command, and nothing would run it. {INSTEAD}{way}"


def _of_quotes(action: WriteFile, held: str) -> str | None:
    """What a review showed in quotes is written with the quotes."""
    content = action.content.strip()
    if held and content[:1] in ("'", '"') and content == f"{content[0]}{held}{content[0]}":
        return f"{action.path} holds exactly {held} already: the quotes were only around what you were shown"
    return None


def _of_adding(action: WriteFile, held: str, task: str, done: Sequence[Done]) -> str | None:
    """Something to be added to a file that is there, and written in the place of all that is in it."""
    lines, new = held.splitlines(), action.content.strip()
    if not new or not held or any(line.strip() and line in new for line in lines) or not _TO_ADD.search(task):
        return None
    said = f"write_file would take away all {len(lines)} lines of {action.path}. To add a line to it"
    plain = "\n" not in new and "'" not in new and not action.path.endswith((".json", ".xml", ".html"))
    return f"{said}. {INSTEAD}echo '{new}' >> {shlex.quote(action.path)}" if plain else f"{said}, write the others too."


async def _of_no_text(action: WriteFile, task: str, sandbox: Sandbox) -> str | None:
    """A file that is there and is no text: an archive, a picture."""
    script = '[ -s "$1" ] && [ -f "$1" ] && ! LC_ALL=C grep -Iq . -- "$1" && LC_ALL=C grep -qa "[^[:space:]]" -- "$1"'
    try:
        found = await sandbox.exec(["sh", "-c", script, "sh", action.path], timeout_s=5)
    except ActionFailed:
        return None
    if found.exit_code:
        return None
    said = f"{action.path} is there and is no text: write_file would destroy it"
    names = [name for name in dict.fromkeys(FILE_NAME.findall(task)) if not f"/{action.path}".endswith(f"/{name}")]
    if action.path.endswith(".zip") and _TO_ADD.search(task) and len(names) == 1:
        return f"{said}. {INSTEAD}zip {shlex.quote(action.path)} {names[0]}"
    return f"{said}. Use a command."


def _of_no_json(action: WriteFile, held: str) -> str | None:
    """Data that would be gone: another kind of value, or none, in the place of JSON that can be read."""
    if not action.path.endswith(".json") or not (before := _json(held)):
        return None
    after = _json(action.content)
    if type(after) is type(before) and after:
        return None
    what = "no JSON" if after is None else "nothing of what is in it now"
    way = f"jq 'FILTER' {shlex.quote(action.path)} > new.json && mv new.json {shlex.quote(action.path)}"
    return f"{action.path} would hold {what}. To change what is in it, let jq write it: {way}"


def _json(text: str) -> dict[str, object] | list[object] | None:
    """The object or list of `text`; None when it holds none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def _of_every_line(action: WriteFile, held: str, task: str) -> str | None:
    """All lines of a file changed, where the task says that some stay."""
    before, after = ([line.strip() for line in text.splitlines() if line.strip()] for text in (held, action.content))
    if len(before) < MIN_LINES or not _OTHERS_STAY.search(task) or set(before) & set(after):
        return None
    return f"that changes every line of {action.path}, and the task says that the others stay as they are"


def _of_no_change(action: WriteFile, held: str, done: Sequence[Done]) -> str | None:
    """What is there already, though with it a command has just failed."""
    ran = [entry for entry in done if isinstance(entry.observation, CommandOutput)]
    last = ran[-1].observation if ran else None
    if not held or held != action.content.strip() or not isinstance(last, CommandOutput) or not last.exit_code:
        return None
    command = ran[-1].step.action
    lines = [line.strip() for line in last.output.decode(errors="replace").splitlines() if line.strip()]
    wanted = [f"{line} " for line in lines if line.startswith("assert ")][-1:]
    words = "".join([*wanted, *lines[-1:]])[:MAX_ERROR_CHARS]
    name = command.command.strip()[:MAX_ERROR_CHARS] if isinstance(command, Shell) else "the command"
    return (
        f"{action.path} holds exactly that already, and with it `{name}` has failed: {words} Change what causes that."
    )


def _of_another_file(action: WriteFile, held: str, task: str) -> str | None:
    """The task says which file to mend, and this is another one that is there."""
    named = {found["file"] for found in _TO_MEND.finditer(task)}
    name = action.path.rpartition("/")[2]
    if not held or held == action.content.strip() or len(named) != 1 or re.search(rf"\b{re.escape(name)}\b", task):
        return None
    return f"the task is to change {named.pop()}, and {action.path} is another file, which is to stay as it is"


async def _of_copying(action: WriteFile, task: str, sandbox: Sandbox) -> str | None:
    """A file that the task names, given back word by word: it was meant to be changed on the way."""
    content = action.content.strip()
    names = [name for name in dict.fromkeys(FILE_NAME.findall(task)) if not f"/{action.path}".endswith(f"/{name}")]
    if not content or _COPY.search(task):
        return None
    for name in names[:MAX_NAMES]:
        if await _held(name, sandbox) == content:
            out = shlex.quote(action.path)
            way = in_case(task, name, out) or selected(name, content, task, out)
            better = f"{INSTEAD}{way}" if way else f"Let a command write it: COMMAND > {action.path}"
            return f"that is word by word what {name} holds. {better}"
    return None


def _of_replacing(action: WriteFile, held: str, done: Sequence[Done], told: Sequence[str]) -> str | None:
    """A file that is there, and that the bot has neither named nor been shown. Nothing for what is no small text."""
    name = action.path.rpartition("/")[2]
    if not held or held == action.content.strip() or _was_shown(held, told):
        return None
    if not name or any(name in _words(entry.step.action) for entry in done):
        return None
    text = held if len(held) <= MAX_REPLACED_BYTES else f"{held[:MAX_REPLACED_BYTES]}\n..."
    return (
        f"{action.path} is there already, and you have not looked at it. It holds:\n{text}\n"
        "write_file replaces all of that. Change only what the task asks for, and keep the rest."
    )


def _words(action: Action) -> str:
    match action:
        case Shell(command=text) | WriteFile(path=text) | EditFile(path=text) | ReadFile(path=text):
            return text
        case _:
            return action.model_dump_json()


async def _held(path: str, sandbox: Sandbox) -> str:
    """The plain text of a small file, without blanks around it; "" where there is none."""
    try:
        result = await sandbox.exec(["cat", "--", path], timeout_s=5, max_output_bytes=4 * MAX_REPLACED_BYTES)
        text = result.stdout.decode().strip()
    except (ActionFailed, UnicodeDecodeError):
        return ""
    plain = all(char.isprintable() or char in "\n\t" for char in text)
    return text if plain and not result.exit_code else ""


def _was_shown(held: str, told: Sequence[str]) -> bool:
    return any(all(line.strip() in text for line in held.splitlines()) for text in told)
