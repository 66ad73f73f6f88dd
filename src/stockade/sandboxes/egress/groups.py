"""Task groups whose one failure is raised as itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@asynccontextmanager
async def raising_the_one() -> AsyncIterator[None]:
    """Around a task group: its first error comes out bare, so that it can be caught by its name."""
    try:
        yield
    except BaseExceptionGroup as errors:
        raise _leaf(errors) from errors
