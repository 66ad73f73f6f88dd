"""What is in the folder, for the opening of a run: names, sizes, first lines. Small models act on what they see.

A model of 1.5B writes `awk '{print $2}'` for a file it has not looked at. Told the first lines it splits at the comma
(docs/small-models.md). Bounded, so that a folder of any size costs the same: about 400 tokens at most.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_ENTRIES = 24
MAX_DEPTH = 3
MAX_SHOWN = 6
MAX_LINES = 3
MAX_LINE_CHARS = 100
_MAX_LOOKED_AT = 400
_HEAD_BYTES = 1024
_HIDDEN = (".git", "node_modules", "__pycache__", ".venv")


def surroundings(folder: Path) -> str:
    """Some lines on what is in `folder` on the host; "" when it cannot be read. Never raises, never follows a link."""
    lines: list[str] = []
    shown = 0
    for number, (name, info) in enumerate(_entries(folder, "", MAX_DEPTH)):
        if number == MAX_ENTRIES:
            lines.append("... and more")
            break
        if not stat.S_ISREG(info.st_mode):
            lines.append(f"{name}{_mark(info)}")
            continue
        head = _head(folder / name) if shown < MAX_SHOWN and info.st_size else ""
        shown += bool(head)
        lines.append(f"{name} ({info.st_size} bytes){head}")
    return "\n".join(lines)


def _entries(folder: Path, below: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    """Sorted, a folder before what is in it. Names that are no plain text are left out."""
    try:
        with os.scandir(folder / below) as found:
            names = sorted(entry.name for entry, _ in zip(found, range(_MAX_LOOKED_AT), strict=False))
    except OSError:
        return
    for name in names:
        path = f"{below}{name}"
        try:
            info = os.lstat(folder / path)
        except OSError:
            continue
        if not name.isprintable() or len(name) > MAX_LINE_CHARS:
            continue
        yield path, info
        if stat.S_ISDIR(info.st_mode) and depth > 1 and name not in _HIDDEN:
            yield from _entries(folder, f"{path}/", depth - 1)


def _mark(info: os.stat_result) -> str:
    if stat.S_ISDIR(info.st_mode):
        return "/"
    return " (a link)" if stat.S_ISLNK(info.st_mode) else " (no plain file)"


def _head(path: Path) -> str:
    """The first lines of a text file, each behind a bar; "" for anything else."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        data = os.read(file, _HEAD_BYTES)
    except OSError:
        return ""
    finally:
        os.close(file)
    lines = data.decode(errors="replace").split("\n")
    if len(data) == _HEAD_BYTES:
        lines = lines[:-1]
    lines = [line.rstrip("\r") for line in lines[:MAX_LINES] if line]
    if not all(line.replace("\t", " ").isprintable() and "�" not in line for line in lines):
        return ""
    return "".join(f"\n  | {line[:MAX_LINE_CHARS]}" for line in lines)
