"""Commands that do something else than what they look like, told by their words and those of the task."""

import re
from collections.abc import Callable

from stockade.loop.advice import json_files, repository
from stockade.loop.advice.said import INSTEAD
from stockade.loop.advice.wanted import SUFFIX_FILES

MAX_LOOKED_AT = 400
"""Characters of a command: a longer one is a program, and not looked at."""
MAIL = "[[:alnum:]._%+-]+@[[:alnum:].-]+[[:alnum:]]"
_CLASS = re.compile(r"\bgrep\b(?!.*(?:\s-\w*F|--fixed-strings)).*?(?<![\[\\])\[(?P<word>[A-Za-z]{3,})\](?![*+?{])")
_COUNTED = re.compile(r"^(?P<wc>wc\s+-[lwcm])\s+(?P<file>[\w./-]+)\s*>\s*(?P<out>[\w./-]+)$")
_UNQUOTED = re.compile(r"\b(?:mv|cp|rm)\s[^\n;|&\"']*\$[^\n;|&\"']*")
_GREP = re.compile(r"\bgrep\b(?P<flags>(?:\s+-[A-Za-z]+)*)")
_CSV = re.compile(r"\bawk\b(?!.*(?:\s-F|\bFS\s*=|--field-separator|--csv)).*\$[1-9].*?(?P<file>[\w./-]+\.csv)\b")
_WORD = r"'[^']*'|\"[^\"]*\"|[^\s|>;&]+"
_COUNT_SEARCHED = re.compile(
    rf"^wc\s+-l\s+(?P<file>[\w./-]+)\s*\|\s*grep(?:\s+-(?P<flags>\w+))?\s+(?P<what>{_WORD})"
    r"(?:\s*\|\s*(?:awk|cut|wc)\b[^|;&>]*[^|;&>\s])*(?P<out>\s*>[^|;&]*)?$"
)
_ARCHIVE_LISTED = re.compile(
    r"\bls(?:\s+-\w+)*\s+(?P<file>[\w./-]+\.(?:zip|jar|tar|tgz|tar\.\w{2,4}))\s*\|\s*wc(?:\s+-l)?"
)
_PACKS = re.compile(r"\b(?:(?P<tar>tar)\s+(?:-\w*c|c\w*\b|--create)|zip\s)")
_LEFT_OUT = re.compile(
    r"\b(?:without|except(?: for)?|excluding|leav\w+ out|but not|other than)\b[^.;\n]{0,30}?"
    r"\s\*?(?P<suffix>\.\w{1,5})\b"
)
_BARE_KEY = re.compile(
    r"\bgrep\b(?P<flags>(?:\s+-\w+)*)\s+['\"]?(?P<key>\w+)(?P<colon>:\s*)(?P<value>\w+)['\"]?(?=\s+(?P<file>[\w./-]+\.json)\b)"
)
_DOWNWARDS = re.compile(r"\bsort\s+-r\s+(?=[\w./-]+\s*(?:>|$))")
_BACKWARDS = re.compile(r"\b(?:opposite|reversed?) order\b|\border\b[^.]*\breversed?\b|\bbackwards\b|\bback to front\b")
_STATUS_TO_FILE = re.compile(r"^(?P<way>[^|;&>]*[^|;&>\s])\s*>\s*(?P<file>[\w./-]+)$")
_HANDLES = re.compile(r"(?P<first>^|.*(?:&&|;)\s*)(?P<verb>(?:mv|cp|rm|gzip)(?:\s+-\w+)*)\s+(?P<words>[\w./ -]+)$")
_KIND_OF_FILES = re.compile(r"(?<![\w*])\*?\.?(?P<kind>[A-Za-z]\w{1,4}) files\b")
_OTHER_PACKER = re.compile(
    r"\b(?:zip(?:\s+-\w+)*\s+(?P<tar>[\w./-]+\.(?:tar(?:\.gz)?|tgz))|tar\s+-?\w*c\w*\s+(?P<zip>[\w./-]+\.zip))\b"
)
_QUOTED = r"'[^']*'|\"[^\"]*\""
_PLAIN = rf"(?:{_QUOTED}|[^;&>'\"])"
_ONTO_ITSELF = re.compile(
    rf"^(?P<before>(?:{_PLAIN}*(?:&&|;)\s*)*)(?P<way>{_PLAIN}*?)\s*(?<!\d)>(?!>)\s*(?P<file>[\w./-]+)(?P<after>\s*(?:(?:&&|;).*)?)$"
)
_PRINTS = re.compile(r"\s*(?:echo|printf)\b")
_PLACEHOLDER = re.compile(
    r"(?<!<)<(?P<what>[A-Z][A-Z_-]+|[a-z_-]*(?:commit|hash|sha|file|path|name|branch|tag|number|id|value|message|folder))>"
    r"(?=$|[\s;&|)~^:])"
)
_COMMITS = re.compile(r"commit|hash|sha", re.IGNORECASE)
_ALL_MODES = re.compile(r"^chmod\s+-R\s+(?P<mode>[+=,\w-]+)\s+(?P<folder>[\w./-]+)$")
_SUFFIX_SWAPPED = re.compile(r"\$\{(?P<name>\w+)%\.(?P<old>\w+)\}\.(?P<new>\w+)")
_LOOSE_MAIL = re.compile(
    r"\bgrep\b(?P<flags>(?:\s+-\w+)*)\s+(?P<quote>['\"])[^'\"]*(?:\[\^@[^\]]*\]|\\S|\.)[+*]@[^'\"]*(?P=quote)"
)
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


