"""What a folder tells its bots: `AGENTS.md`, and the skills that it has, by name. Bounded: it is read on every turn.

The words are the folder's, not the user's: they can mislead a bot, and do no more than the sandbox allows.
"""

import os
from pathlib import Path

from stockade.bots.surroundings import beginning

AGENTS = "AGENTS.md"
SKILLS = (".agents", "skills")
SKILL = "SKILL.md"
MAX_AGENTS_CHARS = 2000
MAX_SKILLS = 12
MAX_LINE_CHARS = 200
_READ_BYTES = 16_384
_LOOKED_AT = 200


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
            names = sorted(entry.name for entry, _ in zip(entries, range(_LOOKED_AT), strict=False))
    except OSError:
        return []
    lines = []
    for name in names:
        about = front_matter(_text(folder / name / SKILL)) if not (folder / name).is_symlink() else None
        if about is not None and name.isprintable():
            line = f"- {name}: {' '.join(about.get('description', '').split())}"
            lines.append(line[:MAX_LINE_CHARS])
    return lines[:MAX_SKILLS]


def _text(path: Path) -> str:
    """The beginning of a plain file of text; "" for anything else."""
    text = beginning(path, _READ_BYTES).decode(errors="replace")
    return "".join(char for char in text if char in "\n\t" or char.isprintable())


"""The head of a Markdown file: `key: value` lines between two lines of `---`."""

_MARK = "---"
MAX_LINES = 50


def front_matter(text: str) -> dict[str, str] | None:
    """Its plain values by key; None for a file without one. Lists and nested values are left out."""
    lines = text.split("\n")
    if not lines or lines[0].strip() != _MARK:
        return None
    values: dict[str, str] = {}
    for line in lines[1:MAX_LINES]:
        if line.strip() == _MARK:
            return values
        key, colon, value = line.partition(":")
        if colon and key and not key[0].isspace() and value.strip():
            values[key.strip()] = value.strip().strip("'\"")
    return None
