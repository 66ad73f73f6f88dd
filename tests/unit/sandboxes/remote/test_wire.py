"""Frames: whole or not at all, however the stream is cut, and whoever meddles with it."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream
from hypothesis import given, settings
from hypothesis import strategies as st

from stockade_sandbox.backends.remote.wire import MAX_FRAME_BYTES, Link, LinkLost
from tests.support.scale import scaled

KEY, OTHER = b"k" * 32, b"o" * 32


class Pieces(ByteStream):
    """Gives what it was made of, piece by piece, then ends; keeps what is sent."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = [piece for piece in pieces if piece]
        self.sent = b""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        if not self.pieces:
            raise anyio.EndOfStream
        piece, self.pieces[0] = self.pieces[0][:max_bytes], self.pieces[0][max_bytes:]
        if not self.pieces[0]:
            self.pieces.pop(0)
        return piece

    async def send(self, item: bytes) -> None:
        self.sent += item

    async def send_eof(self) -> None:
        """Nothing."""

    async def aclose(self) -> None:
        """Nothing."""

    @property
    def extra_attributes(self) -> Mapping[Any, Any]:
        return {}


def link(stream: ByteStream, send: bytes = KEY, receive: bytes = KEY) -> Link:
    return Link(stream, BufferedByteReceiveStream(stream), send, receive)


async def frames(*messages: tuple[bytes, bytes]) -> bytes:
    stream = Pieces()
    sender = link(stream)
    for text, raw in messages:
        await sender.send(text, raw)
    return stream.sent


async def received(*pieces: bytes, key: bytes = KEY) -> list[tuple[bytes, bytes]]:
    """What arrives until the link is lost."""
    receiver, found = link(Pieces(*pieces), receive=key), []
    try:
        while True:
            found.append(await receiver.receive())
    except LinkLost:
        return found


def arrived(*pieces: bytes) -> list[tuple[bytes, bytes]]:
    return anyio.run(partial(received, *pieces))


MESSAGES = [(b'{"a": 1}', b""), (b"{}", b"\0\xff" * 50), (b'{"b": "x"}', b"raw")]


@settings(max_examples=scaled(60), deadline=None)
@given(st.lists(st.integers(1, 90), max_size=40))
def test_any_fragmentation_gives_the_same(cuts: list[int]) -> None:
    whole = anyio.run(frames, *MESSAGES)
    pieces, at = [], 0
    for size in cuts:
        pieces.append(whole[at : at + size])
        at += size
    assert arrived(*pieces, whole[at:]) == MESSAGES


def test_byte_by_byte() -> None:
    whole = anyio.run(frames, *MESSAGES)
    assert arrived(*[bytes([one]) for one in whole]) == MESSAGES


@settings(max_examples=scaled(80), deadline=None)
@given(st.data())
def test_a_changed_byte_is_never_used(data: st.DataObject) -> None:
    whole = bytearray(anyio.run(frames, *MESSAGES))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    found = arrived(bytes(whole))
    assert found == MESSAGES[: len(found)]
    assert len(found) < len(MESSAGES)


@pytest.mark.parametrize("end", [0, 1, 3, 4, 19, 20, 25, -1])
def test_a_cut_frame_is_not_used(end: int) -> None:
    whole = anyio.run(frames, MESSAGES[0])
    assert arrived(whole[:end]) == []


def test_a_replayed_a_left_out_and_a_reordered_frame_end_the_link() -> None:
    whole = anyio.run(frames, *MESSAGES)
    first = anyio.run(frames, MESSAGES[0])
    rest = whole[len(first) :]
    assert arrived(first, first, rest) == MESSAGES[:1]
    assert arrived(rest) == []


def test_another_key_reads_nothing() -> None:
    whole = anyio.run(frames, *MESSAGES)

    async def other() -> list[tuple[bytes, bytes]]:
        return await received(whole, key=OTHER)

    assert anyio.run(other) == []


def test_a_frame_that_is_announced_too_large_is_not_waited_for() -> None:
    async def meet() -> None:
        stream = Pieces((MAX_FRAME_BYTES + 1).to_bytes(4, "big"), b"x" * 100)
        with pytest.raises(LinkLost, match="too large"):
            await link(stream).receive()

    anyio.run(meet)


def test_one_that_is_too_large_is_not_sent() -> None:
    async def meet() -> None:
        stream = Pieces()
        with pytest.raises(LinkLost, match="too large"):
            await link(stream).send(b"{}", bytes(MAX_FRAME_BYTES))
        assert stream.sent == b""

    anyio.run(meet)


def test_receiving_may_be_cancelled_anywhere() -> None:
    class Slow(Pieces):
        async def receive(self, max_bytes: int = 65536) -> bytes:
            await anyio.sleep(0.001)
            return await super().receive(max_bytes)

    async def meet() -> list[tuple[bytes, bytes]]:
        whole = await frames(*MESSAGES)
        receiver = link(Slow(*[whole[at : at + 5] for at in range(0, len(whole), 5)]))
        found: list[tuple[bytes, bytes]] = []
        while len(found) < len(MESSAGES):
            with anyio.move_on_after(0.003):
                found.append(await receiver.receive())
        return found

    assert anyio.run(meet) == MESSAGES
