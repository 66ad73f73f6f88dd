"""What the agent says, sorted: replies to the session wait here in order, the rest goes to the connections.

Whoever waits for a reply reads the stream; where connections are carried, a task does that all the time.
"""

from collections import deque

import anyio

from stockade_sandbox.agent.connections import Connections
from stockade_sandbox.agent.frames import Closed, Data, Ended, Malformed, Opened, Reader, Reply, Started, Taken
from stockade_sandbox.agent.wire import Wire

_RECEIVE_BYTES = 1 << 16
_ENDS = (Malformed, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


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
