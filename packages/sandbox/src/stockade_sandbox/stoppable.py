"""Long work in a thread that ends early when nobody waits for it any more, and says how far it is when it is long;
and task groups whose one failure is raised as itself."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio.from_thread
import anyio.to_thread

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Called with what is done, bytes done and bytes in all. May raise, to end the work."""

_LONG_S = 0.5
_EVERY_S = 0.1


def quietly(_what: str, _done: int, _total: int) -> None:
    """A progress that nobody sees."""


async def stoppable(work: Callable[[Progress], T], on_progress: Progress | None = None) -> T:
    """What `work` gives, done in a thread. It calls the progress that it is handed often: where that raises, it must
    remove what it made.

    Cancelled, this returns when the work has ended. `on_progress` is called in the event loop, when it takes long.
    """
    told = time.monotonic() + _LONG_S

    def report(what: str, done: int, total: int) -> None:
        nonlocal told
        anyio.from_thread.check_cancelled()
        if on_progress and time.monotonic() >= told:
            told = time.monotonic() + _EVERY_S
            anyio.from_thread.run_sync(on_progress, what, done, total)

    return await anyio.to_thread.run_sync(work, report)


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@asynccontextmanager
async def unwrap_exception_group() -> AsyncIterator[None]:
    """Around a task group: its first error comes out bare, so that it can be caught by its name."""
    try:
        yield
    except BaseExceptionGroup as errors:
        raise _leaf(errors) from errors
