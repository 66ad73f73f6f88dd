"""One line that is drawn and erased, and only on a terminal."""

import io

from rich.console import Console

from stockade.cli.ui.render import Renderer
from stockade.cli.ui.statusline import StatusLine


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def line(clock: Clock, *, live: bool = True, width: int = 80) -> tuple[StatusLine, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=live, width=width, color_system=None, no_color=True)
    return StatusLine(console, live=live, clock=clock), file


def test_seconds_and_tokens_a_second() -> None:
    clock = Clock()
    status, file = line(clock)
    status.begin("thinking")
    clock.now = 2
    status.piece("a")
    clock.now = 4
    for _ in range(9):
        status.piece("a")
    status.tick()
    assert file.getvalue().endswith("thinking 4 s · 10 tokens · 5.0/s")
    status.end()
    assert file.getvalue().endswith("\r\x1b[2K")


def test_thinking_is_counted_apart_from_the_answer() -> None:
    clock = Clock()
    file = io.StringIO()
    renderer = Renderer(Console(file=file, force_terminal=True, width=100, color_system=None, no_color=True), live=True)
    renderer.status = StatusLine(renderer.console, live=True, clock=clock)
    renderer.status.begin("thinking")
    clock.now = 2
    renderer.text("")
    clock.now = 4
    for _ in range(9):
        renderer.text("")
    renderer.tick()
    assert file.getvalue().endswith("thinking 4 s · 10 tokens of thinking · 5.0/s")
    for _ in range(2):
        renderer.text("word ")
    renderer.tick()
    assert file.getvalue().endswith("thinking 4 s · 10 tokens of thinking · 2 tokens of answer · 6.0/s")
    renderer.text(None)
    clock.now = 5
    renderer.tick()
    assert file.getvalue().endswith("thinking 1 s")


def test_what_is_over_at_once_is_never_drawn() -> None:
    clock = Clock()
    status, file = line(clock)
    status.begin("running")
    clock.now = 0.1
    status.tick()
    status.end()
    assert file.getvalue() == ""


def test_off_a_terminal_nothing_is_drawn() -> None:
    clock = Clock()
    status, file = line(clock, live=False)
    status.begin("thinking")
    clock.now = 9
    status.tick()
    status.bar("fetching", 1, 2)
    status.end()
    assert file.getvalue() == ""


def test_a_bar_fits_the_terminal_and_is_safe() -> None:
    status, file = line(Clock(), width=50)
    status.bar("fetching \x1b[2J" + "x" * 100, 500_000_000, 1_000_000_000)
    drawn = file.getvalue().removeprefix("\r\x1b[2K")
    assert len(drawn) <= 49
    assert drawn.startswith("━━━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌ 500.0 MB of 1.00 GB")
    assert "\x1b" not in drawn


def test_progress_off_a_terminal_is_a_line_for_each_tenth() -> None:
    file = io.StringIO()
    renderer = Renderer(Console(file=file, width=200))
    renderer.progress("fetching m (Apache-2.0)", 0, 0)
    for done in range(1001):
        renderer.progress("m", done * 1_000_000, 1_000_000_000)
    lines = file.getvalue().splitlines()
    assert lines[0] == "fetching m (Apache-2.0)"
    assert len(lines) == 12
    assert lines[-1] == "m: 1.00 GB of 1.00 GB"
