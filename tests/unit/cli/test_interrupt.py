"""What signals do to a command that is under way."""

import os
import signal

import anyio
import anyio.lowlevel
import pytest

from stockade.cli.ui.interrupt import Interrupt

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGHUP])
async def test_who_is_stopped_twice_still_ends_in_order(again: signal.Signals) -> None:
    interrupt, calls, asked = Interrupt(), list[str](), anyio.Event()
    interrupt.pause = lambda: calls.append("pause")

    def cancel() -> None:
        calls.append("cancel")
        asked.set()

    with interrupt.cancelling(cancel):
        os.kill(os.getpid(), signal.SIGTERM)
        await asked.wait()
        os.kill(os.getpid(), again)
        await anyio.lowlevel.checkpoint()
    assert (interrupt.pressed, calls) == (True, ["cancel"])


async def test_a_ctrl_c_is_asked_about_first_and_the_next_ends_it() -> None:
    interrupt, calls, seen = Interrupt(), list[str](), [anyio.Event(), anyio.Event()]

    def said(word: str, event: anyio.Event) -> None:
        calls.append(word)
        event.set()

    interrupt.pause = lambda: said("pause", seen[0])
    with interrupt.cancelling(lambda: said("cancel", seen[1])):
        for event in seen:
            os.kill(os.getpid(), signal.SIGINT)
            await event.wait()
    assert (interrupt.pressed, calls) == (True, ["pause", "cancel"])
