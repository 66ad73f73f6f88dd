"""Text under `###` headings, in a fence or not, or under a label above a fence.

Lines in a closed fence are text: a comment there is no heading.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stockade.answers.blocks import as_lines, fenced

_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]*(?:\*\*)?[ \t]*([A-Za-z_]+)((?:[ \t].*)?)$")
_LABEL = re.compile(r"^[ \t]*(?:\*\*)?([A-Z][A-Za-z_]+)(?:\*\*:|:\*\*|:)[ \t]*$")
_FENCE = re.compile(r"^[ \t]*(`{3,})[ \t]*([^`]*?)[ \t]*$")


@dataclass(frozen=True, slots=True)
class Section:
    """`content` is its lines, each with its end: exact when `fenced`, else without empty ones at the edges. `info`
    are the words behind the heading, `language` that of its first fence. `torn`: there are several fences, or one as
    long as its own stands in it.
    """

    name: str
    info: str
    content: str
    start: int
    fenced: bool = False
    language: str = ""
    torn: bool = False

    @property
    def body(self) -> str:
        """The content without the end of its last line."""
        return self.content.removesuffix("\n")


def find_sections(text: str, names: Mapping[str, str], most: int = 32) -> list[Section]:
    """The sections whose heading is one of `names` (lower case), under the name it stands for."""
    lines = text.split("\n")
    inside = _fenced_lines(lines)
    heads: list[tuple[int, str, str, bool]] = []
    for number, line in enumerate(lines):
        if inside[number]:
            continue
        if (head := _head(line, names)) is not None:
            heads.append((number, *head, False))
        elif (name := _label(lines, number, names)) is not None:
            heads.append((number, name, "", True))
        if len(heads) > most:
            break
    sections = []
    for index, (number, name, info, label) in enumerate(heads[:most]):
        end = heads[index + 1][0] if index + 1 < len(heads) else len(lines)
        start = sum(len(line) + 1 for line in lines[:number])
        sections.append(Section(name, info, start=start, **_body(lines[number + 1 : end], first=label)))
    return sections


def section(name: str, info: str, content: str, language: str = "", *, plain: bool = False) -> str:
    """A section with its content, which is whole lines, in a fence, or as it is when `plain`."""
    heading = f"### {name} {info}".rstrip()
    body = content.removesuffix("\n") if plain else fenced(language, "", content)
    return f"{heading}\n{body}"


def _head(line: str, names: Mapping[str, str]) -> tuple[str, str] | None:
    if not (found := _HEADING.match(line.rstrip().rstrip(":*"))):
        return None
    first, rest = found[1].lower(), found[2].strip().rstrip(":*").strip()
    if rest and (whole := names.get(f"{first} {rest.lower()}")):
        return whole, ""
    name = names.get(first)
    # "### Code that counts": prose behind a heading is not part of it, but a path is.
    return None if name is None else (name, rest if name in ("read_file", "write_file", "edit_file") else "")


def _label(lines: list[str], number: int, names: Mapping[str, str]) -> str | None:
    """`Code:` or `**Code:**` right above a fence, which it is for: many models write no other heading. Elsewhere it is
    text.
    """
    found = _LABEL.match(lines[number])
    below = next((line for line in lines[number + 1 : number + 3] if line.strip()), "")
    return names.get(found[1].lower()) if found and _FENCE.match(below) else None


def _fenced_lines(lines: list[str]) -> list[bool]:
    """Which lines stand in a fence that is closed. One that is followed by an opening one was never closed."""
    inside = [False] * len(lines)
    opened, ticks = -1, 0
    for number, line in enumerate(lines):
        if not (fence := _FENCE.match(line)):
            continue
        if opened < 0:
            opened, ticks = number, len(fence[1])
        elif len(fence[1]) >= ticks:
            if fence[2]:
                opened, ticks = number, len(fence[1])
                continue
            inside[opened : number + 1] = [True] * (number + 1 - opened)
            opened = -1
    return inside


def _body(lines: list[str], *, first: bool) -> dict[str, Any]:
    """What stands in the fences of a section, or in its `first` one; all of it when there is none."""
    fences: list[int] = []
    ticks, torn = 0, False
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence and (len(fences) % 2 == 0 or len(fence[1]) >= ticks):
            torn = torn or bool(len(fences) % 2 and fence[2])
            ticks = len(fence[1])
            fences.append(number)
    if not fences:
        return {"content": as_lines("\n".join(lines).strip("\n"))}
    if len(fences) % 2:
        fences.append(len(lines))
    fences = fences[:2] if first else fences
    parts = [
        "".join(f"{line}\n" for line in lines[begin + 1 : end])
        for begin, end in zip(fences[::2], fences[1::2], strict=True)
    ]
    opening = _FENCE.match(lines[fences[0]])
    language = opening[2].lower() if opening else ""
    whole = parts[0] if len(parts) == 1 else "\n".join(part for part in parts if part.strip())
    return {"content": whole, "fenced": True, "language": language, "torn": torn or len(parts) > 1}
