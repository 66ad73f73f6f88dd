"""A run as an asciicast, version 2: what its terminal showed and when, for asciinema to play."""

import codecs
import io
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

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
        self._tape, self._file = Tape(show_intro=show_intro), _new_file(path)

    def event(self, event: RunEvent) -> None:
        self._file.writelines(f"{line}\n" for line in self._tape.lines(event))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class ScreenCast:
    """What a program shows on the user's own terminal, as it comes, to a new file; its size and its changes too."""

    def __init__(self, path: Path, title: str, size: tuple[int, int]) -> None:
        """`size` in rows and columns. UsageError as of Recorder."""
        self._file, self._begun = _new_file(path), time.monotonic()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        where = {"TERM": os.environ.get("TERM", ""), "SHELL": os.environ.get("SHELL", "")}
        self._write({**_header(time.time(), title), "width": size[1], "height": size[0], "env": where})

    def output(self, data: bytes) -> None:
        if text := self._decode(data):
            self._add("o", text)

    def resized(self, rows: int, columns: int) -> None:
        self._add("r", f"{columns}x{rows}")

    def close(self) -> None:
        self._file.close()

    def _add(self, kind: str, text: str) -> None:
        self._write([round(time.monotonic() - self._begun, 6), kind, text])

    def _write(self, value: object) -> None:
        self._file.write(f"{json.dumps(value)}\n")
        self._file.flush()


def _new_file(path: Path) -> TextIO:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise UsageError(f"{path} is there already", "choose another name, or remove it") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace")
