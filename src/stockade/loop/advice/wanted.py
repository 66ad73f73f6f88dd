"""What the words of a task plainly want of the files it names, held against what they hold."""

import re
from collections.abc import Mapping

from stockade.loop.advice.said import INSTEAD

MAX_LINES = 200
PROGRAMS = (".py", ".sh", ".pl", ".js", ".rb")
"""What a task says of these files is about what they print."""
MAX_SHOWN = 60
FILE_NAME = re.compile(r"(?<![\w./:@*-])\w[\w/-]+(?:\.\w+)*\.(?!com\b|org\b|net\b|io\b)[a-z]\w{1,4}\b(?![\w/*])")
SUFFIX_FILES = re.compile(r"(?<![\w*])\*?(?P<suffix>\.\w{1,5})[ -]files?\b")
TO_EMPTY = re.compile(r"\b(?:empt(?:y|ied)|clear(?:ed)?|truncated?|wiped?|zero bytes)\b", re.IGNORECASE)
"""A file that holds nothing may be what is wanted."""
_ONLY_NUMBER = re.compile(
    r"\b(?:only|just|nothing but|write|put|save|store) (?:only |just )?(?:the |its |a )?(?:total )?"
    r"(?:number|sum|count|total|mean|average)\b(?!.*\b(?:each|every|per)\b)",
    re.IGNORECASE | re.DOTALL,
)
_NUMBER = re.compile(r"[-+]?[\d.,]*\d[\d.,]*\s?%?")
_CASE = re.compile(r"\b(?:in|to|into) (?:all )?(?P<case>upper|lower)[ -]?case\b|\bin capitals?\b", re.IGNORECASE)
_SAMPLE = re.compile(r"\b(?:such as|like|for example|e\.g\.):? (?P<sample>[^\n{}()\"']{3,40})$")
_ONLY = re.compile(
    r"\b(?:only|just) (?:the |its |their |a )?(?P<what>[\w' -]{1,60}?) (?:in|into|to|as)\b", re.IGNORECASE
)
_NUMBERS = re.compile(r"\b(?:numbers?|counts?|sums?|totals?|lines?|dates?|times?|rows?)\b")
_COUNTED = re.compile(r"\s*\d+\s+(?=\S)")
UNCOUNTED = "sed 's/^ *[0-9]*[[:blank:]]*//'"
"""Takes the number before a line away, as `uniq -c` writes it."""
_LIST = re.compile(r"\bone (?:\w+ )?(?:on|per|in) (?:each|every|a|its own)? ?line\b|\beach on (?:a|its own) line\b")


def unlike(task: str, contents: Mapping[str, str]) -> list[str]:
    """What `contents` (paths and texts) lack of what the task asks, in words for the bot."""
    names = FILE_NAME.findall(task)
    named = {path: text for path, text in contents.items() if path in names and not path.endswith(PROGRAMS)}
    return [
        *_no_numbers(task, named),
        *(said for path, text in named.items() for rule in _RULES if (said := rule(task, path, text)) is not None),
    ]


def numbers(task: str, contents: Mapping[str, str]) -> list[str]:
    """Those of the files for a number that hold one: there is nothing else to look at in them."""
    if not _ONLY_NUMBER.search(task):
        return []
    named = FILE_NAME.findall(task)
    return [path for path, text in contents.items() if path in named and is_number(text)]


def for_a_number(task: str, contents: Mapping[str, str]) -> list[str]:
    """Those that should hold a number and do not."""
    named = FILE_NAME.findall(task) if _ONLY_NUMBER.search(task) else []
    plain = [path for path in contents if path in named and not path.endswith(PROGRAMS)]
    return [path for path in plain if not is_number(contents[path])]


def is_number(text: str) -> bool:
    return len(text) <= MAX_SHOWN and _NUMBER.fullmatch(text.strip()) is not None


def _no_numbers(task: str, named: Mapping[str, str]) -> list[str]:
    return [
        f"The task wants only a number in {path}, and it holds something else. Let a command write it: COMMAND > {path}"
        for path in for_a_number(task, named)
    ]


def _case(task: str, path: str, text: str) -> str | None:
    if not (found := _CASE.search(task)):
        return None
    case = (found["case"] or "upper").lower()
    if text == (text.lower() if case == "lower" else text.upper()):
        return None
    return f"{path} is not in {case} case. {INSTEAD}{in_case(task, path, f'{path}.new')} && mv {path}.new {path}"


def in_case(task: str, path: str, out: str) -> str | None:
    """A command for the text of `path` in upper or lower case, where the task wants that."""
    if not (found := _CASE.search(task)):
        return None
    lower = (found["case"] or "upper").lower() == "lower"
    return f"tr {'[:upper:] [:lower:]' if lower else '[:lower:] [:upper:]'} < {path} > {out}"


def _unlike_sample(task: str, path: str, text: str) -> str | None:
    """A sample at the end of the task, of words and numbers, and not one line of that shape."""
    found = _SAMPLE.search(task.rstrip(" ."))
    wanted = _shape(found["sample"]) if found else ""
    lines = text.splitlines()[:MAX_LINES]
    if found is None or set(wanted) != {"W", "N"} or any(_shape(line) == wanted for line in lines):
        return None
    have = lines[0].strip()[:MAX_SHOWN]
    said = f"The task wants lines such as {found['sample']}, and those of {path} are such as {have}"
    turned = all(_shape(line) == wanted[::-1] for line in lines if line.strip()) and len(wanted) == 2
    way = f". {INSTEAD}awk '{{print $2, $1}}' {path} > {path}.new && mv {path}.new {path}"
    return said + way if turned else said


def _shape(line: str) -> str:
    """A letter for each word: W for one of letters, N for a number, and a dot for all others."""
    words = re.split(r"[\s:=,]+", line.strip())
    return "".join("W" if word.isalpha() else "N" if _NUMBER.fullmatch(word) else "." for word in words)


def _several(task: str, path: str, text: str) -> str | None:
    """Where one thing was wanted on each line, and every line has several, with as many commas."""
    commas = {line.count(",") for line in text.splitlines()[:MAX_LINES] if line.strip()}
    if path.endswith(".csv") or not _LIST.search(task) or len(commas) != 1 or commas == {0}:
        return None
    return f"The task wants one on each line, and the lines of {path} hold several things."


def wants_no_count(task: str, text: str) -> bool:
    """Whether `text` is one line with a number before what the task wants alone."""
    found = _ONLY.search(task)
    lines = text.strip().splitlines()
    if found is None or _NUMBERS.search(found["what"]) or len(lines) != 1:
        return False
    return _COUNTED.match(lines[0]) is not None


def _counted(task: str, path: str, text: str) -> str | None:
    if not wants_no_count(task, text):
        return None
    return f"There is a number too much in {path}. {INSTEAD}{UNCOUNTED.replace('sed', 'sed -i', 1)} {path}"


_RULES = (_case, _unlike_sample, _several, _counted)
