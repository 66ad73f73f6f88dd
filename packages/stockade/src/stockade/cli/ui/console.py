"""The two consoles, results on stdout and progress on stderr, and lists that fit any terminal.

Colours only on a terminal, and not with NO_COLOR. Of a list what is needed to go on is never cut; what only helps
shrinks or goes.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from stockade.cli.ui.safe import fit_for_terminal

PIPE_WIDTH = 200


class _Console(Console):
    """Rich would end the process when its reader has gone. A run goes on without its picture; a result is an error.

    Whatever a caller forgot: no text is drawn that a terminal would obey.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(fit_for_terminal(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        if not self.stderr:
            raise BrokenPipeError


def results(*, plain: bool = False) -> Console:
    return _console(stderr=False, plain=plain)


def progress(*, plain: bool = False) -> Console:
    return _console(stderr=True, plain=plain)


def _console(*, stderr: bool, plain: bool) -> Console:
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return _Console(
        stderr=stderr,
        no_color=True if plain else None,
        color_system=None if plain else "auto",
        width=None if terminal else PIPE_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )


def console_on(file: TextIO, like: Console) -> Console:
    """One that writes to a file in the colours and the width of another."""
    return _Console(
        file=file, width=like.width, force_terminal=like.is_terminal, no_color=like.no_color, highlight=False,
        color_system="auto" if like.color_system else None, markup=False, emoji=False,
    )  # fmt: skip


def write_line(console: Console, words: str | Text, style: str = "") -> None:
    """One line, as long as it is: the terminal breaks it. Text is never markup."""
    console.print(words if isinstance(words, Text) else Text(words, style), soft_wrap=True)


def write_prose(console: Console, words: str | Text, style: str = "") -> None:
    """The same, on a terminal in lines that end between words, each as far in as the first of its paragraph."""
    text = words if isinstance(words, Text) else Text(words, style)
    if not console.is_terminal:
        console.print(text, soft_wrap=True)
        return
    for line in text.split("\n", allow_blank=True):
        margin = len(line.plain) - len(line.plain.lstrip(" "))
        for part in line[margin:].wrap(console, max(_LEAST, console.width - margin)) or [Text()]:
            part.rstrip()
            console.print(Text(" " * margin) + part, soft_wrap=True)


def can_ask(*, no_input: bool) -> bool:
    """Whether there is a user: a question on stderr would be seen, and an answer can be typed."""
    return not no_input and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def moves_cursor(console: Console, *, plain: bool) -> bool:
    """Whether a line may be drawn and erased again."""
    return console.is_terminal and not plain and not console.is_dumb_terminal and "CI" not in os.environ


_GAP = 2
_LEAST = 12


@dataclass(frozen=True, slots=True)
class Column:
    """`shrinks`: cut where there is no room, to no less than a few characters. `leaves`: 1 goes first, 0 stays."""

    name: str
    right: bool = False
    shrinks: bool = False
    leaves: int = 0


Cell = Text | str


def draw_table(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """As a table; where even the columns that stay have no room side by side, each row as a few lines. At most one
    column shrinks.
    """
    widths = [max(map(_width, (column.name, *(row[at] for row in rows)))) for at, column in enumerate(columns)]
    kept = list(range(len(columns)))
    for at in sorted((at for at in kept if columns[at].leaves), key=lambda at: columns[at].leaves):
        if _needed(columns, widths, kept) > console.width:
            kept.remove(at)
    if _needed(columns, widths, kept) > console.width:
        _stack(console, columns, rows, kept)
        return
    over = max(0, sum(widths[at] + _GAP for at in kept) - _GAP - console.width)
    for at in kept:
        if columns[at].shrinks:
            widths[at] = max(min(widths[at], _LEAST), widths[at] - over)
    head = [Text(column.name, "bold") for column in columns]
    lines = [[_cell(row[at], widths[at], right=columns[at].right) for at in kept] for row in (head, *rows)]
    gap = " " * _GAP
    if console.is_terminal:
        for cells in lines:
            line = Text(gap).join(cell if isinstance(cell, Text) else Text(cell) for cell in cells)
            line.rstrip()
            console.print(line, soft_wrap=True)
    else:
        plain = (gap.join(cell if isinstance(cell, str) else cell.plain for cell in cells) for cells in lines)
        console.file.write(fit_for_terminal("".join(f"{line.rstrip()}\n" for line in plain)))


def _width(cell: Cell) -> int:
    text = cell if isinstance(cell, str) else cell.plain
    return len(text) if text.isascii() else cell_len(text)


def _cell(cell: Cell, width: int, *, right: bool) -> Cell:
    """In so many columns."""
    missing = width - _width(cell)
    if missing < 0:
        cell = Text(cell) if isinstance(cell, str) else cell.copy()
        cell.truncate(width, overflow="ellipsis")
        return cell
    blanks = " " * missing
    if isinstance(cell, str):
        return blanks + cell if right else cell + blanks
    return Text.assemble(blanks, cell) if right else Text.assemble(cell, blanks)


def _needed(columns: Sequence[Column], widths: Sequence[int], kept: Sequence[int]) -> int:
    """The least width of a table of these columns."""
    least = (min(widths[at], _LEAST) if columns[at].shrinks else widths[at] for at in kept)
    return sum(least) + _GAP * len(kept)


def _stack(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], kept: Sequence[int]) -> None:
    """The first cell; below it, further in, the short ones; below them what may be long."""
    for cells in rows:
        row = [Text(cell) if isinstance(cell, str) else cell for cell in cells]
        console.print(row[0], soft_wrap=True)
        short = [_named(columns[at], row[at]) for at in kept[1:] if not columns[at].shrinks and row[at]]
        console.print(Text("  ") + Text(" · ").join(short), soft_wrap=True)
        for at in kept[1:]:
            if columns[at].shrinks and row[at]:
                long = Text("  ") + row[at]
                long.truncate(console.width, overflow="ellipsis")
                console.print(long, soft_wrap=True)


def _named(column: Column, cell: Text) -> Text:
    """A number, `yes` and `no` say nothing without the name of their column."""
    return Text(f"{column.name} ") + cell if cell.plain.isdigit() or cell.plain in ("yes", "no") else cell
