"""The host's end of a stream socket. A round trip costs one turn of the event loop: nothing waits that need not."""

import socket

import anyio
from anyio import lowlevel


class Wire:
    """Takes over `connected`. One reader and one writer at a time; the errors are those of anyio's byte streams."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._prompt = False

    def send_now(self, data: bytes) -> int:
        """Sends what fits without waiting; how many bytes that was. BrokenResourceError, ClosedResourceError."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._failed() from error

    async def send(self, data: bytes) -> None:
        """All of it. Cancelled, an unknown part was sent."""
        left = memoryview(data)[self.send_now(data) :]
        while left:
            await anyio.wait_writable(self._socket.fileno())
            left = left[self.send_now(bytes(left)) :]

    async def receive(self, max_bytes: int) -> bytes:
        """At least one byte; EndOfStream at the end. Others run too, however much the peer sends."""
        if self._prompt:
            await lowlevel.checkpoint()
        self._prompt = True
        while True:
            try:
                data = self._socket.recv(max_bytes)
            except BlockingIOError:
                self._prompt = False
                await anyio.wait_readable(self._socket.fileno())
                continue
            except OSError as error:
                raise self._failed() from error
            if not data:
                raise anyio.EndOfStream
            return data

    def _failed(self) -> Exception:
        return anyio.ClosedResourceError() if self._socket.fileno() < 0 else anyio.BrokenResourceError()

    def close(self) -> None:
        """Wakes a task that waits on it, with ClosedResourceError; idempotent."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket.fileno())
            self._socket.close()
