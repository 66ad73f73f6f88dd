"""The socket that a sandbox lends to the host."""

import itertools
import os
import socket
import struct

import anyio
import pytest

from stockade.core.errors import SandboxDied, SandboxFailed
from stockade.sandboxes.session import AgentConfig, AgentSession
from tests.unit.sandboxes.session_support import NAMESPACE, agent

pytestmark = pytest.mark.anyio
OWN_NETWORK = (NAMESPACE[0], "-n", *NAMESPACE[1:])


async def test_a_socket_of_the_sandboxes_loopback() -> None:
    async with agent(prefix=OWN_NETWORK) as (session, _):
        with await session.listen(3128) as listener:
            assert listener.getsockname() == ("127.0.0.1", 3128)
            assert not os.get_inheritable(listener.fileno())
            if os.geteuid() == 0:
                await session.run("/usr/sbin/ip link set lo up || ip link set lo up")
            result = await session.run("grep -c ':0C38 ' /proc/net/tcp; ls /proc/1/fd | wc -l")
            assert result.stdout.startswith(b"1\n")
            with pytest.raises(SandboxFailed, match="cannot listen"):
                await session.listen(3128)
            assert (await session.run("echo alive")).stdout == b"alive\n"
        assert (await session.run("grep -c ':0C38 ' /proc/net/tcp")).stdout == b"0\n"


def _answer(error: bytes) -> bytes:
    payload = error + b"\0"
    return struct.pack("<IB", len(payload), 4) + payload


async def _fake(reply: bytes, fds: list[int]) -> None:
    """A session with an agent that answers LISTEN with this."""
    ours, theirs = socket.socketpair()
    hello = struct.pack("<IBII", 8, 1, 1, 1)
    done = struct.pack("<IBIII", 14, 3, 0, 0, 0) + b"/\0"
    theirs.sendall(hello + done)
    with theirs:
        session = await AgentSession.open(ours, AgentConfig())
        try:
            socket.send_fds(theirs, [reply], fds)
            await session.listen(3128)
        finally:
            await session.close()


@pytest.mark.parametrize(
    ("reply", "what", "words"),
    [
        (_answer(b"Address in use"), "nothing", "cannot listen on its loopback: Address in use"),
        (_answer(b""), "nothing", "gave no socket"),
        (_answer(b""), "file", "something else than a socket"),
        (_answer(b""), "unix", "another socket"),
        (_answer(b""), "closed", "another socket"),
        (b"\x00\x00\x00\x00\x07", "tcp", "out of turn"),
        (struct.pack("<IB", 1 << 30, 4), "tcp", "out of turn"),
    ],
)
async def test_what_comes_is_looked_at(reply: bytes, what: str, words: str) -> None:
    before = set(os.listdir("/proc/self/fd"))
    sockets = [socket.create_server(("127.0.0.1", 0)), socket.socket(), socket.socket(socket.AF_UNIX)]
    file = os.open("/dev/null", os.O_RDONLY)
    given = {"tcp": sockets[0].fileno(), "closed": sockets[1].fileno(), "unix": sockets[2].fileno(), "file": file}
    with pytest.raises(SandboxFailed, match=words):
        await _fake(reply, [given[what]] if what in given else [])
    os.close(file)
    for one in sockets:
        one.close()
    assert set(os.listdir("/proc/self/fd")) == before


async def test_an_agent_that_is_gone() -> None:
    async with agent(prefix=OWN_NETWORK) as (session, process):
        process.kill()

        async def until_it_is_gone() -> None:
            """The agent ends a moment after what was killed above it, and may still answer."""
            for port in itertools.count(3128):
                (await session.listen(port)).close()

        with pytest.raises(SandboxDied), anyio.fail_after(10):
            await until_it_is_gone()
