"""A run as an asciicast, version 2: what its terminal showed and when, for asciinema to play."""

import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from stockade.cli.ui.render import Renderer
from stockade.cli.ui.safe import one_line
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, RunStarted

WIDTH, HEIGHT = 100, 32
IDLE_S = 2.0
"""A player waits no longer than this, however long the model thought."""


def cast(events: Sequence[RunEvent]) -> Iterator[str]:
    """Lines of JSON, the header first."""
    tape = Tape()
    for event in events:
        yield from tape.lines(event)


class Tape:
    """Takes the events of a run as they come, the first one first."""

    def __init__(self, *, show_intro: bool = False) -> None:
        self._screen = io.StringIO()
        console = Console(
            file=self._screen, width=WIDTH, force_terminal=True, color_system="256", highlight=False, markup=False,
            emoji=False,
        )  # fmt: skip
        self._renderer = Renderer(console, show_answer=True, show_intro=show_intro)
        self._begun: float | None = None
        self._clock = 0.0

    def lines(self, event: RunEvent) -> Iterator[str]:
        """What one event adds."""
        if self._begun is None:
            self._begun = event.at
            title = f"stockade run: {event.task}" if isinstance(event, RunStarted) else "stockade run"
            yield json.dumps(_header(event.at, title))
        self._clock = max(self._clock, event.at - self._begun)  # a branch has events from before its start
        self._renderer.event(event)
        if text := self._screen.getvalue():
            self._screen.seek(0)
            self._screen.truncate()
            yield json.dumps([round(self._clock, 6), "o", text.replace("\n", "\r\n")])


def _header(at: float, title: str) -> dict[str, object]:
    return {
        "version": 2,
        "width": WIDTH,
        "height": HEIGHT,
        "timestamp": int(at),
        "idle_time_limit": IDLE_S,
        "title": one_line(title, 120),
        "env": {"TERM": "xterm-256color", "SHELL": "/bin/bash"},
    }


class Recorder:
    """Writes a tape to a new file, line by line, so that a run that is killed leaves what came before."""

    def __init__(self, path: Path, *, show_intro: bool = False) -> None:
        """UsageError when there is such a file, or it cannot be made."""
        self._tape = Tape(show_intro=show_intro)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            raise UsageError(f"{path} is there already", "choose another name, or remove it") from None
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
        self._file = os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace")

    def event(self, event: RunEvent) -> None:
        self._file.writelines(f"{line}\n" for line in self._tape.lines(event))
        self._file.flush()

    def close(self) -> None:
        self._file.close()
