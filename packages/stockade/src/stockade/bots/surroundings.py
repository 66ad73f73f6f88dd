"""What is in the folder, for the opening of a run: names; and for a small model on this machine sizes and first lines.

A model of 1.5B writes `awk '{print $2}'` for a file it has not looked at. Told the first lines it splits at the comma
(docs/small-models.md). Bounded, so that a folder of any size costs the same: about 800 tokens at most. What is in the
user's files goes to nobody's server unasked.

And what a folder tells its bots: `AGENTS.md`, and the skills that it has, by name. Bounded: it is read on every turn.
The words are the folder's, not the user's: they can mislead a bot, and do no more than the sandbox allows.
"""

import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from stockade.core.actions import MARGIN

MAX_NAMES = 40
MAX_ENTRIES = 24
MAX_DEPTH = 3
MAX_SHOWN = 6
MAX_LINES = 20
MAX_SHOWN_CHARS = 1500
MAX_LINE_CHARS = 100
MAX_COLUMNS = 12
_MAX_LOOKED_AT = 400
_HEAD_BYTES = 1024
_SECRET = re.compile(r"(?:^|/)\.|secret|passw|token|credential|private|\.pem$|key", re.IGNORECASE)
"""Whose content no bot is sent unasked."""
_NAME = re.compile(r"\s*[^\W\d][\w .-]{0,23}\s*")
_HIDDEN = (".git", "node_modules", "__pycache__", ".venv")


def surroundings(folder: Path, *, lines: bool) -> str:
    """What is in `folder` on the host, names only or with first lines; "" when it cannot be read. Never raises, never
    follows a link.
    """
    if lines:
        return _with_first_lines(folder)
    entries = list(islice(_entries(folder, "", MAX_DEPTH), MAX_NAMES + 1))
    names = [f"{name}{'' if stat.S_ISREG(info.st_mode) else _mark(info)}" for name, info in entries[:MAX_NAMES]]
    return "\n".join([*names, *(["... and more"] if len(entries) > MAX_NAMES else [])])


def _with_first_lines(folder: Path) -> str:
    entries = list(islice(_entries(folder, "", MAX_DEPTH), MAX_ENTRIES + 1))
    plain = [name for name, info in entries if stat.S_ISREG(info.st_mode) and info.st_size and not _SECRET.search(name)]
    plain = plain[:MAX_SHOWN]
    share = MAX_SHOWN_CHARS // max(1, len(plain))
    lines: list[str] = []
    for name, info in entries[:MAX_ENTRIES]:
        if not stat.S_ISREG(info.st_mode):
            lines.append(f"{name}{_mark(info)}")
            continue
        first = _lines(folder / name) if name in plain else []
        lines.append(f"{name} ({info.st_size} bytes{_columns(first)})")
        lines.extend(_within(first, share, whole=info.st_size <= _HEAD_BYTES))
    if len(entries) > MAX_ENTRIES:
        lines.append("... and more")
    return "\n".join(lines)


def _within(lines: list[str], share: int, *, whole: bool) -> list[str]:
    """As many of the lines as fit, the first one always, each behind a bar."""
    shown: list[str] = []
    for line in lines[:MAX_LINES]:
        share -= len(line[:MAX_LINE_CHARS]) + 5
        if share < 0 and shown:
            break
        shown.append(f"{MARGIN}{line[:MAX_LINE_CHARS]}")
    return shown if whole and len(shown) == len(lines) else [*shown, f"{MARGIN}..."] if shown else shown


