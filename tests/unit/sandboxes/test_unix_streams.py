"""Streams over Unix sockets: what is passed, how they end, and that cancelling them is never heard of."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from stockade_sandbox.unix_streams import UnixStream, connected, taken_over

pytestmark = pytest.mark.anyio


@pytest.fixture
def ends() -> Iterator[tuple[UnixStream, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield UnixStream(ours), theirs


async def test_what_comes_as_it_is_cancelled_makes_no_noise(ends: tuple[UnixStream, socket.socket]) -> None:
    """The data are there for whoever reads next."""
    stream, theirs = ends
    loop, heard = asyncio.get_running_loop(), list[dict[str, Any]]()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: heard.append(context))
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(stream.receive)
            await anyio.wait_all_tasks_blocked()
            theirs.send(b"x")
            loop.call_soon(group.cancel_scope.cancel)
            await anyio.sleep(0.01)
        assert not heard
        assert await stream.receive() == b"x"
    finally:
        loop.set_exception_handler(before)


async def test_whoever_waits_as_it_is_closed_is_told(ends: tuple[UnixStream, socket.socket]) -> None:
    stream, _ = ends
    async with anyio.create_task_group() as group:

        async def wait() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await stream.receive()

        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await stream.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await stream.send(b"x")


async def test_descriptors_come_with_a_byte_and_the_end_is_the_end(ends: tuple[UnixStream, socket.socket]) -> None:
    stream, theirs = ends
    reader, writer = os.pipe()
    socket.send_fds(theirs, [b"\0"], [writer])
    os.close(writer)
    (found,) = await stream.receive_fds(2)
    os.write(found, b"y")
    assert os.read(reader, 1) == b"y"
    os.close(found)
    os.close(reader)
    await stream.send_eof()
    assert theirs.recv(1) == b""
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()
    with pytest.raises(anyio.EndOfStream):
        await stream.receive_fds(2)


async def test_a_connection_is_taken_over(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await connected(tmp_path / "nobody")
    listener = await anyio.create_unix_listener(tmp_path / "here")
    async with listener, await connected(tmp_path / "here") as near, await taken_over(await listener.accept()) as far:
        async with anyio.create_task_group() as group:
            group.start_soon(far.send, bytes(1 << 20))  # more than there is room for
            got = 0
            while got < 1 << 20:
                got += len(await near.receive())
