"""The line of a chat, and what is printed above it."""

import asyncio
import fcntl
import os
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app_session, in_terminal
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from stockade.cli.ui.line import _Above

pytestmark = pytest.mark.anyio
SAID = "in a new shell\n"


class Written(DummyOutput):
    def __init__(self) -> None:
        self.text = ""

    def write_raw(self, data: str) -> None:
        self.text += data


async def test_what_is_printed_as_the_line_ends_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the last words before a sandbox ends were lost now and then: they waited for a terminal that was gone."""
    written, begun = Written(), anyio.Event()
    monkeypatch.setattr(get_app_session(), "_output", written)
    with create_pipe_input() as keys:
        session = PromptSession[str](input=keys, output=DummyOutput())
        line = asyncio.create_task(session.prompt_async(pre_run=begun.set))
        await begun.wait()
        await anyio.sleep(0.05)
        async with in_terminal():  # somebody else has it
            with _Above() as above:
                above.write(SAID)
                await anyio.sleep(0.1)
                assert written.text == ""
            assert written.text == SAID
        await anyio.sleep(0.1)
        line.cancel()
        with suppress(asyncio.CancelledError):
            await line
    assert written.text == SAID


_LEAVES = """
import sys, time
from pathlib import Path
import anyio
from stockade.cli.ui.line import Line

place, case = Path(sys.argv[1]), sys.argv[2]

async def main():
    line = Line(place, {}, place / "history")
    with line.above():
        if case == "between":
            assert await line.read() == "first"
            (place / "begun").touch()
            while not (place / "typed").exists():
                time.sleep(0.01)
        elif case == "above":
            line._session.app.pre_run_callables.append(lambda: print("many words\\n" * 20_000))
        said = await line.read()
    print(f"said={said}=")

anyio.run(main)
"""


@pytest.mark.parametrize("case", ["between", "above"])
def test_keys_stay_keys_between_two_lines_and_while_something_is_written(case: str, tmp_path: Path) -> None:
    """Ctrl-D at a terminal that is cooked for that moment is another key for whoever makes it raw again."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", _LEAVES, str(tmp_path), case], stdin=theirs, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        try:
            if case == "between":
                os.write(ours, b"first\r")
                _wait(lambda: (tmp_path / "begun").exists())
                os.write(ours, b"\x04")
                (tmp_path / "typed").touch()
            else:
                _wait(lambda: _unread(ours) > 4000)
                os.write(ours, b"\x04")
            os.set_blocking(ours, False)
            seen = bytearray()
            _wait(lambda: b"said=None=" in _more(ours, seen))
            assert child.wait(30) == 0
        finally:
            child.kill()
            os.close(ours)


def _wait(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def _unread(terminal: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(terminal, termios.FIONREAD, bytes(4)))
    return int(count)


def _more(terminal: int, seen: bytearray) -> bytearray:
    with suppress(OSError):
        seen += os.read(terminal, 1 << 16)
    return seen
