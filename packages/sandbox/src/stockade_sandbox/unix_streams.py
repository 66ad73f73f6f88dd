"""Streams over Unix sockets whose reading and writing may be cancelled at any time.

anyio's own (4.16, on asyncio) raises InvalidStateError in a callback, which asyncio prints with a traceback, where a
task that waits for data is cancelled in the turn of the event loop in which they come.
"""

import socket
from pathlib import Path

import anyio
from anyio import lowlevel
from anyio.abc import ByteStream, SocketAttribute


class Wire:
    """Takes over `connected`. One reader and one writer at a time; the errors are those of anyio's byte streams."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.connection = connected
        self._prompt = False

    def send_now(self, data: bytes) -> int:
        """Sends what fits without waiting; how many bytes that was. BrokenResourceError, ClosedResourceError."""
        try:
            return self.connection.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._failed() from error

    async def send(self, data: bytes) -> None:
        """All of it. Cancelled, an unknown part was sent."""
        left = memoryview(data)[self.send_now(data) :]
        while left:
            await anyio.wait_writable(self.connection.fileno())
            left = left[self.send_now(bytes(left)) :]

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """At least one byte; EndOfStream at the end. Others run too, however much the peer sends."""
        if self._prompt:
            await lowlevel.checkpoint()
        self._prompt = True
        while True:
            try:
                data = self.connection.recv(max_bytes)
            except BlockingIOError:
                self._prompt = False
                await anyio.wait_readable(self.connection.fileno())
                continue
            except OSError as error:
                raise self._failed() from error
            if not data:
                raise anyio.EndOfStream
            return data

    def _failed(self) -> Exception:
        return anyio.ClosedResourceError() if self.connection.fileno() < 0 else anyio.BrokenResourceError()

    def close(self) -> None:
        """Wakes a task that waits on it, with ClosedResourceError; idempotent."""
        if self.connection.fileno() >= 0:
            anyio.notify_closing(self.connection.fileno())
            self.connection.close()


class UnixStream(Wire, ByteStream):
    """As one of anyio's streams."""

    async def send_eof(self) -> None:
        self.connection.shutdown(socket.SHUT_WR)

    async def receive_fds(self, most: int) -> list[int]:
        """With the one byte that they come with. EndOfStream, OSError."""
        await anyio.wait_readable(self.connection)
        data, found, _, _ = socket.recv_fds(self.connection, 1, most)
        if not data:
            raise anyio.EndOfStream
        return found

    async def aclose(self) -> None:
        """Whoever waits on it has ClosedResourceError."""
        self.close()
        await lowlevel.checkpoint()


async def connected(path: str | Path) -> UnixStream:
    """OSError where nobody listens at `path`."""
    return await taken_over(await anyio.connect_unix(path))


async def taken_over(stream: ByteStream) -> UnixStream:
    """The connection of a stream of anyio's that nobody uses any more."""
    try:
        return UnixStream(stream.extra(SocketAttribute.raw_socket).dup())
    finally:
        await stream.aclose()
