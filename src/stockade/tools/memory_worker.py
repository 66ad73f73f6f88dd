"""The commands of the memory, as Anthropic's memory tool defines them (docs.claude.com), and `clear`, as in Microbots.

Runs in a sandbox that sees the memory's folder at ROOT and no other file of the user's, so the kernel is the jail: what
a link leads to, also one swapped in between two looks, is not there. Standard input is one JSON object: `command`, its
`arguments` (paths plainly below ROOT), `wait_s` for the lock, `bounds` (toolbox.Bounds). Standard output is a JSON
[status, text]; the texts are that tool's own, since models were trained on them. Given to Python as text.
"""

import fcntl
import json
import os
import re
import stat
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = "/memories"
LISTED_LEVELS, MAX_DEPTH = 2, 8
_LOCK, _PART = Path(ROOT, ".lock"), Path(ROOT, ".part")
_LOCK_POLL_S = 0.02
_PLACES = 20
"""Of a text that stands in a file too often; more of them tell nobody more."""
_AROUND = 2
"""Lines shown before and after an edit."""
Entry = tuple[str, bool, int]
"""Path, whether it is a folder, bytes (of a folder those of all files below it)."""


class Refused(Exception):
    """What the model is told."""


def kind(path: str) -> str:
    """`file` or `folder`; "" where nothing is. Refused for a link, a device and the like, and below a link."""
    above = os.path.dirname(path)
    mode = os.lstat(path).st_mode if os.path.lexists(path) else 0
    if (mode and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)) or os.path.realpath(above) != above:
        raise Refused(f"{path} is neither a file nor a folder of the memory")
    return "file" if stat.S_ISREG(mode) else "folder" if mode else ""


def existing(path: str) -> str:
    """Its kind. Refused where nothing is."""
    if not (found := kind(path)):
        raise Refused(f"The path {path} does not exist. Please provide a valid path.")
    return found


def sum_of(found: Sequence[Entry]) -> int:
    return sum(size for _, is_folder, size in found if not is_folder)


def entries(folder: str) -> list[Entry]:
    """All below, sorted, a folder before what is in it. Links and the like are not there, nor what goes meanwhile."""
    found: list[Entry] = []
    for name in sorted(os.listdir(folder)):
        with suppress(OSError, Refused):
            path = f"{folder}/{name}"
            if name.startswith(".") or not (what := kind(path)):
                continue
            below = entries(path) if what == "folder" else []
            size = sum_of(below) if what == "folder" else os.lstat(path).st_size
            found += [(path, what == "folder", size), *below]
    return found


