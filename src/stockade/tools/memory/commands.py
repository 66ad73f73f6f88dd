"""What the commands of the memory do and say, as Anthropic's memory tool defines them (docs.claude.com, memory tool).

Messages are that tool's own, since models were trained on them. `clear` is added, as in Microbots.
"""

from stockade.core.errors import ActionFailed
from stockade.tools.arguments import is_text
from stockade.tools.memory.folder import MemoryFolder
from stockade.tools.memory.paths import ROOT, Names, shown

LISTED_LEVELS = 2
_PLACES = 20
"""Of a text that stands in a file too often; more of them tell nobody more."""
_AROUND = 2
"""Lines shown before and after an edit."""


def view(folder: MemoryFolder, names: Names, lines: tuple[int, int] | None) -> str:
    if not folder.is_folder(names):
        return _file(folder.read(names), names, lines)
    if lines is not None:
        raise ActionFailed(f"{shown(names)} is a folder: view_range is for files")
    found = folder.entries(names)
    if not found:
        return f"{shown(names)} is empty."
    total = sum(entry.size for entry in found if not entry.is_folder)
    rows = [f"{_size(total)}\t{shown(names)}"]
    for entry in found:
        if len(entry.names) - len(names) <= LISTED_LEVELS:
            rows.append(f"{_size(entry.size)}\t{_printable(shown(entry.names))}{'/' if entry.is_folder else ''}")
    return f"Here're the files and directories up to {LISTED_LEVELS} levels deep in {shown(names)}:\n" + "\n".join(rows)


def create(folder: MemoryFolder, names: Names, text: str) -> str:
    _not_root(names, "created")
    _check_text(text)
    if folder.exists(names):
        raise ActionFailed(
            f"File {shown(names)} already exists: change it with str_replace or insert, or delete it first"
        )
    folder.write(names, text)
    return f"File created successfully at: {shown(names)}"


def str_replace(folder: MemoryFolder, names: Names, old: str, new: str) -> str:
    _check_text(new)
    text = folder.read(names)
    places = _places(text, old)
    if not places:
        raise ActionFailed(
            f"No replacement was performed, old_str `{old[:200]}` did not appear verbatim in {shown(names)}. "
            f"View the file and copy the text exactly."
        )
    if len(places) > 1:
        lines = ", ".join(str(text.count("\n", 0, place) + 1) for place in places)
        raise ActionFailed(
            f"No replacement was performed. Multiple occurrences of old_str `{old[:200]}` in lines: {lines}. "
            f"Please ensure it is unique"
        )
    changed = text[: places[0]] + new + text[places[0] + len(old) :]
    folder.write(names, changed)
    first = text.count("\n", 0, places[0])
    return f"The memory file has been edited.\n{_snippet(changed, first, first + new.count(chr(10)))}"


def insert(folder: MemoryFolder, names: Names, line: int, new: str) -> str:
    """`new` comes after line `line`; 0 is the beginning."""
    _check_text(new)
    lines = [f"{row}\n" for row in _rows(folder.read(names))]
    if not 0 <= line <= len(lines):
        raise ActionFailed(
            f"Invalid `insert_line` parameter: {line}. It should be within the range of lines of the file: "
            f"[0, {len(lines)}]"
        )
    added = new if new.endswith("\n") else new + "\n"
    changed = "".join([*lines[:line], added, *lines[line:]])
    folder.write(names, changed)
    return f"The file {shown(names)} has been edited.\n{_snippet(changed, line, line + added.count(chr(10)) - 1)}"


def delete(folder: MemoryFolder, names: Names) -> str:
    _not_root(names, "deleted (use clear to forget everything)")
    folder.delete(names)
    return f"Successfully deleted {shown(names)}"


def rename(folder: MemoryFolder, old: Names, new: Names) -> str:
    _not_root(old, "renamed")
    _not_root(new, "a new name")
    folder.rename(old, new)
    return f"Successfully renamed {shown(old)} to {shown(new)}"


def clear(folder: MemoryFolder, names: Names) -> str:
    """Of the root only, named by its path, so that nobody does it by chance."""
    if names:
        raise ActionFailed(f"clear forgets everything: its path is {ROOT}; to forget {shown(names)}, delete it")
    files = folder.clear()
    return f"The memory has been cleared: {files} file{'' if files == 1 else 's'} deleted."


def _not_root(names: Names, how: str) -> None:
    if not names:
        raise ActionFailed(f"{ROOT} itself cannot be {how}; write {ROOT}/NAME")


def _check_text(text: str) -> None:
    if not is_text(text):
        raise ActionFailed("the text holds a NUL byte or half a surrogate pair, which is no text")


def _places(text: str, old: str) -> list[int]:
    found, at = list[int](), text.find(old)
    while at >= 0 and len(found) < _PLACES:
        found.append(at)
        at = text.find(old, at + 1)
    return found


def _rows(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _file(text: str, names: Names, lines: tuple[int, int] | None) -> str:
    rows = _rows(text)
    first, last = lines or (1, len(rows))
    last = len(rows) if last == -1 else min(last, len(rows))
    if lines and not 1 <= first <= max(1, len(rows)):
        raise ActionFailed(f"Invalid `view_range`: the file has {len(rows)} lines, [1, {len(rows)}]")
    if lines and last < first:
        raise ActionFailed(f"Invalid `view_range`: [{first}, {last}] ends before it begins")
    if not rows:
        return f"{shown(names)} is an empty file."
    return f"Here's the content of {shown(names)} with line numbers:\n" + _numbered(rows, first, last)


def _numbered(rows: list[str], first: int, last: int) -> str:
    return "\n".join(f"{number:>6}\t{rows[number - 1]}" for number in range(first, last + 1))


def _snippet(text: str, first: int, last: int) -> str:
    """Lines around an edit of lines `first` to `last`, counted from 0."""
    rows = _rows(text)
    return _numbered(rows, max(1, first + 1 - _AROUND), min(len(rows), last + 1 + _AROUND))


def _size(count: int) -> str:
    return f"{count}B" if count < 1024 else f"{count / 1024:.1f}K"


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]
