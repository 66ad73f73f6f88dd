"""The line of a chat, and what is printed above it."""

import asyncio
from contextlib import suppress

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
