"""The host's end of the agent's stream: bytes as they come and go, and who reads them.

A round trip costs one turn of the event loop: nothing waits that need not, and no task stands by. Whoever waits for
something reads the stream, for all; when it has what it wants, the next of those who wait goes on reading.
"""

from collections.abc import Callable

import anyio
from anyio.abc import ByteStream

from stockade_sandbox.agent.frames import Malformed, Reader, Reply
from stockade_sandbox.unix_streams import Wire

_RECEIVE_BYTES = 1 << 16
ENDS = (Malformed, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""After one of these nothing comes any more."""


class CarriedWire:
    """As Wire, over a stream that another agent carries, and whose end is its maker's: this only stops to use it."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._closed = False

    def send_now(self, _data: bytes) -> int:
        """None of it: there is nothing that could be known without waiting."""
        return 0

    async def send(self, data: bytes) -> None:
        await self._stream.send(data)

    async def receive(self, max_bytes: int) -> bytes:
        if self._closed:
            raise anyio.ClosedResourceError
        return await self._stream.receive(max_bytes)

    def close(self) -> None:
        self._closed = True


class Inbox:
    """`take` gets each reply when it comes, and raises Malformed for one out of turn; `lose` is called at the end."""

    def __init__(self, wire: Wire | CarriedWire, take: Callable[[Reply], None], lose: Callable[[], None]) -> None:
        self._wire, self._take, self._lose = wire, take, lose
        self._reader = Reader()
        self._reading: anyio.CancelScope | None = None
        self._waiting: dict[anyio.Event, Callable[[], bool]] = {}
        self._end: Exception | None = None

    async def until(self, ready: Callable[[], bool]) -> None:
        """Until what came made it so. One of ENDS when it cannot any more. Cancelled, nothing is lost."""
        try:
            while not ready():
                if self._end:
                    raise self._end
                if self._reading:
                    await self._stand_by(ready)
                else:
                    await self._read()
        finally:
            if self._waiting and not self._reading:
                next(iter(self._waiting)).set()

    async def _stand_by(self, ready: Callable[[], bool]) -> None:
        event = anyio.Event()
        self._waiting[event] = ready
        try:
            await event.wait()
        finally:
            del self._waiting[event]

    async def _read(self) -> None:
        """What has come, at least one piece."""
        try:
            with anyio.CancelScope() as self._reading:
                self._reader.feed(await self._wire.receive(_RECEIVE_BYTES))
            while (reply := self._reader.next()) is not None:
                self._take(reply)
        except ENDS as error:
            self._end = error
            self._lose()
        finally:
            self._reading = None
        self.wake()

    def wake(self) -> None:
        """Something else made so what one of them waits for."""
        if self._reading:
            self._reading.cancel()
        for event, ready in self._waiting.items():
            if self._end or ready():
                event.set()
