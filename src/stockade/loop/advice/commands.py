"""Commands that do something else than what they look like, told by their words and those of the task."""

import re
from collections.abc import Callable

from stockade.loop.advice import archives, json_files, redirections, repository
from stockade.loop.advice.said import INSTEAD
from stockade.loop.advice.wanted import SUFFIX_FILES

MAX_LOOKED_AT = 400
"""Characters of a command: a longer one is a program, and not looked at."""
MAIL = "[[:alnum:]._%+-]+@[[:alnum:].-]+[[:alnum:]]"
_CLASS = re.compile(r"\bgrep\b(?!.*(?:\s-\w*F|--fixed-strings)).*?(?<![\[\\])\[(?P<word>[A-Za-z]{3,})\](?![*+?{])")
_UNQUOTED = re.compile(r"\b(?:mv|cp|rm)\s[^\n;|&\"']*\$[^\n;|&\"']*")
_GREP = re.compile(r"\bgrep\b(?P<flags>(?:\s+-[A-Za-z]+)*)")
_CSV = re.compile(r"\bawk\b(?!.*(?:\s-F|\bFS\s*=|--field-separator|--csv)).*\$[1-9].*?(?P<file>[\w./-]+\.csv)\b")
_WORD = r"'[^']*'|\"[^\"]*\"|[^\s|>;&]+"
_COUNT_SEARCHED = re.compile(
    rf"^wc\s+-l\s+(?:<\s*)?(?P<file>[\w./-]+)\s*\|\s*grep(?:\s+-(?P<flags>\w+))?\s+(?P<what>{_WORD})"
    r"(?:\s*\|\s*(?:awk|cut|wc)\b[^|;&>]*[^|;&>\s])*(?P<out>\s*>[^|;&]*)?$"
)
_BARE_KEY = re.compile(
    r"\bgrep\b(?P<flags>(?:\s+-\w+)*)\s+['\"]?(?P<key>\w+)(?P<colon>:\s*)(?P<value>\w+)['\"]?(?=\s+(?P<file>[\w./-]+\.json)\b)"
)
_DOWNWARDS = re.compile(r"\bsort\s+-r\s+(?=[\w./-]+\s*(?:>|$))")
_BACKWARDS = re.compile(
    r"\b(?:opposite|reversed?) order\b|\border\b[^.]{0,80}\breversed?\b|\bbackwards\b|\bback to front\b"
)
_HANDLES = re.compile(r"(?P<first>^|.*(?:&&|;)\s*)(?P<verb>(?:mv|cp|rm|gzip)(?:\s+-\w+)*)\s+(?P<words>[\w./ -]+)$")
_KIND_OF_FILES = re.compile(r"(?<![\w*])\*?\.?(?P<kind>[A-Za-z]\w{1,4}) files\b")
_ALL_MODES = re.compile(r"^chmod\s+-R\s+(?P<mode>[+=,\w-]+)\s+(?P<folder>[\w./-]+?)(?:/\*)?$")
_SUFFIX_SWAPPED = re.compile(r"\$\{(?P<name>\w+)%\.(?P<old>\w+)\}\.(?P<new>\w+)")
_LOOSE_MAIL = re.compile(
    r"\bgrep\b(?P<flags>(?:\s+-\w+)*)\s+(?P<quote>['\"])[^'\"]*(?:\[\^@[^\]]*\]|\\S|\.)[+*]@[^'\"]*(?P=quote)"
)
_LONG_LISTING_COUNTED = re.compile(r"\bls\s+-(?P<flags>[A-Za-z]*l[A-Za-z]*)(?P<what>(?:\s+[\w./-]+)?)\s*\|\s*wc\s+-l\b")
_SORTED_LISTING = re.compile(
    r"\bls\s+-\w*l\w*(?P<what>(?:\s+[\w./-]+)?)\s*\|\s*sort\b(?![^|]*-\w*k)[^|]*\|\s*(?:head|tail)\s+-n?\s*1\b"
    r"(?:\s*\|\s*awk[^|;&>]*[^|;&>\s])?"
)


def doubt(command: str, task: str) -> str | None:
    """Why `command` is not what was meant, with one that is; None when nothing is known against it."""
    command = command.strip()
    if len(command) > MAX_LOOKED_AT or "\n" in command:
        return None
    return next((said for rule in _RULES if (said := rule(command, task)) is not None), None)


def _letters_for_a_word(command: str, task: str) -> str | None:
    if (found := _CLASS.search(command)) and _is_word(word := found["word"]):
        return f"for grep [{word}] is any one of these letters. {INSTEAD}{_GREP.sub(_fixed, command)}"
    return None


def _is_word(letters: str) -> bool:
    """Nobody names a letter twice in a class of characters, nor writes one in capitals that are no range."""
    return len(set(letters)) < len(letters) or (letters.isupper() and len(letters) > 3)


def _fixed(found: re.Match[str]) -> str:
    """`grep` for fixed strings: the flags that name another kind of pattern are left out."""
    flags = [flag for word in found["flags"].split() if (flag := re.sub("[EGP]", "", word)) != "-"]
    return " ".join(["grep -F", *flags])


