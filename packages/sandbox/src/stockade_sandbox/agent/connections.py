"""Byte streams that the agent carries: what clients inside have opened to ports of the sandbox's loopback, and what
programs beside the shell read and write.

Each side sends what the other has room for (WINDOW bytes a connection), so that memory is bounded and no connection
holds up another, or a command. Everything that comes from the agent is hostile: what breaks the rules is Malformed.
"""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Any, Protocol

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, SocketAttribute

from stockade_sandbox.agent import frames
from stockade_sandbox.agent.frames import Closed, Data, Ended, Malformed, Opened, Taken
from stockade_sandbox.agent.wire import ENDS
from stockade_sandbox.errors import SandboxDied


class Link(Protocol):
    """What connections need of the agent's stream."""

    async def send(self, frame: bytes) -> None:
        """Whole or not at all. SandboxDied."""
        ...

    async def until(self, ready: Callable[[], bool]) -> None:
        """Until what came made it so. One of ENDS."""
        ...

    def wake(self) -> None:
        """Something else made it so."""
        ...


class Connection(ByteStream):
    """One reader and one writer at a time; the errors are those of anyio's byte streams."""

    def __init__(self, number: int, link: Link, forget: Callable[[int], None], went: tuple[str, int] = ("", 0)) -> None:
        self.number = number
        self._went = went
        self._link, self._forget = link, forget
        self._arrived = bytearray()
        self._untold = 0
        self._credit = frames.WINDOW
        self._ended = self._sent_end = self._broken = self._closed = False

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """Of a client: where it went."""
        return {SocketAttribute.local_address: lambda: self._went} if self._went[1] else {}

    def arrive(self, data: bytes) -> None:
        """From the agent; empty is the end."""
        if self._ended or len(self._arrived) + len(data) + self._untold > frames.WINDOW:
            raise Malformed("more than there is room for")
        self._ended = not data
        self._arrived += data

    def make_room(self, count: int) -> None:
        """The other side took `count` bytes."""
        if count > frames.WINDOW - self._credit:
            raise Malformed("more was taken than was sent")
        self._credit += count

    def break_off(self, *, ended: bool = False) -> None:
        """The other side is gone, or the sandbox. `ended`: after all that it had to say."""
        self._broken, self._ended = True, self._ended or ended

    def _check(self, *, sending: bool = False) -> None:
        if self._closed or (sending and self._sent_end):
            raise anyio.ClosedResourceError
        if self._broken and (sending or not self._ended):
            raise anyio.BrokenResourceError

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        await self._link.until(lambda: bool(self._arrived) or self._ended or self._broken or self._closed)
        if not self._arrived:
            self._check()
            raise anyio.EndOfStream
        data = bytes(self._arrived[:max_bytes])
        del self._arrived[: len(data)]
        self._untold += len(data)
        if self._untold >= frames.WINDOW // 2 and not self._broken:
            told, self._untold = self._untold, 0
            try:
                await self._to_agent(frames.taken(self.number, told))
            except BaseException:  # cancelled, nothing was sent: it is as if nobody had asked
                self._untold = told - len(data)
                self._arrived[:0] = data
                raise
        return data

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        left = memoryview(item)
        while left:
            await self._link.until(lambda: self._credit > 0 or self._broken or self._closed)
            self._check(sending=True)
            piece = left[: min(self._credit, frames.PIECE)]
            self._credit -= len(piece)
            await self._to_agent(frames.data(self.number, bytes(piece)))
            left = left[len(piece) :]

    async def send_eof(self) -> None:
        """Idempotent."""
        self._check(sending=not self._sent_end)
        if not self._sent_end:
            self._sent_end = True
            await self._to_agent(frames.data(self.number, b""))

    async def _to_agent(self, frame: bytes) -> None:
        try:
            await self._link.send(frame)
        except SandboxDied as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._forget(self.number)
        self._link.wake()
        if not self._broken:
            with anyio.CancelScope(shield=True), suppress(SandboxDied):
                await self._link.send(frames.close(self.number))


class Running:
    """A program beside the shell, as the agent tells of it."""

    def __init__(self, stream: Connection, errors: Connection) -> None:
        self.number, self.stream, self.errors = stream.number, stream, errors
        self.ended: Ended | None = None
        self.is_over = False
        """It has ended, or nobody can tell any more."""


class Connections:
    """Those of one sandbox. `listens`: it was asked to listen, and clients may come."""

    def __init__(self, link: Link) -> None:
        self.listens = False
        self._link = link
        self._open: dict[int, Connection] = {}
        self._clients: deque[Connection] = deque()
        self._programs: dict[int, Running] = {}
        self._next = 2

    def number(self) -> int:
        """A new one, for a program or a command."""
        while True:
            found = self._next
            self._next = found + 2 if found + 2 < frames.CLIENT else 2
            if found not in self._open and found not in self._programs:
                return found

    def forget(self, running: Running) -> None:
        """It was not started."""
        for number in (running.number, running.number + 1):
            self._forget(number)
        del self._programs[running.number]

    def start(self) -> Running:
        """What the agent will tell of a program that it is about to be asked for."""
        number = self.number()
        running = self._programs[number] = Running(self._opened(number), self._opened(number + 1))
        return running

    def take(self, reply: Opened | Data | Taken | Closed | Ended) -> None:
        """From the agent. What it says of a connection that was closed here meanwhile is passed over."""
        number = reply.number
        if not self.listens if number & frames.CLIENT else not 2 <= number < self._next:
            raise Malformed(f"a connection that nobody asked for: {number}")
        found = self._open.get(number)
        match reply:
            case Opened():
                clients = sum(1 for one in self._open if one & frames.CLIENT)
                if found or clients >= frames.MAX_CLIENTS or not number & frames.CLIENT:
                    raise Malformed(f"a connection too many: {number}")
                self._clients.append(self._opened(number, (str(IPv4Address(reply.address & 0xFFFFFFFF)), reply.port)))
            case Ended():
                self._ended(reply)
            case _ if found is None:
                pass
            case Data():
                found.arrive(reply.data)
            case Taken():
                found.make_room(reply.size)
            case Closed():
                self._forget(number)
                found.break_off()

    def _opened(self, number: int, went: tuple[str, int] = ("", 0)) -> Connection:
        opened = self._open[number] = Connection(number, self._link, self._forget, went)
        return opened

    def _ended(self, reply: Ended) -> None:
        program = self._programs.pop(reply.number, None)
        if program is None:
            raise Malformed(f"a program that does not run: {reply.number}")
        for stream in (program.stream, program.errors):
            self._forget(stream.number)
            stream.break_off(ended=True)
        program.ended, program.is_over = reply, True

    def _forget(self, number: int) -> None:
        found = self._open.pop(number, None)
        if found is not None and found in self._clients:
            self._clients.remove(found)

    async def accept(self) -> ByteStream:
        """The next one; whoever waits still waits when the sandbox is gone."""
        try:
            await self._link.until(lambda: bool(self._clients))
        except ENDS:
            await anyio.sleep_forever()
        return self._clients.popleft()

    def lose(self) -> None:
        """The sandbox is gone."""
        for one in self._open.values():
            one.break_off()
        for program in self._programs.values():
            program.is_over = True
        self._open.clear()
        self._programs.clear()
        self._clients.clear()
