"""What clients inside have opened to one port of the sandbox's loopback, and what programs beside the shell read and
write: a byte stream each, carried by the agent.

Each side sends what the other has room for (WINDOW bytes a connection), so that memory is bounded and no connection
holds up another, or a command. Everything that comes from the agent is hostile: what breaks the rules is Malformed.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from stockade_sandbox.agent import frames
from stockade_sandbox.agent.frames import Closed, Data, Ended, Malformed, Opened, Started, Taken
from stockade_sandbox.errors import SandboxDied

Send = Callable[[bytes], Awaitable[None]]
"""A frame to the agent, whole or not at all. SandboxDied."""
Carried = Opened | Data | Taken | Closed | Started | Ended


class Connection(ByteStream):
    """One reader and one writer at a time; the errors are those of anyio's byte streams."""

    def __init__(self, number: int, send: Send, forget: Callable[[int], None]) -> None:
        self._number = number
        self._send = send
        self._forget = forget
        self._arrived = bytearray()
        self._untold = 0
        self._credit = frames.WINDOW
        self._ended = self._sent_end = self._broken = self._closed = False
        self._news, self._room = anyio.Event(), anyio.Event()

    def arrive(self, data: bytes) -> None:
        """From the agent; empty is the end."""
        if self._ended or len(self._arrived) + len(data) + self._untold > frames.WINDOW:
            raise Malformed("more than there is room for")
        self._ended = not data
        self._arrived += data
        self._news.set()

    def make_room(self, count: int) -> None:
        """The client took `count` bytes."""
        if count > frames.WINDOW - self._credit:
            raise Malformed("more was taken than was sent")
        self._credit += count
        self._room.set()

    def break_off(self) -> None:
        """The client is gone, or the sandbox."""
        self._broken = True
        self._news.set()
        self._room.set()

    def _check(self, *, sending: bool = False) -> None:
        if self._closed or (sending and self._sent_end):
            raise anyio.ClosedResourceError
        if self._broken:
            raise anyio.BrokenResourceError

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        while not self._arrived:
            self._check()
            if self._ended:
                raise anyio.EndOfStream
            self._news = anyio.Event()
            await self._news.wait()
        count = min(max_bytes, len(self._arrived))
        data = bytes(self._arrived[:count])
        del self._arrived[:count]
        self._untold += count
        if self._untold >= frames.WINDOW // 2 and not self._broken:
            told, self._untold = self._untold, 0
            try:
                await self._to_agent(frames.taken(self._number, told))
            except BaseException:  # cancelled, nothing was sent: it is as if nobody had asked
                self._untold = told - count
                self._arrived[:0] = data
                raise
        return data

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        left = memoryview(item)
        while left:
            self._check(sending=True)
            if not self._credit:
                self._room = anyio.Event()
                await self._room.wait()
                continue
            piece = left[: min(self._credit, frames.PIECE)]
            self._credit -= len(piece)
            await self._to_agent(frames.data(self._number, bytes(piece)))
            left = left[len(piece) :]

    async def send_eof(self) -> None:
        """Idempotent."""
        self._check()
        if not self._sent_end:
            self._sent_end = True
            await self._to_agent(frames.data(self._number, b""))

    async def _to_agent(self, frame: bytes) -> None:
        try:
            await self._send(frame)
        except SandboxDied as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._news.set()
        self._room.set()
        self._forget(self._number)
        if not self._broken:
            with anyio.CancelScope(shield=True), suppress(SandboxDied):
                await self._send(frames.close(self._number))


class Running:
    """A program beside the shell, as the agent tells of it."""

    def __init__(self, number: int, stream: Connection, errors: Connection) -> None:
        self.number, self.stream, self.errors = number, stream, errors
        self.ended: Ended | None = None
        self.over = anyio.Event()
        """It has ended, or nobody can tell any more."""


class Connections:
    """Those of one sandbox."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._open: dict[int, Connection] = {}
        self._waiting: deque[Connection] = deque()
        self._programs: dict[int, Running] = {}
        self.newest: Running | None = None
        """The program that was started last, which may have ended."""
        self._news = anyio.Event()

    def take(self, said: Carried) -> None:
        """From the agent. What it says of a connection that was closed here meanwhile is passed over."""
        if isinstance(said, Opened):
            self._waiting.append(self._opened(said.number))
            self._news.set()
        elif isinstance(said, Started):
            if not said.error:
                stream, errors = self._opened(said.number), self._opened(said.errors)
                self.newest = self._programs[said.number] = Running(said.number, stream, errors)
        elif isinstance(said, Ended):
            if (program := self._programs.pop(said.number, None)) is not None:
                program.ended = said
                program.over.set()
        else:
            self._told(said)

    def _opened(self, number: int) -> Connection:
        if number in self._open or len(self._open) >= frames.MAX_CONNECTIONS:
            raise Malformed(f"a connection too many: {number}")
        opened = self._open[number] = Connection(number, self._send, self._forget)
        return opened

    def _told(self, said: Data | Taken | Closed) -> None:
        found = self._open.get(said.number)
        if found is None:
            return
        match said:
            case Data():
                found.arrive(said.data)
            case Taken():
                found.make_room(said.size)
            case Closed():
                self._forget(said.number)
                found.break_off()

    def _forget(self, number: int) -> None:
        found = self._open.pop(number, None)
        if found is not None and found in self._waiting:
            self._waiting.remove(found)

    async def accept(self) -> ByteStream:
        """The next one; whoever waits still waits when the sandbox is gone."""
        while not self._waiting:
            self._news = anyio.Event()
            await self._news.wait()
        return self._waiting.popleft()

    def lose(self) -> None:
        """The sandbox is gone, or what it says is no longer read."""
        for one in self._open.values():
            one.break_off()
        for program in self._programs.values():
            program.over.set()
        self._open.clear()
        self._programs.clear()
        self._waiting.clear()
