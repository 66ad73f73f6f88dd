"""Ctrl-C: the first one ends the run in order, the second one quits at once."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from stockade.cli.failures import INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """Whether somebody wants this to end. The hard way leaves nothing behind either: what we started dies with us."""

    def __init__(self) -> None:
        self.pressed = False

    @contextmanager
    def cancelling(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Inside, the first signal calls `cancel` in the event loop."""
        loop = asyncio.get_running_loop()

        def handle(_signal: int, _frame: FrameType | None) -> None:
            if self.pressed:
                os.write(2, b"\nstockade: quit at once\n")
                os._exit(INTERRUPTED)
            self.pressed = True
            loop.call_soon_threadsafe(cancel)

        before = {number: signal.signal(number, handle) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
