"""Bytes from one side to the other: counted, never more than one piece in memory, given up when nothing moves."""

import re
from collections.abc import Callable
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


async def copy_body(source: End, to: ByteStream, framing: Framing, sent: Sent, *, chunks: bool = True) -> None:
    """A body as `framing` has it; `chunks` False writes a chunked one plain. Refused (400) for malformed chunks."""
    if framing is Body.CHUNKED:
        await _copy_chunked(source, to, sent, chunks=chunks)
    elif framing is Body.UNTIL_CLOSE:
        await _copy_all(source, to, sent)
    else:
        assert isinstance(framing, int)
        await _copy_exactly(source, to, framing, sent)


async def _copy_exactly(source: End, to: ByteStream, count: int, sent: Sent) -> None:
    while count:
        data = await source.reader.receive(min(count, PIECE))
        count -= len(data)
        sent(len(data))
        await to.send(data)


async def _copy_all(source: End, to: ByteStream, sent: Sent) -> None:
    try:
        while True:
            data = await source.reader.receive(PIECE)
            sent(len(data))
            await to.send(data)
    except anyio.EndOfStream:
        return


async def _line(source: End) -> bytes:
    try:
        return await source.reader.receive_until(b"\r\n", _MAX_LINE)
    except anyio.DelimiterNotFound:
        raise Refused("a chunk's length cannot be read", 400) from None


async def _copy_chunked(source: End, to: ByteStream, sent: Sent, *, chunks: bool) -> None:
    while True:
        found = _CHUNK.fullmatch(await _line(source))
        if not found:
            raise Refused("a chunk's length cannot be read", 400)
        size = int(found[1], 16)
        if size == 0:
            break
        if chunks:
            await to.send(b"%x\r\n" % size)
        await _copy_exactly(source, to, size, sent)
        if await source.reader.receive_exactly(2) != b"\r\n":
            raise Refused("a chunk does not end where its length says", 400)
        if chunks:
            await to.send(b"\r\n")
    for _ in range(_MAX_TRAILERS):
        if not await _line(source):
            if chunks:
                await to.send(b"0\r\n\r\n")
            return
    raise Refused("too many trailers", 400)


async def tunnel(client: End, server: ByteStream, meter: Meter, idle_s: float) -> None:
    """Both ways until both are at their end, each half closed for itself. TimeoutError after `idle_s` of silence."""
    with anyio.fail_after(idle_s) as patience:

        async def pump(source: End, to: ByteStream, way: Literal["up", "down"]) -> None:
            def sent(size: int) -> None:
                meter.count(way, size)
                patience.deadline = anyio.current_time() + idle_s

            await _copy_all(source, to, sent)
            await to.send_eof()

        async with unwrap_exception_group(), anyio.create_task_group() as group:
            group.start_soon(pump, client, server, "up")
            group.start_soon(pump, End.of(server), client.stream, "down")
