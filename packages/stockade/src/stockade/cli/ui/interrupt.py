"""Ctrl-C: the first pauses and asks where somebody can be asked, the next ends the run in order, the last quits.

SIGTERM and SIGHUP, and a Ctrl-C where nobody can be asked, begin with the second of these. Only a Ctrl-C quits: two
who stop a run at once end it in order.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import anyio

from stockade.cli.ui.failures import INTERRUPTED, SIGNALS, unwrap_exception_group

T = TypeVar("T")


class Interrupt:
    """Whether somebody wants this to end. The hard way leaves nothing behind either: what we started dies with us.

    `pause` is called in the event loop at a first Ctrl-C, where it is set; `answered` is for when that is over.
    """

    def __init__(self) -> None:
        self.pressed = False
        self.pause: Callable[[], None] | None = None
        self._asked = False

    def answered(self) -> None:
        """The user let it go on: the next Ctrl-C is a first one again."""
        self._asked = False

    @contextmanager
    def cancelling(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Inside, a signal pauses, calls `cancel` in the event loop, or quits."""
        loop = asyncio.get_running_loop()

        def handle(number: int, _frame: FrameType | None) -> None:
            if self.pressed and number != signal.SIGINT:
                return
            if self.pressed:
                os.write(2, b"\nstockade: quit at once\n")
                os._exit(INTERRUPTED)
            if number == signal.SIGINT and self.pause is not None and not self._asked:
                self._asked = True
                loop.call_soon_threadsafe(self.pause)
                return
            self.pressed = True
            loop.call_soon_threadsafe(cancel)

        before = {number: signal.signal(number, handle) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def interruptible(work: Callable[[], Awaitable[T]]) -> T | None:
    """What `work` returns in an event loop of its own; None when somebody wanted it to end before."""

    async def run() -> T | None:
        found, interrupt = None, Interrupt()
        try:
            with anyio.CancelScope() as scope, interrupt.cancelling(scope.cancel):
                found = await work()
        except BaseExceptionGroup as group:
            raise unwrap_exception_group(group) from None
        return None if interrupt.pressed else found

    return anyio.run(run)
