"""The host's end of the agent's stream: bytes as they come and go, and what they say, sorted.

A round trip costs one turn of the event loop: nothing waits that need not. Replies to the session wait in order, the
rest goes to the connections. Whoever waits for a reply reads the stream; where connections are carried, a task does
that all the time.
"""

import socket
from collections import deque

import anyio
from anyio import lowlevel

from stockade_sandbox.agent.connections import Connections
from stockade_sandbox.agent.frames import Closed, Data, Ended, Malformed, Opened, Reader, Reply, Started, Taken

_RECEIVE_BYTES = 1 << 16
_ENDS = (Malformed, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


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


class Inbox:
    """One waits for replies at a time."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._reader = Reader()
        self._replies: deque[Reply] = deque()
        self._connections: Connections | None = None
        self._pumping = False
        self._end: Exception | None = None
        self._news, self._empty = anyio.Event(), anyio.Event()

    async def next(self) -> Reply:
        """Malformed, or an error of anyio's byte streams when there will be none. Cancelled, nothing is lost."""
        while not self._replies:
            if self._pumping:
                self._news = anyio.Event()
                await self._news.wait()
            elif self._end:
                raise self._end
            else:
                await self._fill()
        reply = self._replies.popleft()
        if not self._replies:
            self._empty.set()
        return reply

    async def _fill(self) -> None:
        """Reads what has come, at least one piece."""
        self._reader.feed(await self._wire.receive(_RECEIVE_BYTES))
        while (reply := self._reader.next()) is not None:
            if isinstance(reply, Opened | Data | Taken | Closed | Started | Ended):
                if self._connections is None:
                    raise Malformed("a connection that nobody asked for")
                self._connections.take(reply)
            if not isinstance(reply, Opened | Data | Taken | Closed | Ended):
                self._replies.append(reply)

    async def pump(self, connections: Connections, started: anyio.Event) -> None:
        """Reads until the stream's end, for `connections` too. Cancelled, whoever waits for a reply reads again.

        Nobody may be waiting for one when it starts.
        """
        self._connections, self._pumping = connections, True
        started.set()
        try:
            while True:
                await self._fill()
                self._news.set()
                while self._replies:  # nothing more is read into memory meanwhile
                    self._empty = anyio.Event()
                    await self._empty.wait()
        except _ENDS as error:
            self._end = error
        finally:
            self._pumping = False
            self._news.set()
            connections.lose()
