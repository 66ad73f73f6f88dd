"""One line at the bottom of the terminal that is drawn, redrawn and erased: what is going on right now.

No thread and no hidden cursor: whoever has a clock calls `tick`, and a killed process leaves the terminal as it was.
"""

import time
from collections.abc import Callable

from rich.console import Console

from stockade.cli.ui.safe import one_line, result_text

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ERASE = "\r\x1b[2K"
_BAR_WIDTH = 24
_PATIENCE_S = 0.3


class StatusLine:
    """Draws nothing when `live` is False: off a terminal, and with --plain. `raw`: answers are written as they come, in
    place of how many tokens have come.
    """

    raw = False

    def __init__(self, console: Console, *, live: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._live = live
        self._clock = clock
        self._words: str | None = None
        self._since = 0.0
        self._pieces = 0
        self._thoughts = 0
        self._first_piece = 0.0
        self._drawn = self._is_amid_raw = False
        self._frame = 0
        self.detail = ""
        """What stands behind the time."""
        self.used = ""
        """What the run has used so far."""

    def begin(self, words: str) -> None:
        """From now on `words` are what is going on."""
        self.end()
        self._words, self._since, self._pieces, self._thoughts = words, self._clock(), 0, 0
        self.detail = ""

    def piece(self, text: str) -> None:
        """A piece of a streaming answer came: about one token."""
        self._come()
        self._pieces += 1
        if self.raw:
            if not self._is_amid_raw:
                self.erase()
            self._console.out(result_text(text), end="", highlight=False)
            self._is_amid_raw = True

    def thought(self) -> None:
        """A piece of what the model thinks before it answers came: about one token."""
        self._come()
        self._thoughts += 1

    def _come(self) -> None:
        if not self._pieces + self._thoughts:
            self._first_piece = self._clock()

    def tick(self) -> None:
        """Draw what there is to say now."""
        if not self._is_amid_raw and (words := self.now()):
            self._draw(words)

    def now(self) -> str:
        """What there is to say; nothing where nothing goes on, or only for a moment."""
        if self._words is None or (elapsed := self._clock() - self._since) < _PATIENCE_S:
            return ""
        self._frame += 1
        more = "".join(f" · {part}" for part in (self.used, self.detail) if part)
        return f"{FRAMES[self._frame % len(FRAMES)]} {self._words} {elapsed:.0f} s{self._speed()}{more}"

    def bar(self, words: str, done: int, total: int) -> None:
        """How far something is, in bytes."""
        filled = _BAR_WIDTH * min(done, total) // max(1, total)
        drawn = "━" * filled + "╌" * (_BAR_WIDTH - filled)
        self._words = None
        self._draw(f"{drawn} {megabytes(done)} of {megabytes(total)}  {words}")

    def erase(self) -> None:
        """Make room for something that stays."""
        if self._is_amid_raw:
            self._console.out("")
            self._is_amid_raw = False
        if self._drawn:
            self._console.file.write(_ERASE)
            self._console.file.flush()
            self._drawn = False

    def end(self) -> None:
        """Nothing is going on any more."""
        self.erase()
        self._words = None

    def _speed(self) -> str:
        took = self._clock() - self._first_piece
        count = self._pieces + self._thoughts
        if count < 2 or took <= 0:
            return ""
        parts = (f"{self._thoughts} tokens of thinking" if self._thoughts else "",
                 f"{self._pieces} tokens{' of answer' if self._thoughts else ''}" if self._pieces else "")  # fmt: skip
        return f" · {' · '.join(part for part in parts if part)} · {count / took:.1f}/s"

    def _draw(self, text: str) -> None:
        if not self._live:
            return
        line = one_line(text, max(10, self._console.width - 1))
        self._console.file.write(_ERASE + (line if self._console.no_color else f"\x1b[2m{line}\x1b[0m"))
        self._console.file.flush()
        self._drawn = True


def megabytes(size: int) -> str:
    """Decimal units, as hubs and disks print them."""
    return f"{size / 1e9:.2f} GB" if size >= 1_000_000_000 else f"{size / 1e6:.1f} MB"
