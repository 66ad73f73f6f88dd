"""Commands whose `>` or `<` does not do what was meant."""

import re

from stockade.loop.advice.said import INSTEAD

_COUNTED = re.compile(r"^(?P<wc>wc\s+-[lwcm])\s+(?P<file>[\w./-]+)\s*>\s*(?P<out>[\w./-]+)$")
_STATUS_TO_FILE = re.compile(r"^(?P<way>[^|;&>]*[^|;&>\s])\s*>\s*(?P<file>[\w./-]+)$")
_QUOTED = r"'[^']*'|\"[^\"]*\""
_PLAIN = rf"(?:{_QUOTED}|[^;&>'\"])"
_ONTO_ITSELF = re.compile(
    rf"""
    ^(?P<before> (?: {_PLAIN}* (?:&&|;)\s* )* )        # commands that come first
    (?P<way> {_PLAIN}*? ) \s* (?<!\d)>(?!>) \s*       # the one that writes
    (?P<file> [\w./-]+ )
    (?P<after> \s* (?: (?:&&|;) .* )? )$
    """,
    re.VERBOSE,
)
_PRINTS = re.compile(r"\s*(?:echo|printf)\b")
_PLACEHOLDER = re.compile(
    r"(?<!<)<(?P<what>[A-Z][A-Z_-]+|[a-z_-]*(?:commit|hash|sha|file|path|name|branch|tag|number|id|value|message|folder))>"
    r"(?=$|[\s;&|)~^:])"
)
_COMMITS = re.compile(r"commit|hash|sha", re.IGNORECASE)


def _name_after_number(command: str, task: str) -> str | None:
    if found := _COUNTED.search(command):
        alone = f"{found['wc']} < {found['file']} > {found['out']}"
        return f"{found['out']} would hold the name of the file after the number. {INSTEAD}{alone}"
    return None


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


RULES = (_name_after_number, _status_wanted, _onto_itself, _placeholder)
