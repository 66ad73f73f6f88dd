"""Ends what does not end by itself, without a thread or a switch for what does.

One thread waits for the alarm, one for the end of input. The calls themselves are read and done by the main thread,
which pays two system calls for its limit.
"""

import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar

Result = TypeVar("Result")
_EARLY_S = 0.001
"""An alarm this much before its time is no leftover of the call before: timers and clocks round."""


class Watch:
    """One a process, made before any other thread: those take over that the alarm is not theirs."""

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        self._lock = threading.Lock()
        self._due = math.inf
        self._late: Callable[[], NoReturn] = _over
        threading.Thread(target=self._wait, daemon=True).start()

    def within(self, seconds: float, late: Callable[[], NoReturn], work: Callable[[], Result]) -> Result:
        """What `work` gives; when it takes longer, `late` is called, by another thread, and ends the process."""
        self._late, self._due = late, time.monotonic() + seconds
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            return work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            with self._lock:  # held while `late` is told: nobody answers twice
                self._due = math.inf

    def _wait(self) -> None:
        while True:
            signal.sigwait({signal.SIGALRM})
            with self._lock:
                if self._due - time.monotonic() <= _EARLY_S:
                    self._late()


def end_with(stream: int) -> None:
    """From here on the end of input is the end, also of a call that still runs."""
    threading.Thread(target=_hung_up, args=(stream,), daemon=True).start()


def _hung_up(stream: int) -> NoReturn:
    waiting = select.poll()
    waiting.register(stream, select.POLLRDHUP)
    waiting.poll()
    _over()


def _over() -> NoReturn:
    os._exit(0)
