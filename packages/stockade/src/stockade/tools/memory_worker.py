"""The commands of the memory, as Anthropic's memory tool defines them (docs.claude.com), and `clear`, as in Microbots.

Runs in a sandbox that sees the memory's folder at ROOT and no other file of the user's, so the kernel is the jail: what
a link leads to, also one swapped in between two looks, is not there. Standard input is one JSON object: `command`, its
`arguments`, `wait_s` for the lock, `bounds` (memory.Bounds). Standard output is a JSON [status, text]; the texts are
that tool's own, since models were trained on them. Given to Python as text: it imports nothing of Stockade.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import stat
import sys
from contextlib import suppress
from itertools import islice
from typing import Any

ROOT = "/memories"
LISTED_LEVELS = 2
_LOCK, _PART = f"{ROOT}/.lock", f"{ROOT}/.part"
_AROUND = 2
"""Lines shown before and after an edit."""
Entry = tuple[str, bool, int]
"""Path, whether it is a folder, bytes (of a folder those of all files below it)."""


class Refused(Exception):
    """What the model is told."""


def full_path(path: str) -> str:
    """`/memories/...` of a path as a model writes it: small ones write `n.md`, `memories/n.md` and `/memories/n.md`."""
    names = [name for name in path.strip().split("/") if name not in ("", ".")]
    if not path.strip() or not path.isprintable():
        raise Refused(f"the path is empty or has characters that no name has; write {ROOT}/NAME")
    if names and f"/{names[0]}" == ROOT:
        names = names[1:]
    elif names and path.strip().startswith("/"):
        raise Refused(f"{path.strip()[:200]} is not in the memory: paths begin with {ROOT}/")
    if any(name.startswith(".") for name in names):
        raise Refused(f"{path[:200]}: names in the memory do not begin with a dot, and '..' leads out of it")
    return "/".join((ROOT, *names))


def kind(path: str) -> str:
    """`file` or `folder`; "" where nothing is. Refused for a link, a device and the like, and below a link."""
    mode = os.lstat(path).st_mode if os.path.lexists(path) else stat.S_IFDIR
    if os.path.realpath(path) != path or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise Refused(f"{path} is neither a file nor a folder of the memory")
    return "file" if stat.S_ISREG(mode) else "folder" if os.path.lexists(path) else ""


def existing(path: str) -> str:
    """Its kind. Refused where nothing is."""
    if not (found := kind(path)):
        raise Refused(f"The path {path} does not exist. Please provide a valid path.")
    return found


def entries(folder: str) -> list[Entry]:
    """All below, sorted, a folder before what is in it. Links and the like are not there, nor what goes meanwhile."""
    found: list[Entry] = []
    for name in sorted(os.listdir(folder)):
        with suppress(OSError, Refused):
            path = f"{folder}/{name}"
            if name.startswith(".") or not (what := kind(path)):
                continue
            below = entries(path) if what == "folder" else []
            size = sum(entry[2] for entry in below if not entry[1]) if what == "folder" else os.lstat(path).st_size
            found += [(path, what == "folder", size), *below]
    return found


def rows_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def numbered(rows: list[str], first: int, last: int) -> str:
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
        if existing(path) == "folder":
            if view_range is not None:
                raise Refused(f"{path} is a folder: view_range is for files")
            return self._listing(path)
        rows = rows_of(self._read(path))
        first, last = view_range or (1, -1)
        last = len(rows) if last == -1 else min(last, len(rows))
        if view_range and not (1 <= first <= max(1, len(rows)) and first <= max(1, last)):
            raise Refused(f"Invalid `view_range`: {list(view_range)}. The file has {len(rows)} lines, [1, {len(rows)}]")
        if not rows:
            return f"{path} is an empty file."
        return f"Here's the content of {path} with line numbers:\n" + numbered(rows, first, last)

    def _listing(self, path: str) -> str:
        found = entries(path)
        if not found:
            return f"{path} is empty."
        rows = [f"{size_of(sum(size for _, folder, size in found if not folder))}\t{path}"]
        for inner, folder, size in found:
            if inner.count("/") - path.count("/") <= LISTED_LEVELS:
                name = inner if inner.isprintable() else repr(inner)[1:-1]
                rows.append(f"{size_of(size)}\t{name}{'/' if folder else ''}")
        return f"Here're the files and directories up to {LISTED_LEVELS} levels deep in {path}:\n" + "\n".join(rows)

    def create(self, path: str, file_text: str) -> str:
        if kind(path):
            raise Refused(f"File {path} already exists: change it with str_replace or insert, or delete it first")
        self._write(path, file_text)
        return f"File created successfully at: {path}"

    def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        text = self._read(path)
        places = [found.start() for found in islice(re.finditer(f"(?={re.escape(old_str)})", text), 20)]
        if len(places) != 1 or not old_str:
            lines = ", ".join(str(text.count("\n", 0, place) + 1) for place in places)
            why = f"Multiple occurrences of old_str `{old_str[:200]}` in lines: {lines}. Please ensure it is unique"
            if not places:
                why = f"old_str `{old_str[:200]}` did not appear verbatim in {path}. View the file, copy it exactly."
            raise Refused(f"No replacement was performed. {why}")
        first, changed = text.count("\n", 0, places[0]), text.replace(old_str, new_str, 1)
        self._write(path, changed)
        return f"The memory file has been edited.\n{snippet(changed, first, first + new_str.count(chr(10)))}"

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """After line `insert_line`; 0 is the beginning."""
        lines = [f"{row}\n" for row in rows_of(self._read(path))]
        if not 0 <= insert_line <= len(lines):
            raise Refused(
                f"Invalid `insert_line` parameter: {insert_line}. It should be within the range of lines of the file: "
                f"[0, {len(lines)}]"
            )
        added = insert_text.removesuffix("\n") + "\n"
        changed = "".join([*lines[:insert_line], added, *lines[insert_line:]])
        self._write(path, changed)
        last = insert_line + added.count("\n") - 1
        return f"The file {path} has been edited.\n{snippet(changed, insert_line, last)}"

    def delete(self, path: str) -> str:
        shutil.rmtree(path) if existing(path) == "folder" else os.unlink(path)
        return f"Successfully deleted {path}"

    def rename(self, old_path: str, new_path: str) -> str:
        """Never over something that is there."""
        existing(old_path)
        if kind(new_path):
            raise Refused(f"The destination {new_path} already exists")
        if new_path.startswith(f"{old_path}/"):
            raise Refused(f"{old_path} cannot be moved into itself")
        self._check_count(len(entries(ROOT)) - 1, new_path)
        os.makedirs(os.path.dirname(new_path), exist_ok=True)
        os.rename(old_path, new_path)
        return f"Successfully renamed {old_path} to {new_path}"

    def clear(self, path: str) -> str:
        if path != ROOT:
            raise Refused(f"clear forgets everything: its path is {ROOT}; to forget {path}, delete it")
        files = sum(not folder for _, folder, _ in entries(ROOT))
        for one in list(os.scandir(ROOT)):
            if one.path != _LOCK:
                shutil.rmtree(one.path) if one.is_dir(follow_symlinks=False) else os.unlink(one.path)
        return f"The memory has been cleared: {files} file{'' if files == 1 else 's'} deleted."

    def _read(self, path: str) -> str:
        if existing(path) == "folder":
            raise Refused(f"{path} is a folder, not a file")
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            data = file.read(self.file_bytes + 1)
        if len(data) > self.file_bytes:
            raise Refused(f"{path} is larger than {self.file_bytes} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise Refused(f"{path} is not text") from None

    def _check_count(self, others: int, path: str) -> None:
        if others + path.count("/") - 1 > self.files:
            raise Refused(f"the memory has no room for more than {self.files} files; delete what is not needed")

    def _write(self, path: str, text: str) -> None:
        """Whole, on disk when this returns; what a killed one left half written is written over."""
        data = text.encode()
        if len(data) > self.file_bytes:
            raise Refused(f"{len(data)} bytes are too long for one file of the memory: {self.file_bytes} fit")
        others = [entry for entry in entries(ROOT) if entry[0] != path]
        left = self.total_bytes - sum(size for _, folder, size in others if not folder)
        if len(data) > left:
            raise Refused(f"the memory is full: {max(0, left)} bytes are left; delete what is not needed any more")
        self._check_count(len(others), path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            with open(_PART, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(_PART, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(_PART)


def lock(wait_s: float | None) -> None:
    """Held until this process ends."""

    def late(*_: object) -> None:
        raise Refused(f"another run has kept the memory for {wait_s:g} s: nothing was changed")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, wait_s or 0)
    fcntl.flock(os.open(_LOCK, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX)
    signal.setitimer(signal.ITIMER_REAL, 0)


def done(command: str, arguments: dict[str, Any], wait_s: float | None, bounds: dict[str, int]) -> tuple[str, str]:
    """The status and the text."""
    try:
        for name in [name for name in arguments if name.endswith("path")]:
            arguments[name] = full_path(arguments[name])
            if arguments[name] == ROOT and command not in ("view", "clear"):
                raise Refused(f"{ROOT} itself is no note: write {ROOT}/NAME (clear forgets everything)")
        if command != "view":
            lock(wait_s)
        return "success", getattr(Memory(**bounds), command)(**arguments)
    except Refused as error:
        return "error", str(error)
    except OSError as error:
        return "error", f"the memory cannot be used: {error.strerror or error}"


if __name__ == "__main__":
    os.umask(0o077)
    print(json.dumps(done(**json.load(sys.stdin))))
