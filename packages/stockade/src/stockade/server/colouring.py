"""Syntax colours of a patch, by Pygments: for each of its lines the pieces, each with a class of the page's style."""

import re
from collections.abc import Iterator

from pygments import lex
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Keyword, Name, Number, String
from pygments.util import ClassNotFound

_KINDS = ((Comment, "c"), (String, "s"), (Number, "n"), (Keyword, "k"), (Name.Function, "f"), (Name.Class, "f"))
_MAX = 200_000
_HUNK = re.compile(r"@@ -\d")
Pieces = tuple[tuple[str, str], ...]


def coloured(path: str, patch: str) -> tuple[Pieces, ...] | None:
    """A line of the patch without its mark, in pieces; empty for what is no line of the file. Each hunk is read by
    itself, its old lines and its new ones. None for a language that nobody knows, or one too large.
    """
    try:
        lexer = get_lexer_for_filename(path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    lines = patch.removesuffix("\n").split("\n")
    if len(patch) > _MAX:
        return None
    found: list[Pieces] = [()] * len(lines)
    starts = [number for number, line in enumerate(lines) if _HUNK.match(line)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        for marks in (" -", " +"):
            numbers = [number for number in range(start + 1, end) if lines[number][:1] in marks and lines[number]]
            text = "\n".join(lines[number][1:] for number in numbers)
            for number, pieces in zip(numbers, _lines(lexer, text), strict=False):
                found[number] = pieces
    return tuple(found)


def _lines(lexer: Lexer, text: str) -> Iterator[Pieces]:
    line: list[tuple[str, str]] = []
    for kind, value in lex(text, lexer):
        name = next((name for known, name in _KINDS if str(kind).startswith(str(known))), "")
        first, *rest = value.split("\n")
        line.append((name, first))
        for piece in rest:
            yield tuple(one for one in line if one[1])
            line = [(name, piece)]
    yield tuple(one for one in line if one[1])
