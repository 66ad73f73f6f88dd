"""Bytes from one side to the other: counted, never more than one piece in memory, given up when nothing moves."""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from stockade_sandbox.egress.http import Body, Framing
from stockade_sandbox.egress.rules import Refused
from stockade_sandbox.stoppable import unwrap_exception_group

PIECE = 64 * 1024
_MAX_LINE, _MAX_TRAILERS = 1024, 64
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\r\n]*)?")

Cut = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, anyio.IncompleteRead, OSError)
"""The ways in which a connection ends early."""


@dataclass
class Meter:
    """Bytes to and from the server."""

    up: int = 0
    down: int = 0

    def count(self, way: Literal["up", "down"], size: int) -> None:
        setattr(self, way, getattr(self, way) + size)


@dataclass
class End:
    """One side of a connection, with what was read from it too early."""

    stream: ByteStream
    reader: BufferedByteReceiveStream

    @classmethod
    def of(cls, stream: ByteStream) -> "End":
        return cls(stream, BufferedByteReceiveStream(stream))


Sent = Callable[[int], None]


class Mask:
    """Hides secrets in what passes piece by piece: as many asterisks as they are long, so that all lengths stay.

    It keeps back only what may be the beginning of one.
    """

    def __init__(self, secrets: Iterable[bytes]) -> None:
        self._secrets = tuple(secrets)
        self._kept = b""

    def feed(self, data: bytes) -> bytes:
        found = self._kept + data
        for secret in self._secrets:
            found = found.replace(secret, b"*" * len(secret))
        keep = max((_begun(found, secret) for secret in self._secrets), default=0)
        self._kept = found[len(found) - keep :]
        return found[: len(found) - keep]

    def whole(self, data: bytes) -> bytes:
        """Of what does not come in pieces."""
        return self.feed(data) + self.rest()

    def rest(self) -> bytes:
        kept, self._kept = self._kept, b""
        return kept


def _begun(data: bytes, secret: bytes) -> int:
    """How much of `secret` stands at the end of `data`."""
    return next((size for size in range(min(len(secret) - 1, len(data)), 0, -1) if data.endswith(secret[:size])), 0)


Write = Callable[[bytes], Awaitable[None]]


async def copy_body(
    source: End, to: ByteStream, framing: Framing, sent: Sent, *, chunks: bool = True, mask: Mask | None = None
) -> None:
    """A body as `framing` has it; `chunks` False writes a chunked one plain. Refused (400) for malformed chunks."""
    in_chunks = chunks and framing is Body.CHUNKED

    async def write(data: bytes) -> None:
        if data := mask.feed(data) if mask else data:
            await to.send(b"%x\r\n%b\r\n" % (len(data), data) if in_chunks else data)

    if framing is Body.CHUNKED:
        await _copy_chunked(source, write, sent)
    elif framing is Body.UNTIL_CLOSE:
        await _copy_all(source, write, sent)
    else:
        assert isinstance(framing, int)
        await _copy_exactly(source, write, framing, sent)
    if mask and (data := mask.rest()):
        await to.send(b"%x\r\n%b\r\n" % (len(data), data) if in_chunks else data)
    if in_chunks:
        await to.send(b"0\r\n\r\n")


async def _copy_exactly(source: End, write: Write, count: int, sent: Sent) -> None:
    while count:
        data = await source.reader.receive(min(count, PIECE))
        count -= len(data)
        sent(len(data))
        await write(data)


async def _copy_all(source: End, write: Write, sent: Sent) -> None:
    try:
        while True:
            data = await source.reader.receive(PIECE)
            sent(len(data))
            await write(data)
    except anyio.EndOfStream:
        return


async def _line(source: End) -> bytes:
    try:
        return await source.reader.receive_until(b"\r\n", _MAX_LINE)
    except anyio.DelimiterNotFound:
        raise Refused("a chunk's length cannot be read", 400) from None


async def _copy_chunked(source: End, write: Write, sent: Sent) -> None:
    while True:
        found = _CHUNK.fullmatch(await _line(source))
        if not found:
            raise Refused("a chunk's length cannot be read", 400)
        size = int(found[1], 16)
        if size == 0:
            break
        await _copy_exactly(source, write, size, sent)
        if await source.reader.receive_exactly(2) != b"\r\n":
            raise Refused("a chunk does not end where its length says", 400)
    for _ in range(_MAX_TRAILERS):
        if not await _line(source):
            return
    raise Refused("too many trailers", 400)


async def until_one_ends(client: End, server: End, meter: Meter, idle_s: float, mask: Mask) -> None:
    """Both ways until either is at its end, as a WebSocket is. TimeoutError after `idle_s` of silence."""
    with anyio.fail_after(idle_s) as patience:

        async def pump(source: End, write: Write, way: Literal["up", "down"]) -> None:
            def sent(size: int) -> None:
                meter.count(way, size)
                patience.deadline = anyio.current_time() + idle_s

            await _copy_all(source, write, sent)
            group.cancel_scope.cancel()

        async def down(data: bytes) -> None:
            if data := mask.feed(data):
                await client.stream.send(data)

        async with unwrap_exception_group(), anyio.create_task_group() as group:
            group.start_soon(pump, client, server.stream.send, "up")
            group.start_soon(pump, server, down, "down")
    if data := mask.rest():
        await client.stream.send(data)


async def tunnel(client: End, server: End, meter: Meter, idle_s: float) -> None:
    """Both ways until both are at their end, each half closed for itself. TimeoutError after `idle_s` of silence."""
    with anyio.fail_after(idle_s) as patience:

        async def pump(source: End, to: ByteStream, way: Literal["up", "down"]) -> None:
            def sent(size: int) -> None:
                meter.count(way, size)
                patience.deadline = anyio.current_time() + idle_s

            await _copy_all(source, to.send, sent)
            await to.send_eof()

        async with unwrap_exception_group(), anyio.create_task_group() as group:
            group.start_soon(pump, client, server.stream, "up")
            group.start_soon(pump, server, client.stream, "down")
