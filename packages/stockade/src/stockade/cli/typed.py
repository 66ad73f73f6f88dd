"""A line from a person at the terminal, awaited in the event loop: the run goes on with what it is doing meanwhile."""

import os
import sys
import termios

import anyio

_LINE_BYTES = 65_536


async def typed(question: str, *, fresh: bool = False, leave: anyio.Event | None = None) -> str | None:
    """The line, without blanks around it; None at the end of input, or when `leave` is set meanwhile.

    `fresh`: what was typed before the question was shown is thrown away, and only a line that ends counts.
    """
    if fresh:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    sys.stderr.write(question)
    sys.stderr.flush()
    if not await _readable(leave):
        return None
    line = os.read(sys.stdin.fileno(), _LINE_BYTES)
    if not line or (fresh and not line.endswith(b"\n")):
        return None
    return line.decode(errors="replace").strip()


async def _readable(leave: anyio.Event | None) -> bool:
    """True when there is a line; False when `leave` was set before."""
    if leave is None:
        await anyio.wait_readable(sys.stdin)
        return True
    there = False
    async with anyio.create_task_group() as group:

        async def wait() -> None:
            await leave.wait()
            group.cancel_scope.cancel()

        group.start_soon(wait)
        await anyio.wait_readable(sys.stdin)
        there = True
        group.cancel_scope.cancel()
    return there
