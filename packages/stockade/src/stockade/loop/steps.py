"""Awaiting what may block: `time.sleep` or `while True` in a coroutine holds up the whole process, and no time-out of
the event loop ends it.
"""

import signal
import threading
import time
from collections.abc import Awaitable, Generator, Iterator
from contextlib import contextmanager
from typing import Any


class Blocked(BaseException):
    """Raised where it blocks. No Exception: what blocks is not to catch it."""


class Stepwise:
    """Awaits `work`; Blocked when one step of it, from one point where it waits to the next, takes `seconds`.

    Bounds nothing outside the main thread. An alarm that the program has set waits until then.
    """

    def __init__(self, work: Awaitable[Any], seconds: float) -> None:
        self._work, self._seconds = work, seconds

    def __await__(self) -> Generator[Any, Any, Any]:
        if not isinstance(self._work, Awaitable):
            raise TypeError(f"{type(self._work).__name__} cannot be awaited")
        steps = self._work.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                with alarm(self._seconds):
                    waits_for = next(steps) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                return end.value
            try:
                yield waits_for
                thrown = None
            except BaseException as error:  # noqa: BLE001 - what is thrown in is for the work
                thrown = error


@contextmanager
def alarm(seconds: float | None) -> Iterator[None]:
    """Blocked in what is done inside, once `seconds` are over; with the same exceptions."""
    before = signal.getsignal(signal.SIGALRM) if threading.current_thread() is threading.main_thread() else None
    if seconds is None or before is None:
        yield
        return
    signal.signal(signal.SIGALRM, _blocked)
    other_s, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    begun = time.monotonic()
    try:
        yield
    finally:
        left_s = max(1e-3, other_s - (time.monotonic() - begun)) if other_s else 0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left_s)


def _blocked(*_: object) -> None:
    raise Blocked
