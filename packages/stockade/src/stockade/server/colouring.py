"""Syntax colours of patches: for each line the pieces, each with a class of the page's style."""

import re
from collections.abc import Iterator, Sequence

from stockade.highlighting import MAX_CHARS, Pieces, highlighted

_CLASSES = {"Comment": "c", "Literal.String": "s", "Literal.Number": "n", "Keyword": "k", "Name.Function": "f",
            "Name.Class": "f"}  # fmt: skip
_HUNK = re.compile(r"@@ -\d")


def coloured(patches: Sequence[tuple[str, str]]) -> list[tuple[Pieces, ...] | None]:
    """Of each path and patch, the lines without their marks, in pieces; empty for what is no line of the file. Each
    hunk is read by itself, its old lines and its new ones. None where one of them is not (see highlighted).
    """
    asked, places = list[tuple[str, str]](), list[tuple[int, list[int]]]()
    found = [[Pieces()] * (patch.removesuffix("\n").count("\n") + 1) for _, patch in patches]
    known, unread = set[int](), set[int]()
    for which, (path, patch) in enumerate(patches):
        for numbers, text in _sides(patch) if len(patch) <= MAX_CHARS else ():
            asked.append((path, text))
            places.append((which, numbers))
    for (which, numbers), pieces in zip(places, highlighted(asked), strict=True):
        (unread if pieces is None else known).add(which)
        for number, line in zip(numbers, _lines(pieces or ()), strict=False):
            found[which][number] = line
    whole = known - unread
    return [tuple(lines) if which in whole else None for which, lines in enumerate(found)]


def _sides(patch: str) -> Iterator[tuple[list[int], str]]:
    """The old lines of each hunk, and its new ones: their numbers, and the text that they are."""
    lines = patch.removesuffix("\n").split("\n")
    starts = [number for number, line in enumerate(lines) if _HUNK.match(line)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        for marks in (" -", " +"):
            numbers = [number for number in range(start + 1, end) if lines[number][:1] in marks and lines[number]]
            yield numbers, "\n".join(lines[number][1:] for number in numbers)


def _lines(pieces: Pieces) -> Iterator[Pieces]:
    line: list[tuple[str, str]] = []
    for kind, value in pieces:
        name = next((name for known, name in _CLASSES.items() if kind.startswith(known)), "")
        first, *rest = value.split("\n")
        line.append((name, first))
        for piece in rest:
            yield tuple(one for one in line if one[1])
            line = [(name, piece)]
    yield tuple(one for one in line if one[1])
