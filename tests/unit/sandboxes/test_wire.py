"""The host's end of a stream socket."""

import os
import socket
from collections.abc import Iterator

import anyio
import pytest

from stockade_sandbox.unix_streams import Wire

pytestmark = pytest.mark.anyio
LARGE = os.urandom(1 << 16) * 64


@pytest.fixture
def ends() -> Iterator[tuple[Wire, socket.socket]]:
    ours, theirs = socket.socketpair()
    wire = Wire(ours)
    with theirs:
        yield wire, theirs
    ours.close()


async def test_what_does_not_fit_is_sent_as_room_comes(ends: tuple[Wire, socket.socket]) -> None:
    wire, theirs = ends
    other, got = Wire(theirs), bytearray()
    first = wire.send_now(LARGE)
    assert 0 < first < len(LARGE)
    assert wire.send_now(LARGE) == 0
    async with anyio.create_task_group() as group:
        group.start_soon(wire.send, LARGE)
        while len(got) < first + len(LARGE):
            got += await other.receive(1 << 18)
    assert got == LARGE[:first] + LARGE


async def test_the_end_and_a_broken_stream(ends: tuple[Wire, socket.socket]) -> None:
    wire, theirs = ends
    theirs.send(b"last")
    theirs.close()
    assert await wire.receive(100) == b"last"
    with pytest.raises(anyio.EndOfStream):
        await wire.receive(100)
    with pytest.raises(anyio.BrokenResourceError):
        wire.send_now(b"x")


async def test_closing_wakes_who_waits(ends: tuple[Wire, socket.socket]) -> None:
    wire, _ = ends

    async def wait() -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await wire.receive(1)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        wire.close()
    wire.close()
    with pytest.raises(anyio.ClosedResourceError):
        wire.send_now(b"x")


async def test_a_flood_lets_other_tasks_run(ends: tuple[Wire, socket.socket]) -> None:
    wire, theirs = ends
    theirs.send(b"x" * 1000)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        for _ in range(1000):
            assert await wire.receive(1) == b"x"
        group.cancel_scope.cancel()
    assert turns > 900
