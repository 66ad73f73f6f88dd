"""A run as an asciicast, version 2: what its terminal showed and when, for asciinema to play."""

import io
import json
from collections.abc import Iterator, Sequence

from rich.console import Console

from stockade.cli.render import Renderer
from stockade.cli.safe import one_line
from stockade.core.events import RunEvent, RunStarted

WIDTH, HEIGHT = 100, 32
IDLE_S = 2.0
"""A player waits no longer than this, however long the model thought."""


def cast(events: Sequence[RunEvent]) -> Iterator[str]:
    """Lines of JSON, the header first."""
    started = events[0]
    assert isinstance(started, RunStarted)
    header = {
        "version": 2,
        "width": WIDTH,
        "height": HEIGHT,
        "timestamp": int(started.at),
        "idle_time_limit": IDLE_S,
        "title": one_line(f"stockade run: {started.task}", 120),
        "env": {"TERM": "xterm-256color", "SHELL": "/bin/bash"},
    }
    yield json.dumps(header)
    screen = io.StringIO()
    console = Console(
        file=screen, width=WIDTH, force_terminal=True, color_system="256", highlight=False, markup=False, emoji=False
    )
    renderer = Renderer(console, show_answer=True)
    clock = 0.0
    for event in events:
        clock = max(clock, event.at - started.at)  # a branch has events from before its start
        renderer.event(event)
        if text := screen.getvalue():
            screen.seek(0)
            screen.truncate()
            yield json.dumps([round(clock, 6), "o", text.replace("\n", "\r\n")])
