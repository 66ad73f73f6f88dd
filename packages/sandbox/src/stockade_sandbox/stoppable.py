"""Long work in a thread that ends early when nobody waits for it any more, and says how far it is when it is long;
task groups whose one failure is raised as itself; and calls that block, made of those that are awaited."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial, wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

import anyio.from_thread
import anyio.to_thread
from anyio.from_thread import BlockingPortal

T = TypeVar("T")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
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


@asynccontextmanager
async def in_a_task_of(portal: BlockingPortal, manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """`manager`, entered and left by one task of the portal's, whichever tasks enter and leave this: its task groups
    ask for that."""
    owner = portal.wrap_async_context_manager(manager)
    found = await anyio.to_thread.run_sync(owner.__enter__)
    try:
        yield found
    finally:
        await anyio.to_thread.run_sync(owner.__exit__, None, None, None)


class Twin(ABC, Generic[A_co]):
    """A_co for whoever does not await: a thread has the event loop. Its calls are `name = blocking(A.name)`."""

    _awaited: A_co

    @abstractmethod
    def _running(self) -> BlockingPortal:
        """Into the loop that it lives in; raises when there is none."""


def blocking(call: Callable[Concatenate[A, P], Awaitable[T]]) -> Callable[Concatenate[Twin[A], P], T]:
    """The same call with the same arguments, errors and words, which returns when it is done."""

    @wraps(call)
    def done(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._running().call(partial(call, self._awaited, *args, **kwargs))

    return done
