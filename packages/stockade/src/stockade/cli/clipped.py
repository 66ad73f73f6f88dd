"""Output for a terminal: first and last lines, and how much is missing between them. Whole, it is on record."""

from collections.abc import Iterable

from rich.text import Text

from stockade.cli.safe import safe_text

HEAD_LINES, TAIL_LINES = 30, 10
MAX_LINE_CHARS = 4000


def coloured(pieces: Iterable[tuple[str, str]], *, whole: bool = False) -> Text:
    """The pieces (text, style) in their order, safe, without a newline at the end."""
    text = Text()
    for piece, style in pieces:
        text.append(safe_text(piece), style or None)
    if text.plain.endswith("\n"):
        text.right_crop(1)
    return text if whole else clip_lines(text)


def clip_lines(text: Text) -> Text:
    """At most HEAD_LINES and TAIL_LINES of it, each of bounded length, and a line that says what is left out."""
    lines = list(text.split("\n", allow_blank=True))
    left_out = len(lines) - HEAD_LINES - TAIL_LINES
    if left_out > 1:
        note = Text(f"[... {left_out} lines not shown ...]", "dim")
        lines = [*lines[:HEAD_LINES], note, *lines[-TAIL_LINES:]]
    return Text("\n").join(_clip_line(line) for line in lines)


def _clip_line(line: Text) -> Text:
    if len(line) <= MAX_LINE_CHARS:
        return line
    missing = len(line) - MAX_LINE_CHARS
    return Text.assemble(line[:MAX_LINE_CHARS], (f"[... {missing} characters not shown]", "dim"))