def _name_after_number(command: str, task: str) -> str | None:
    if found := _COUNTED.search(command):
        alone = f"{found['wc']} < {found['file']} > {found['out']}"
        return f"{found['out']} would hold the name of the file after the number. {INSTEAD}{alone}"
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


def _archive_not_opened(command: str, task: str) -> str | None:
    if not (found := _ARCHIVE_LISTED.search(command)):
        return None
    lists = "unzip -Z1" if found["file"].endswith((".zip", ".jar")) else "tar -tf"
    way = command.replace(found[0], f"{lists} {found['file']} | grep -vc '/$'")
    return f"ls does not look into {found['file']}: it is one line. {INSTEAD}{way}"


def _packed_all(command: str, task: str) -> str | None:
    left_out, packs = _LEFT_OUT.search(task), _PACKS.search(command)
    if not left_out or not packs or re.search(r"--exclude|\s-x\b", command):
        return None
    glob = f"'*{left_out['suffix']}'"
    way = re.sub(r"\btar\b", f"tar --exclude={glob}", command, count=1) if packs["tar"] else f"{command} -x {glob}"
    return f"that packs the {left_out['suffix']} files too. {INSTEAD}{way}"


def _all_modes(command: str, task: str) -> str | None:
    found, suffixes = _ALL_MODES.search(command), set(SUFFIX_FILES.findall(task))
    if not found or len(suffixes) != 1:
        return None
    suffix = suffixes.pop()
    way = f"find {found['folder']} -name '*{suffix}' -exec chmod {found['mode']} {{}} +"
    return f"that changes every file, and the task speaks of {suffix} files. {INSTEAD}{way}"


def _other_packer(command: str, task: str) -> str | None:
    if not (found := _OTHER_PACKER.search(command)):
        return None
    if found["tar"] and (old := re.search(r"[\w./-]+\.zip\b", command)):
        place = f"{found['tar']}.files"
        way = f"mkdir {place} && unzip -q {old[0]} -d {place} && tar -czf {found['tar']} -C {place} . && rm -r {place}"
        return f"zip makes a zip file, whatever its name. {INSTEAD}{way}"
    if found["tar"]:
        return f"zip makes a zip file, whatever its name. Make {found['tar']} with tar."
    return f"tar makes a tar file, whatever its name. Make {found['zip']} with zip."


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


def _status_wanted(command: str, task: str) -> str | None:
    found = _STATUS_TO_FILE.search(command)
    if not found or not re.search(r"\bexit (?:status|code)\b", task) or "$?" in command:
        return None
    return f"that keeps what it prints, not its exit status. {INSTEAD}{found['way']}; echo $? > {found['file']}"


def _onto_itself(command: str, task: str) -> str | None:
    """The shell empties a file that it writes to before anything reads it."""
    found = _ONTO_ITSELF.search(command)
    if not found:
        return None
    file = found["file"]
    name = re.compile(rf"(?<![\w./-]){re.escape(file)}(?![\w./-])")
    if not any(name.search(part) and not _PRINTS.match(part) for part in found["way"].split("|")):
        return None
    after = re.sub(rf"^\s*&&\s*mv\s+{re.escape(file)}\s+{re.escape(file)}(?=\s|$)", "", found["after"])
    way = f"{found['before']}{found['way']} > {file}.new && mv {file}.new {file}{after}"
    return f"{file} would be empty before it is read. {INSTEAD}{way}"


def _placeholder(command: str, task: str) -> str | None:
    """`<COMMIT>`, as manuals write what the reader has to put there; the shell would read a file of that name."""
    found = _PLACEHOLDER.search(re.sub(_QUOTED, "''", command))
    if not found:
        return None
    said = f"<{found['what']}> stands for something that you have to put there. Find out what it is"
    return f"{said} first. {INSTEAD}git log --oneline -n 20" if _COMMITS.search(found["what"]) else f"{said}."


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


_RULES: tuple[Callable[[str, str], str | None], ...] = (
    _letters_for_a_word,
    _blanks_for_commas,
    _name_after_number,
    _names_with_blanks,
    _number_searched,
    _archive_not_opened,
    _packed_all,
    _other_packer,
    _other_kinds,
    _not_backwards,
    _status_wanted,
    _onto_itself,
    _placeholder,
    _bare_key,
    _all_modes,
    _suffix_lost,
    _loose_mail,
    _sorted_listing,
    *repository.RULES,
    *json_files.RULES,
)
