"""Programs of a sandbox while they run, for who uses it from Python: streams out, input in, an end."""

from collections.abc import AsyncIterator, Iterator

import anyio
from anyio.from_thread import BlockingPortal

from stockade_sandbox import port
from stockade_sandbox.errors import SandboxDied
from stockade_sandbox.stoppable import Twin, blocking

_GONE = (anyio.EndOfStream, anyio.BrokenResourceError)


class AsyncProgram:
    """What `AsyncSandbox.start` gives. Both streams have to be read where a program writes much: it waits for that."""

    def __init__(self, program: port.StartedProgram) -> None:
        self._program = program

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._program.status

    @property
    def timed_out(self) -> bool:
        return self._program.timed_out

    async def read(self, max_bytes: int = 65536) -> bytes:
        """Some of what it wrote to standard output, as soon as there is any; nothing at the end."""
        try:
            return await self._program.receive(max_bytes)
        except _GONE:
            return b""

    async def read_error(self, max_bytes: int = 65536) -> bytes:
        """The same of standard error."""
        try:
            return await self._program.receive_error(max_bytes)
        except _GONE:
            return b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Standard output, piece by piece."""
        while data := await self.read():
            yield data

    async def write(self, data: bytes) -> None:
        """To its standard input. BrokenPipeError when it has ended."""
        try:
            await self._program.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise BrokenPipeError("the program has ended, or its input was closed") from None

    async def close_stdin(self) -> None:
        """It finds the end of its input; on a terminal this is Ctrl-D."""
        try:
            await self._program.send_eof()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def kill(self) -> None:
        """Ends it and all that it has started: SIGTERM, and SIGKILL a second later."""
        await self._program.kill()

    async def signal(self, number: int) -> None:
        """To who is in the foreground of its terminal, else to it and its process group. Nothing once it has ended."""
        await self._program.signal(number)

    async def resize(self, rows: int, columns: int) -> None:
        """Its terminal (`pty=`); nothing where it has none."""
        await self._program.resize(rows, columns)

    async def wait(self, timeout: float | None = None) -> int:
        """For its end; its exit code: 126 or 127 where it could not be started, 124 where its time was over.

        TimeoutError after `timeout` seconds, and it goes on. SandboxDied.
        """
        with anyio.fail_after(timeout):
            status = await self._program.wait()
        if status is None:
            raise SandboxDied("the sandbox ended before the program")
        return status


class Program(Twin[AsyncProgram]):
    """AsyncProgram without `await`."""

    def __init__(self, program: AsyncProgram, portal: BlockingPortal) -> None:
        self._awaited, self._portal = program, portal

    def _running(self) -> BlockingPortal:
        return self._portal

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._awaited.exit_code

    @property
    def timed_out(self) -> bool:
        return self._awaited.timed_out

    def __iter__(self) -> Iterator[bytes]:
        """Standard output, piece by piece."""
        while data := self.read():
            yield data

    read = blocking(AsyncProgram.read)
    read_error = blocking(AsyncProgram.read_error)
    write = blocking(AsyncProgram.write)
    close_stdin = blocking(AsyncProgram.close_stdin)
    kill = blocking(AsyncProgram.kill)
    signal = blocking(AsyncProgram.signal)
    resize = blocking(AsyncProgram.resize)
    wait = blocking(AsyncProgram.wait)