def _blanks_for_commas(command: str, task: str) -> str | None:
    if found := _CSV.search(command):
        split = re.sub(r"\bawk\b", "awk -F,", command)
        return f"awk splits at blanks, and {found['file']} is split at commas. {INSTEAD}{split}"
    return None


def _names_with_blanks(command: str, task: str) -> str | None:
    if _UNQUOTED.search(command):
        return f"names with blanks fall apart without quotes. {INSTEAD}{_UNQUOTED.sub(_quoted, command)}"
    return None


def _quoted(found: re.Match[str]) -> str:
    """A command with each of its words that holds a variable in quotes."""
    return re.sub(r"(?<=\s)(?=\S*\$)(\S+)", r'"\1"', found[0])


def _number_searched(command: str, task: str) -> str | None:
    if found := _COUNT_SEARCHED.search(command):
        flags = "".join(dict.fromkeys("c" + (found["flags"] or "")))
        way = f"grep -{flags} {found['what']} {found['file']}{found['out'] or ''}"
        return f"wc hands on a number and no lines: there is nothing to search in. {INSTEAD}{way}"
    return None


def _all_modes(command: str, task: str) -> str | None:
    found, suffixes = _ALL_MODES.search(command), set(SUFFIX_FILES.findall(task))
    if not found or len(suffixes) != 1:
        return None
    suffix = suffixes.pop()
    way = f"find {found['folder']} -name '*{suffix}' -exec chmod {found['mode']} {{}} +"
    return f"that changes every file, and the task speaks of {suffix} files. {INSTEAD}{way}"


def _other_kinds(command: str, task: str) -> str | None:
    """Files by their names, some of another kind than the one that the task speaks of."""
    found, kinds = _HANDLES.search(command), {kind.lower() for kind in _KIND_OF_FILES.findall(task)}
    if not found or len(kinds) != 1:
        return None
    suffix = f".{kinds.pop()}"
    words = found["words"].split()
    files = [word for word in words if "." in word.strip("./")]
    meant = [word for word in files if word.lower().endswith(suffix)]
    if not meant or len(meant) == len(files) or len(files) < 3:
        return None
    kept = " ".join(word for word in words if word in meant or word not in files)
    other = next(word for word in files if word not in meant)
    return f"{other} is no {suffix} file. {INSTEAD}{found['first']}{found['verb']} {kept}"


def _not_backwards(command: str, task: str) -> str | None:
    if not _DOWNWARDS.search(command) or not _BACKWARDS.search(task) or re.search(r"\balphabet", task):
        return None
    return f"that sorts the lines, and does not turn their order round. {INSTEAD}{_DOWNWARDS.sub('tac ', command)}"


def _bare_key(command: str, task: str) -> str | None:
    if not (found := _BARE_KEY.search(command)):
        return None
    way = command.replace(found[0], f"grep{found['flags']} '.{found['key']}.{found['colon']}{found['value']}'")
    return f"in {found['file']} the key {found['key']} stands in quotes. {INSTEAD}{way}"


def _suffix_lost(command: str, task: str) -> str | None:
    found = _SUFFIX_SWAPPED.search(command)
    if not found or not re.search(rf"\.{found['old']}\.{found['new']}\b", task):
        return None
    way = command.replace(found[0], f"${{{found['name']}}}.{found['new']}")
    return f"that takes .{found['old']} away, and the task keeps it. {INSTEAD}{way}"


def _loose_mail(command: str, task: str) -> str | None:
    found = _LOOSE_MAIL.search(command)
    if not found or "o" not in found["flags"]:
        return None
    flags = "".join(dict.fromkeys(re.sub(r"[^a-zA-DFH-OQ-Z]", "", found["flags"]) + "E"))
    way = command.replace(found[0], f"grep -{flags} '{MAIL}'")
    return f"that takes what stands around an e-mail address too. {INSTEAD}{way}"


def _sorted_listing(command: str, task: str) -> str | None:
    found = _SORTED_LISTING.search(command)
    large = re.search(r"\b(?:larg|bigg)est\b", task)
    if not found or not (large or re.search(r"\bsmallest\b", task)):
        return None
    way = command.replace(found[0], f"ls -S{'' if large else 'r'}{found['what']} | head -n 1")
    return f"that sorts by the first column, the permissions, and not by size. {INSTEAD}{way}"


def _total_counted(command: str, task: str) -> str | None:
    found = _LONG_LISTING_COUNTED.search(command)
    if not found or "d" in found["flags"] or re.search(r"\.\w+$", found["what"]):
        return None
    hidden = "A" if {"a", "A"} & set(found["flags"]) else "1"
    way = command.replace(found[0], f"ls -{hidden}{found['what']} | wc -l")
    return f"ls -{found['flags']} prints more than names: a first line with the total. {INSTEAD}{way}"


_RULES: tuple[Callable[[str, str], str | None], ...] = (
    _letters_for_a_word,
    _blanks_for_commas,
    _names_with_blanks,
    _number_searched,
    _other_kinds,
    _not_backwards,
    _bare_key,
    _all_modes,
    _suffix_lost,
    _loose_mail,
    _sorted_listing,
    _total_counted,
    *redirections.RULES,
    *archives.RULES,
    *repository.RULES,
    *json_files.RULES,
)