def _entries(folder: Path, below: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    """Sorted, a folder before what is in it. Names that are no plain text are left out."""
    try:
        with os.scandir(folder / below) as entries:
            names = sorted(entry.name for entry, _ in zip(entries, range(_MAX_LOOKED_AT), strict=False))
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


def beginning(path: Path, size: int) -> bytes:
    """The first bytes of a plain file, which is no link; b"" for anything else, and what cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(file, size) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(file)


def _lines(path: Path) -> list[str]:
    """The first lines of a text file; none for anything else."""
    data = beginning(path, _HEAD_BYTES)
    lines = data.decode(errors="replace").split("\n")
    if len(data) == _HEAD_BYTES or not lines[-1]:
        del lines[-1]
    lines = [line.rstrip("\r") for line in lines]
    plain = all(line.replace("\t", " ").isprintable() and "\ufffd" not in line for line in lines)
    return lines if plain else []


def _columns(lines: list[str]) -> str:
    """Of a table with a header its columns as awk counts them; "" for what is no table."""
    for mark, written in ((",", ","), (";", "';'"), ("\t", "'\\t'")):
        names = lines[0].split(mark) if lines else []
        alike = len(lines) > 1 and all(line.count(mark) == len(names) - 1 for line in lines)
        if alike and 1 < len(names) <= MAX_COLUMNS and all(_NAME.fullmatch(name) for name in names):
            fields = ", ".join(f"${number} is {name.strip()}" for number, name in enumerate(names, 1))
            return f"; in awk -F{written} {fields}"
    return ""


AGENTS = "AGENTS.md"
SKILLS = (".agents", "skills")
SKILL = "SKILL.md"
MAX_AGENTS_CHARS = 2000
MAX_SKILLS = 12
MAX_SKILL_CHARS = 200
_READ_BYTES = 16_384
_HEAD_LINES = 50


def guidance(folder: Path, workdir: str) -> str:
    """Lines for the opening; "" when the folder says nothing. Follows no link, raises nothing."""
    parts = []
    if text := _text(folder / AGENTS).strip():
        shown = text if len(text) <= MAX_AGENTS_CHARS else f"{text[:MAX_AGENTS_CHARS]}\n[more in {workdir}/{AGENTS}]"
        parts.append(f"{AGENTS} of this folder says:\n{shown}")
    if skills := _skills(folder.joinpath(*SKILLS)):
        where = f"{workdir}/{'/'.join(SKILLS)}/NAME/{SKILL}"
        parts.append(f"Skills of this folder (read {where} before a task that one is for):\n" + "\n".join(skills))
    return "\n".join(parts)


def guidance_files(folder: Path) -> str:
    """What `guidance` read there, for the user: `AGENTS.md and 2 skills`; "" when it was nothing."""
    skills = len(_skills(folder.joinpath(*SKILLS)))
    names = [AGENTS] if _text(folder / AGENTS).strip() else []
    return " and ".join([*names, *([f"{skills} skill{'s' if skills > 1 else ''}"] if skills else [])])


def _skills(folder: Path) -> list[str]:
    if folder.is_symlink() or folder.parent.is_symlink():
        return []
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry, _ in zip(entries, range(_MAX_LOOKED_AT), strict=False))
    except OSError:
        return []
    lines = []
    for name in names:
        about = front_matter(_text(folder / name / SKILL)) if not (folder / name).is_symlink() else None
        if about is not None and name.isprintable():
            line = f"- {name}: {' '.join(about.get('description', '').split())}"
            lines.append(line[:MAX_SKILL_CHARS])
    return lines[:MAX_SKILLS]


def _text(path: Path) -> str:
    """The beginning of a plain file of text; "" for anything else."""
    text = beginning(path, _READ_BYTES).decode(errors="replace")
    return "".join(char for char in text if char in "\n\t" or char.isprintable())


def front_matter(text: str) -> dict[str, str] | None:
    """Of the head of a Markdown file, `key: value` lines between two lines of `---`, the plain values by key; None
    where there is no head. Lists and nested values are left out.
    """
    lines = text.split("\n")
    if not lines or lines[0].strip() != "---":
        return None
    values: dict[str, str] = {}
    for line in lines[1:_HEAD_LINES]:
        if line.strip() == "---":
            return values
        key, colon, value = line.partition(":")
        if colon and key and not key[0].isspace() and value.strip():
            values[key.strip()] = value.strip().strip("'\"")
    return None