def read(path: str, limit: int) -> str:
    if existing(path) == "folder":
        raise Refused(f"{path} is a folder, not a file")
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise Refused(f"{path} is larger than {limit} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused(f"{path} is not text") from None


def sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def remove(path: str) -> None:
    """With all below it."""
    if stat.S_ISDIR(os.lstat(path).st_mode):
        for name in os.listdir(path):
            remove(f"{path}/{name}")
        os.rmdir(path)
    else:
        os.unlink(path)


def rows_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def numbered(rows: Sequence[str], first: int, last: int) -> str:
    return "\n".join(f"{number:>6}\t{rows[number - 1]}" for number in range(first, last + 1))


def snippet(text: str, first: int, last: int) -> str:
    """Lines around an edit of lines `first` to `last`, counted from 0."""
    rows = rows_of(text)
    return numbered(rows, max(1, first + 1 - _AROUND), min(len(rows), last + 1 + _AROUND))


def size_of(count: int) -> str:
    return f"{count}B" if count < 1024 else f"{count / 1024:.1f}K"


class Memory:
    """A method a command; whoever changes anything holds the lock."""

    def __init__(self, file_bytes: int, total_bytes: int, files: int) -> None:
        self.file_bytes, self.total_bytes, self.files = file_bytes, total_bytes, files

    def view(self, path: str, view_range: tuple[int, int] | None = None) -> str:
        if existing(path) == "file":
            return self._file(path, rows_of(read(path, self.file_bytes)), view_range)
        if view_range is not None:
            raise Refused(f"{path} is a folder: view_range is for files")
        found = entries(path)
        if not found:
            return f"{path} is empty."
        rows = [f"{size_of(sum_of(found))}\t{path}"]
        for inner, folder, size in found:
            if inner.count("/") - path.count("/") <= LISTED_LEVELS:
                name = inner if inner.isprintable() else repr(inner)[1:-1]
                rows.append(f"{size_of(size)}\t{name}{'/' if folder else ''}")
        return f"Here're the files and directories up to {LISTED_LEVELS} levels deep in {path}:\n" + "\n".join(rows)

    def _file(self, path: str, rows: list[str], lines: tuple[int, int] | None) -> str:
        first, last = lines or (1, len(rows))
        last = len(rows) if last == -1 else min(last, len(rows))
        if lines and not 1 <= first <= max(1, len(rows)):
            raise Refused(f"Invalid `view_range`: the file has {len(rows)} lines, [1, {len(rows)}]")
        if lines and last < first:
            raise Refused(f"Invalid `view_range`: [{first}, {last}] ends before it begins")
        if not rows:
            return f"{path} is an empty file."
        return f"Here's the content of {path} with line numbers:\n" + numbered(rows, first, last)

    def create(self, path: str, file_text: str) -> str:
        if kind(path):
            raise Refused(f"File {path} already exists: change it with str_replace or insert, or delete it first")
        self._write(path, file_text)
        return f"File created successfully at: {path}"

    def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        text = read(path, self.file_bytes)
        found = islice(re.finditer(f"(?={re.escape(old_str)})", text), _PLACES)
        places = [match.start() for match in found]
        if not places:
            raise Refused(
                f"No replacement was performed, old_str `{old_str[:200]}` did not appear verbatim in {path}. "
                f"View the file and copy the text exactly."
            )
        if len(places) > 1:
            lines = ", ".join(str(text.count("\n", 0, place) + 1) for place in places)
            raise Refused(
                f"No replacement was performed. Multiple occurrences of old_str `{old_str[:200]}` in lines: {lines}. "
                f"Please ensure it is unique"
            )
        changed = text[: places[0]] + new_str + text[places[0] + len(old_str) :]
        self._write(path, changed)
        first = text.count("\n", 0, places[0])
        return f"The memory file has been edited.\n{snippet(changed, first, first + new_str.count(chr(10)))}"

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """After line `insert_line`; 0 is the beginning."""
        lines = [f"{row}\n" for row in rows_of(read(path, self.file_bytes))]
        if not 0 <= insert_line <= len(lines):
            raise Refused(
                f"Invalid `insert_line` parameter: {insert_line}. It should be within the range of lines of the file: "
                f"[0, {len(lines)}]"
            )
        added = insert_text if insert_text.endswith("\n") else insert_text + "\n"
        changed = "".join([*lines[:insert_line], added, *lines[insert_line:]])
        self._write(path, changed)
        last = insert_line + added.count("\n") - 1
        return f"The file {path} has been edited.\n{snippet(changed, insert_line, last)}"

    def delete(self, path: str) -> str:
        existing(path)
        remove(path)
        sync(os.path.dirname(path))
        return f"Successfully deleted {path}"

    def rename(self, old_path: str, new_path: str) -> str:
        """Never over something that is there."""
        existing(old_path)
        if new_path.startswith(f"{old_path}/"):
            raise Refused(f"{old_path} cannot be moved into itself")
        found = entries(ROOT)
        below = [path.count("/") for path, _, _ in found if path.startswith(f"{old_path}/")]
        if max(below, default=old_path.count("/")) - old_path.count("/") + new_path.count("/") - 1 > MAX_DEPTH:
            raise Refused(f"more than {MAX_DEPTH} folders deep")
        self._check_count(len(found) - 1, new_path)
        if os.path.lexists(new_path) or kind(new_path):
            raise Refused(f"The destination {new_path} already exists")
        os.makedirs(os.path.dirname(new_path), exist_ok=True)
        os.rename(old_path, new_path)
        sync(os.path.dirname(old_path))
        sync(os.path.dirname(new_path))
        return f"Successfully renamed {old_path} to {new_path}"

    def clear(self, path: str) -> str:
        files = sum(not folder for _, folder, _ in entries(path))
        for name in os.listdir(path):
            if name != _LOCK.name:
                remove(f"{path}/{name}")
        sync(path)
        return f"The memory has been cleared: {files} file{'' if files == 1 else 's'} deleted."

    def _check_count(self, others: int, path: str) -> None:
        if others + path.count("/") - 1 > self.files:
            raise Refused(f"the memory has no room for more than {self.files} files; delete what is not needed")

    def _write(self, path: str, text: str) -> None:
        """Whole, on disk when this returns; what a killed one left half written is removed."""
        data = text.encode()
        if len(data) > self.file_bytes:
            raise Refused(f"{len(data)} bytes are too long for one file of the memory: {self.file_bytes} fit")
        others = [entry for entry in entries(ROOT) if entry[0] != path]
        left = self.total_bytes - sum_of(others)
        if len(data) > left:
            raise Refused(f"the memory is full: {max(0, left)} bytes are left; delete what is not needed any more")
        self._check_count(len(others), path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _PART.unlink(missing_ok=True)
        try:
            with _PART.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _PART.rename(path)
        except OSError:
            _PART.unlink(missing_ok=True)
            raise
        sync(os.path.dirname(path))


def lock(wait_s: float | None) -> None:
    """One at a time, over all processes of the machine; held until this one ends, however it does."""
    descriptor = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    end = time.monotonic() + (wait_s if wait_s is not None else float("inf"))
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise Refused(f"another run has kept the memory for {wait_s:g} s: nothing was changed") from None
            time.sleep(_LOCK_POLL_S)


def done(asked: dict[str, Any]) -> tuple[str, str]:
    """The status and the text."""
    try:
        if asked["command"] != "view":
            lock(asked["wait_s"])
        return "success", getattr(Memory(**asked["bounds"]), asked["command"])(**asked["arguments"])
    except Refused as error:
        return "error", str(error)
    except OSError as error:
        return "error", f"the memory cannot be used: {error.strerror or error}"


if __name__ == "__main__":
    os.umask(0o077)
    print(json.dumps(done(json.load(sys.stdin))))
