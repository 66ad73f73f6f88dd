"""Actions that are surely not meant so: asked about once, before they are done.

A small model acts on files it has never looked at, and gives `write_file` a command where its output was meant. Told
so afterwards it goes on from what it has spoiled; told so before, with the file's text where that is what it lacks, it
does it right (docs/ability.md). The same action a second time is done: the bot may know better.
"""

import re
from collections.abc import Sequence

from stockade.core.actions import INSTEAD, Action, EditFile, ReadFile, Refused, Shell, WriteFile
from stockade.core.errors import ActionFailed
from stockade.core.ports import Sandbox
from stockade.loop.state import Done

MAX_REPLACED_BYTES = 1500
MAX_LOOKED_AT = 400
"""Characters of a command or a text: a longer one is a program, and not looked at."""
_SCRIPTS = re.compile(r"\.(?:sh|bash|py|md|rst|mk|ya?ml|toml|js|ts|pl|rb)$|(?:^|/)(?:Makefile|Dockerfile|\.\w+)$")
_COMMAND_LINE = re.compile(
    r"""\$\([^)]+\)
    | ^(?:cat|grep|awk|sed|wc|jq|find|ls|sort|cut|head|tail|tr|python3?|git|tar|du|date)\s.*(?:\s\||\s-\w|>)""",
    re.VERBOSE,
)
_SUBSTITUTED = re.compile(r"[\"']?\$\(([^()]+)\)[\"']?")
_CLASS = re.compile(r"\bgrep\b(?!.*(?:\s-\w*F|--fixed-strings)).*?(?<![\[\\])\[(?P<word>[A-Za-z]{3,})\](?![*+?{])")
_COUNTED = re.compile(r"^\s*(?P<wc>wc\s+-[lwcm])\s+(?P<file>[\w./-]+)\s*>\s*(?P<out>[\w./-]+)\s*$")
_UNQUOTED = re.compile(r"\b(?:mv|cp|rm)\s[^\n;|&\"']*\$[^\n;|&\"']*")
_GREP = re.compile(r"\bgrep\b(?P<flags>(?:\s+-[A-Za-z]+)*)")
_CSV = re.compile(r"\bawk\b(?!.*(?:\s-F|\bFS\s*=|--field-separator|--csv)).*\$[1-9].*?(?P<file>[\w./-]+\.csv)\b")


async def about(action: Action, done: Sequence[Done], told: Sequence[str], sandbox: Sandbox) -> str | None:
    """Why `action` is not done yet, in words for the bot; None when it is. `told`: texts that the bot was given."""
    if any(isinstance(entry.observation, Refused) and entry.step.action == action for entry in done):
        return None
    match action:
        case Shell(command=command):
            return _of_command(command)
        case WriteFile():
            held = await _held(action.path, sandbox)
            return _of_text(action) or _of_quotes(action, held) or _of_replacing(action, held, done, told)
        case _:
            return None


def _of_command(command: str) -> str | None:
    if len(command) > MAX_LOOKED_AT or "\n" in command.strip():
        return None
    if (found := _CLASS.search(command)) and _is_word(word := found["word"]):
        return f"for grep [{word}] is any one of these letters. {INSTEAD}{_GREP.sub(_fixed, command.strip())}"
    if found := _CSV.search(command):
        split = re.sub(r"\bawk\b", "awk -F,", command.strip())
        return f"awk splits at blanks, and {found['file']} is split at commas. {INSTEAD}{split}"
    if found := _COUNTED.search(command):
        alone = f"{found['wc']} < {found['file']} > {found['out']}"
        return f"{found['out']} would hold the name of the file after the number. {INSTEAD}{alone}"
    if _UNQUOTED.search(command):
        return f"names with blanks fall apart without quotes. {INSTEAD}{_UNQUOTED.sub(_quoted, command.strip())}"
    return None


def _quoted(found: re.Match[str]) -> str:
    """A command with each of its words that holds a variable in quotes."""
    return re.sub(r"(?<=\s)(?=\S*\$)(\S+)", r'"\1"', found[0])


def _fixed(found: re.Match[str]) -> str:
    """`grep` for fixed strings: the flags that name another kind of pattern are left out."""
    flags = [flag for word in found["flags"].split() if (flag := re.sub("[EGP]", "", word)) != "-"]
    return " ".join(["grep -F", *flags])


def _is_word(letters: str) -> bool:
    """Nobody names a letter twice in a class of characters, nor writes one in capitals that are no range."""
    return len(set(letters)) < len(letters) or (letters.isupper() and len(letters) > 3)


def _of_text(action: WriteFile) -> str | None:
    line = action.content.strip()
    if len(line) > MAX_LOOKED_AT or "\n" in line or line.startswith("#!"):
        return None
    if _SCRIPTS.search(action.path) or not _COMMAND_LINE.search(line):
        return None
    substituted = _SUBSTITUTED.fullmatch(line)
    command = substituted[1] if substituted else f'echo "{line}"' if "$(" in line else line
    way = command if ">" in command else f"{command} > {action.path}"
    return f"{action.path} would hold the words of a command, and nothing would run it. {INSTEAD}{way}"


def _of_quotes(action: WriteFile, held: str) -> str | None:
    """What a review showed in quotes is written with the quotes."""
    content = action.content.strip()
    if held and content[:1] in ("'", '"') and content == f"{content[0]}{held}{content[0]}":
        return f"{action.path} holds exactly {held} already: the quotes were only around what you were shown"
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
