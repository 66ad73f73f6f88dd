"""Programs that live beside the shell, as byte streams: what servers inside are spoken to with."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ByteStream

from stockade_sandbox.agent.connections import Connection, Running
from stockade_sandbox.agent.session import AgentSession
from stockade_sandbox.errors import SandboxDied
from stockade_sandbox.stoppable import unwrap_exception_group

WORDS_BYTES = 4096
END_S = 1.0
"""How long a program may go on after the end of its input."""


class RunningProgram(ByteStream):
    """Implements core.ports.Program: what it writes is received, what is sent it reads."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._words = bytearray()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._running.stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._running.stream.send(item)

    async def send_eof(self) -> None:
        await self._running.stream.send_eof()

    async def aclose(self) -> None:
        """It finds its input ended, and what it still writes is lost."""
        await self._running.stream.aclose()

    @property
    def status(self) -> int | None:
        """As a shell would give it; None while it runs, or when nobody can tell."""
        return self._running.ended.status if self._running.ended else None

    async def exit_reason(self) -> str:
        """The end of what it wrote as errors, once it has ended, or why it never ran."""
        await self._running.over.wait()
        ended = self._running.ended
        return ended.error if ended and ended.error else self._words.decode(errors="replace").strip()

    async def listen(self, errors: Connection) -> None:
        """Takes what it writes as errors, so that it never waits for that."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                self._words += await errors.receive()
                del self._words[:-WORDS_BYTES]


@asynccontextmanager
async def program(session: AgentSession, argv: Sequence[str]) -> AsyncIterator[RunningProgram]:
    """Started, and ended when this is left: by the end of its input, by force where that is not enough.

    ActionFailed when it cannot be started; that it is no program shows as its end, with the reason as last words.
    """
    async with unwrap_exception_group(), session.carrying(), anyio.create_task_group() as group:
        running = await session.start(argv)
        found = RunningProgram(running)
        group.start_soon(found.listen, running.errors)
        try:
            yield found
        finally:
            with anyio.CancelScope(shield=True):
                await _end(session, running)
            group.cancel_scope.cancel()


async def _end(session: AgentSession, running: Running) -> None:
    """The streams are let go of first, so that a program that waits to write finds that nobody reads."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await running.stream.aclose()
    with anyio.move_on_after(END_S):
        await running.over.wait()
    if not running.over.is_set():
        with suppress(SandboxDied):
            await session.stop(running)
            await running.over.wait()
    await running.errors.aclose()
