"""Git commands that do something else than what the task asks for: too much taken back, nothing ignored."""

import re
from collections.abc import Callable

from stockade.loop.advice.said import INSTEAD
from stockade.loop.advice.wanted import FILE_NAME, SUFFIX_FILES

MAX_NAMES = 2
"""Of files in a task: the one that it is about, and the one for the answer."""
_IGNORED = re.compile(r"(?P<echo>\becho\s+)['\"]?(?P<suffix>\.\w+)['\"]?(?=\s*>>?\s*\.gitignore\b)")
_TAKEN_BACK = re.compile(r"^git\s+(?:reset|checkout|restore|revert|stash)\b")
_TO_TAKE_BACK = re.compile(r"\b(?:bring back|last commit|restore|revert|undo|discard|by accident)\b", re.IGNORECASE)
_HARD = re.compile(r"\bgit\s+reset\s+--hard(?P<to>\s+\S+)?")
_TO_KEEP = re.compile(
    r"\bkeep\b[^.;]*\b(?:changes?|files?|work)\b|\bwithout losing\b|\bstays? in my files\b", re.IGNORECASE
)
_BY_MESSAGE = re.compile(r"\bgit\s+log\b.*--grep[= ]['\"]?(?P<word>\w+)['\"]?")


def _suffix_for_a_name(command: str, task: str) -> str | None:
    found = _IGNORED.search(command)
    if not found or found["suffix"] not in SUFFIX_FILES.findall(task):
        return None
    way = command.replace(found[0], f"{found['echo']}'*{found['suffix']}'")
    return f"{found['suffix']} alone ignores no file but one of that whole name. {INSTEAD}{way}"


def _all_taken_back(command: str, task: str) -> str | None:
    names = set(FILE_NAME.findall(task))
    if not _TAKEN_BACK.search(command) or not _TO_TAKE_BACK.search(task) or len(names) != 1:
        return None
    name = names.pop()
    return None if name in command else f"that is not about {name} alone. {INSTEAD}git checkout HEAD -- {name}"


def _work_thrown_away(command: str, task: str) -> str | None:
    found = _HARD.search(command)
    if not found or not _TO_KEEP.search(task):
        return None
    way = command.replace(found[0], f"git reset{found['to'] or ''}")
    return f"--hard throws the changes away, and the task is to keep them. {INSTEAD}{way}"


def _by_message(command: str, task: str) -> str | None:
    """`--grep` looks into the messages; what a commit changed is found by -S."""
    found, names = _BY_MESSAGE.search(command), list(dict.fromkeys(FILE_NAME.findall(task)))
    if not found or not 1 <= len(names) <= MAX_NAMES or re.search(r"\bmessages? (?:with|that|contain)", task):
        return None
    if not re.search(r"\b(?:brought|introduced|added|put|removed|deleted|changed)\b", task):
        return None
    wanted = " --format=%s" if re.search(r"\bmessage\b", task) else " --oneline"
    way = f"git log -S {found['word']}{wanted} -- {names[0]}{f' > {names[1]}' if len(names) == MAX_NAMES else ''}"
    return f"--grep looks into the messages, not into the files. {INSTEAD}{way}"


RULES: tuple[Callable[[str, str], str | None], ...] = (
    _suffix_for_a_name,
    _all_taken_back,
    _work_thrown_away,
    _by_message,
)
