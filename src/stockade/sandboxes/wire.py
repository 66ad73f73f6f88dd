"""The host's end of a stream socket. A round trip costs one turn of the event loop: nothing waits that need not."""

import array
import os
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
        """At least one byte; EndOfStream at the end."""
        return (await self._receive(max_bytes, 0))[0]

    async def receive_descriptors(self, max_bytes: int, most: int) -> tuple[bytes, list[int]]:
        """Bytes, and the at most `most` descriptors that came along, not inheritable; the caller closes them."""
        return await self._receive(max_bytes, most)

    async def _receive(self, max_bytes: int, most: int) -> tuple[bytes, list[int]]:
        """A peer that always has something ready must not keep other tasks from running."""
        if self._prompt:
            await lowlevel.checkpoint()
        self._prompt = True
        while True:
            try:
                data, descriptors = self._take(max_bytes, most)
            except BlockingIOError:
                self._prompt = False
                await anyio.wait_readable(self._socket.fileno())
                continue
            except OSError as error:
                raise self._failed() from error
            if not data:
                raise anyio.EndOfStream
            return data, descriptors

    def _take(self, max_bytes: int, most: int) -> tuple[bytes, list[int]]:
        if not most:
            return self._socket.recv(max_bytes), []
        found = array.array("i")
        data, ancillary, _, _ = self._socket.recvmsg(max_bytes, socket.CMSG_LEN(most * found.itemsize))
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                found.frombytes(content[: len(content) - len(content) % found.itemsize])
        for descriptor in found:
            os.set_inheritable(descriptor, False)
        return data, list(found)

    def _failed(self) -> Exception:
        return anyio.ClosedResourceError() if self._socket.fileno() < 0 else anyio.BrokenResourceError()

    def close(self) -> None:
        """Wakes a task that waits on it, with ClosedResourceError; idempotent."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket.fileno())
            self._socket.close()
