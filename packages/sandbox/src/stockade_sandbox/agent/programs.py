"""Programs that live beside the shell, as byte streams: what servers inside are spoken to with."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ByteStream

from stockade_sandbox.agent.connections import Running
from stockade_sandbox.agent.frames import TIMED_OUT, Size
from stockade_sandbox.agent.session import AgentSession
from stockade_sandbox.agent.wire import ENDS
from stockade_sandbox.errors import ActionFailed, SandboxDied
from stockade_sandbox.stoppable import unwrap_exception_group

WORDS_BYTES = 4096
_LAST_SIGNAL = 64
END_S = 1.0
"""How long a program may go on after the end of its input."""


class RunningProgram(ByteStream):
    """Implements port.Program: what it writes is received, what is sent it reads."""

    def __init__(self, session: AgentSession, running: Running, *, errors: bool, terminal: bool = False) -> None:
        self._session, self._running, self._errors = session, running, errors
        self._endings, self._terminal = session.endings(), terminal
        self._words = bytearray()
        self._all_heard = anyio.Event()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._running.stream.receive(max_bytes)

    async def receive_error(self, max_bytes: int = 65536) -> bytes:
        return await self._running.errors.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._running.stream.send(item)

    async def send_eof(self) -> None:
        """On a terminal what ends the input of whoever reads there: Ctrl-D, at the beginning of a line."""
        await (self.send(b"\x04") if self._terminal else self._running.stream.send_eof())

    async def aclose(self) -> None:
        """It finds its input ended, and what it still writes is lost."""
        await self._running.stream.aclose()

    @property
    def status(self) -> int | None:
        """As a shell would give it; None while it runs, or when nobody can tell."""
        return self._running.ended.status if self._running.ended else None

    @property
    def timed_out(self) -> bool:
        return self._running.ended is not None and bool(self._running.ended.flags & TIMED_OUT)

    @property
    def error(self) -> str:
        """Why it never ran, or which of our limits ended it."""
        ended = self._running.ended
        return (ended.error or self._session.why_ended(ended.status, self._endings).decode().strip()) if ended else ""

    async def wait(self) -> int | None:
        await self.is_over()
        return self.status

    async def kill(self) -> None:
        if not self._running.is_over:
            await self._session.stop(self._running)

    async def resize(self, rows: int, columns: int) -> None:
        """ValueError for what no terminal has."""
        if not (0 < rows < 1 << 16 and 0 < columns < 1 << 16):
            raise ValueError(f"no terminal has {rows} rows and {columns} columns")
        if not self._running.is_over:
            await self._session.resize(self._running, (rows, columns))

    async def signal(self, number: int) -> None:
        """ValueError for what is no signal."""
        if not 0 < number <= _LAST_SIGNAL:
            raise ValueError(f"no signal has the number {number}")
        if not self._running.is_over:
            await self._session.signal(self._running, number)

    async def exit_reason(self) -> str:
        """The end of what it wrote as errors, once it has ended, or why it never ran."""
        await self._all_heard.wait()
        return self.error or self._words.decode(errors="replace").strip()

    async def listen(self) -> None:
        """Takes what it writes as errors, so that it never waits for that, until it is over."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while not self._errors:
                self._words += await self._running.errors.receive()
                del self._words[:-WORDS_BYTES]
        await self.is_over()
        self._all_heard.set()

    async def is_over(self) -> None:
        with suppress(*ENDS):
            await self._session.until(lambda: self._running.is_over)


@asynccontextmanager
async def program(
    session: AgentSession,
    argv: Sequence[str] | None,
    cwd: str | None = None,
    timeout_s: float | None = None,
    *,
    errors: bool = False,
    terminal: Size | None = None,
    root: bool = False,
) -> AsyncIterator[RunningProgram]:
    """Started, and ended when this is left: by the end of its input, by force where that is not enough.

    ActionFailed when there are too many. That it is no program, or cannot be started, shows as its end, with the reason
    as last words.
    """
    try:
        session.places.acquire_nowait()
    except anyio.WouldBlock:
        raise ActionFailed(f"{argv[0] if argv else 'a shell'} cannot be started: there are too many programs") from None
    try:
        limit_s = 0 if timeout_s is None else session.seconds(timeout_s)
        running = await session.start(argv, session.workdir if cwd is None else cwd, limit_s, terminal, root=root)
        found = RunningProgram(session, running, errors=errors, terminal=terminal is not None)
        async with unwrap_exception_group(), anyio.create_task_group() as group:
            group.start_soon(found.listen)
            try:
                yield found
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(session, running, found)
                group.cancel_scope.cancel()
    finally:
        session.places.release()


@asynccontextmanager
async def shell(session: AgentSession, *, root: bool = False) -> AsyncIterator[AgentSession]:
    """One more persistent shell, in an agent of its own that is carried as any program; ended when this is left.

    ActionFailed when there are too many programs, and when a command has ended the agent from inside.
    """
    async with program(session, None, root=root) as carried:
        try:
            found = await AgentSession.open(carried, session.config)
            try:
                yield found
            finally:
                await found.close()
        except SandboxDied as error:
            with anyio.move_on_after(END_S):  # its end is told after its last words
                await carried.is_over()
            if carried.status is None:
                raise
            raise ActionFailed("the shell was ended from inside, and its state is lost", "open it again") from error


async def _end(session: AgentSession, running: Running, found: RunningProgram) -> None:
    """The streams are let go of first, so that a program that waits to write finds that nobody reads."""
    await found.aclose()
    with anyio.move_on_after(END_S):
        await found.is_over()
    if not running.is_over:
        with suppress(SandboxDied):
            await session.stop(running)
            await found.is_over()
