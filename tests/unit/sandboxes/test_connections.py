"""Connections from inside a sandbox, carried by a real agent; and what a hostile one may say of them."""

import hashlib
import os
import resource
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream
from hypothesis import given
from hypothesis import strategies as st

from stockade.core.errors import SandboxDied, SandboxFailed
from stockade_sandbox.agent import frames
from stockade_sandbox.agent.connections import Connection, Connections
from stockade_sandbox.agent.frames import Closed, Data, Ended, Malformed, Opened, Taken
from stockade_sandbox.agent.session import AgentConfig, AgentSession
from tests.unit.sandboxes.session_support import NAMESPACE, agent

pytestmark = pytest.mark.anyio
OWN_NETWORK = (NAMESPACE[0], "-n", *NAMESPACE[1:])
PORT = 3128
CLIENT = (
    "import socket, struct, time, hashlib, threading\nopened = lambda: socket.create_connection(('127.0.0.1', 3128))\n"
)
LARGE = os.urandom(1 << 16) * 64
PATIENT = AgentConfig(cwd="/tmp", grace_s=0.2, timeout_s=120)
Handler = Callable[[ByteStream], Awaitable[None]]
Carried = Opened | Data | Taken | Closed | Ended


@asynccontextmanager
async def carried(handler: Handler) -> AsyncIterator[AgentSession]:
    """An agent on a loopback of its own, whose connections are given to `handler`."""
    async with agent(PATIENT, OWN_NETWORK) as (session, _):
        if os.geteuid() == 0 or "-Ur" in OWN_NETWORK:
            await session.run("PATH=$PATH:/usr/sbin; ip link set lo up")
        async with session.listening(PORT) as connections, anyio.create_task_group() as group:

            async def serve() -> None:
                while True:
                    group.start_soon(one, await connections.accept())

            async def one(stream: ByteStream) -> None:
                async with stream:
                    with suppress(anyio.BrokenResourceError):
                        await handler(stream)

            group.start_soon(serve)
            with anyio.fail_after(120):
                yield session
            group.cancel_scope.cancel()


async def python(session: AgentSession, code: str) -> str:
    done = await session.exec(["/usr/bin/python3", "-"], (CLIENT + code).encode())
    return (done.stdout + done.stderr).decode().strip()


async def everything(stream: ByteStream) -> bytes:
    data = b""
    while True:
        try:
            data += await stream.receive()
        except anyio.EndOfStream:
            return data


async def echo(stream: ByteStream) -> None:
    await stream.send(await everything(stream))
    await stream.send_eof()


ECHO = (
    "s = opened(); data = bytes(range(256)) * 8000\n"
    "threading.Thread(target=lambda: (s.sendall(data), s.shutdown(1))).start()\n"
    "got = b''\nwhile piece := s.recv(65536): got += piece\nprint(got == data)"
)


async def test_megabytes_both_ways_and_each_end_for_itself() -> None:
    async with carried(echo) as session:
        assert await python(session, ECHO) == "True"


async def test_many_at_once_are_kept_apart() -> None:
    code = (
        "def one(n):\n"
        "    s = opened(); s.sendall(b'%03d' % n * 70000); s.shutdown(1); got = b''\n"
        "    while piece := s.recv(65536): got += piece\n"
        "    right.append(got == b'%03d' % n * 70000)\n"
        "right = []; threads = [threading.Thread(target=one, args=(n,)) for n in range(150)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\nprint(len(right), all(right))"
    )
    async with carried(echo) as session:
        assert await python(session, code) == "150 True"


async def test_one_that_nobody_reads_holds_up_nothing() -> None:
    async def handler(stream: ByteStream) -> None:
        if await stream.receive(1) == b"e":
            await echo(stream)
            return
        with anyio.move_on_after(5):
            await stream.send(LARGE)  # to a client that does not read

    async with carried(handler) as session:
        await session.run("exec 7<>/dev/tcp/127.0.0.1/3128 8<>/dev/tcp/127.0.0.1/3128; printf x >&7; printf x >&8")
        await session.run("(head -c 9000000 /dev/zero >&7 &)")
        beside = ECHO.replace("== data", "== data[1:]").replace("bytes(range", "b'e' + bytes(range")
        assert await python(session, beside) == "True"
        assert len((await session.run("head -c 20000 /dev/zero | tr '\\0' x")).stdout) > 10_000


async def test_they_live_between_and_beside_commands() -> None:
    got: list[bytes] = []
    finished = anyio.Event()

    async def handler(stream: ByteStream) -> None:
        got.append(await everything(stream))
        finished.set()

    async with carried(handler) as session:
        await session.run("(sleep 0.2; head -c 3000000 /dev/zero >/dev/tcp/127.0.0.1/3128) &")
        await finished.wait()
        assert [len(data) for data in got] == [3_000_000]
        flood = await session.run("head -c 30000000 /dev/zero & echo x >/dev/tcp/127.0.0.1/3128; wait")
        assert flood.exit_code == 0
        assert got[1:] == [b"x\n"]


async def test_a_client_that_resets_is_seen_and_its_place_is_free_again() -> None:
    code = (
        "for _ in range(300):\n"
        "    s = opened(); s.sendall(b'x'); s.recv(1)\n"  # one that is reset before it is accepted is nobody's
        "    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()\n"
    )
    seen = anyio.Semaphore(0)

    async def handler(stream: ByteStream) -> None:
        try:
            await stream.send(await stream.receive())
            await everything(stream)
        except anyio.BrokenResourceError:
            seen.release()
            with pytest.raises(anyio.BrokenResourceError):
                await stream.send(b"x")

    async with carried(handler) as session:
        assert await python(session, code) == ""
        for _ in range(300):
            await seen.acquire()
        assert await python(session, "s = opened(); s.sendall(b'y'); print(s.recv(1))") == "b'y'"


async def test_what_is_sent_last_arrives_although_the_host_lets_go() -> None:
    async def handler(stream: ByteStream) -> None:
        await everything(stream)
        await stream.send(LARGE)

    code = (
        "s = opened(); s.shutdown(1); time.sleep(0.3); got = b''\n"
        "while piece := s.recv(65536): got += piece\nprint(hashlib.sha256(got).hexdigest())"
    )
    async with carried(handler) as session:
        assert await python(session, code) == hashlib.sha256(LARGE).hexdigest()


def _child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


async def test_without_descriptors_they_wait_until_there_are_some(tmp_path: Path) -> None:
    """The limit comes once the clients run, since they would have it too."""
    served, all_served = 0, anyio.Event()

    async def handler(stream: ByteStream) -> None:
        nonlocal served
        await everything(stream)
        served += 1
        if served == 50:
            all_served.set()

    code = (
        f"{CLIENT}import os\nwhile not os.path.exists('{tmp_path}/go'): time.sleep(0.05)\n"
        "held = [opened() for _ in range(50)]\nfor s in held: s.shutdown(1)\ntime.sleep(60)"
    )
    async with agent(PATIENT, OWN_NETWORK) as (session, process):
        await session.run("PATH=$PATH:/usr/sbin; ip link set lo up")
        await session.run(f'/usr/bin/python3 -c "{code}" & jobs')
        resource.prlimit(_child_of(process.pid), resource.RLIMIT_NOFILE, (40, 40))
        async with session.listening(PORT) as connections, anyio.create_task_group() as group:

            async def serve() -> None:
                while True:
                    stream = await connections.accept()
                    async with stream:
                        await handler(stream)

            group.start_soon(serve)
            await session.run(f": > {tmp_path}/go")
            with anyio.fail_after(60):
                await all_served.wait()
            group.cancel_scope.cancel()


async def test_a_port_that_is_taken() -> None:
    async with agent(PATIENT, OWN_NETWORK) as (session, _):
        code = "import socket; s = socket.create_server(('127.0.0.1', 3128)); print('listens', flush=True); input()"
        await session.run("PATH=$PATH:/usr/sbin; ip link set lo up")
        await session.run(f'coproc /usr/bin/python3 -c "{code}"; read -u "${{COPROC[0]}}"')
        with pytest.raises(SandboxFailed, match=r"cannot listen on port [0-9]+ of its loopback: Address in use"):
            async with session.listening(PORT):
                pass
        assert (await session.run("echo alive")).stdout == b"alive\n"


async def test_cancelled_commands_and_transfers_leave_it_in_order() -> None:
    async with carried(echo) as session:
        for delay_s in (0.0, 0.01, 0.05, 0.1, 0.3):
            with anyio.move_on_after(delay_s):
                await python(session, ECHO)
        assert await python(session, ECHO) == "True"


async def test_the_end_of_the_sandbox_is_the_connections_end() -> None:
    broken = anyio.Event()

    async def handler(stream: ByteStream) -> None:
        with pytest.raises(anyio.BrokenResourceError):
            await everything(stream)
        broken.set()

    async with agent(PATIENT, OWN_NETWORK) as (session, process):
        await session.run("PATH=$PATH:/usr/sbin; ip link set lo up")
        async with session.listening(PORT) as connections, anyio.create_task_group() as group:
            await session.run("exec 7<>/dev/tcp/127.0.0.1/3128")
            group.start_soon(handler, await connections.accept())
            process.kill()

            async def until_it_is_gone() -> None:
                while True:
                    await session.run("echo")

            with anyio.fail_after(10), pytest.raises(SandboxDied):
                await until_it_is_gone()
            with anyio.fail_after(10):
                await broken.wait()


# --- what a hostile agent may say


class Sent:
    """The agent's stream, for connections alone: what was sent, once `gate` is open."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.gate = anyio.Event()
        self.gate.set()

    async def send(self, frame: bytes) -> None:
        await self.gate.wait()
        self.frames.append(frame)

    async def until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            await anyio.lowlevel.checkpoint()

    def wake(self) -> None:
        """Nobody sleeps."""


def _connections() -> tuple[Connections, list[bytes]]:
    link = Sent()
    found = Connections(link)
    found.listens = True
    return found, link.frames


ONE = frames.CLIENT + 1
TOO_MUCH = Data(ONE, bytes(frames.WINDOW + 1))


@pytest.mark.parametrize(
    "said",
    [
        [Opened(ONE), Opened(ONE)],
        [Opened(ONE + n) for n in range(frames.MAX_CLIENTS + 1)],
        [Opened(ONE), TOO_MUCH],
        [Opened(ONE), Data(ONE, bytes(frames.WINDOW)), Data(ONE, b"x")],
        [Opened(ONE), Data(ONE, b""), Data(ONE, b"x")],
        [Opened(ONE), Taken(ONE, 1)],
        [Opened(2)],
        [Data(2, b"of no program")],
        [Ended(2, 0, 0, "")],
    ],
)
async def test_rules_that_are_broken(said: list[Carried]) -> None:
    connections, _ = _connections()
    *fine, last = said
    for one in fine:
        connections.take(one)
    with pytest.raises(Malformed):
        connections.take(last)


NUMBERS = st.one_of(st.integers(ONE, ONE + 70), st.integers(0, 9))
carried_frames = st.one_of(
    st.builds(Opened, NUMBERS),
    st.builds(Data, NUMBERS, st.binary(max_size=99)),
    st.builds(Taken, NUMBERS, st.integers(0, 9)),
    st.builds(Closed, NUMBERS),
    st.builds(Ended, NUMBERS, st.integers(0, 255), st.integers(0, 63), st.text(max_size=3)),
)


@given(st.lists(carried_frames, max_size=300), st.integers(0, 3))
def test_whatever_comes_is_taken_or_malformed(said: list[Carried], programs: int) -> None:
    connections, _ = _connections()
    for _ in range(programs):
        connections.start()
    try:
        for one in said:
            connections.take(one)
    except Malformed:
        return
    connections.lose()


async def test_nobody_waits_in_line_for_ever() -> None:
    """Clients that come and go while the host is busy are not kept."""
    connections, _ = _connections()
    for number in range(10_000):
        connections.take(Opened(ONE + number))
        connections.take(Closed(ONE + number))
    connections.take(Opened(ONE + 7))
    with anyio.fail_after(5):
        stream = await connections.accept()
    with anyio.move_on_after(0.05) as waited:
        await connections.accept()
    assert waited.cancelled_caught
    await stream.aclose()


async def test_the_agent_is_told_of_room_when_half_of_it_is_used() -> None:
    connections, sent = _connections()
    connections.take(Opened(ONE))
    stream = await connections.accept()
    connections.take(Data(ONE, bytes(frames.WINDOW)))
    assert len(await stream.receive(1000)) == 1000
    assert sent == []
    assert len(await stream.receive(1 << 20)) == frames.WINDOW - 1000
    assert sent == [frames.taken(ONE, frames.WINDOW)]
    connections.take(Data(ONE, bytes(frames.WINDOW)))
    await stream.aclose()
    assert sent[1:] == [frames.close(ONE)]
    with pytest.raises(anyio.ClosedResourceError):
        await stream.send(b"x")


async def test_no_more_is_sent_than_there_is_room_for() -> None:
    connections, sent = _connections()
    connections.take(Opened(ONE))
    stream = await connections.accept()
    async with anyio.create_task_group() as group:
        group.start_soon(stream.send, bytes(frames.WINDOW + 1))
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert sum(len(frame) - 9 for frame in sent) == frames.WINDOW
        connections.take(Taken(ONE, 1))
    assert sum(len(frame) - 9 for frame in sent) == frames.WINDOW + 1


async def test_cancelled_while_it_tells_nothing_is_lost() -> None:
    link = Sent()
    link.gate = anyio.Event()
    stream = Connection(ONE, link, lambda _: None)
    stream.arrive(b"a" * frames.WINDOW)
    with anyio.move_on_after(0.01) as scope:
        await stream.receive(frames.WINDOW)
    assert scope.cancelled_caught
    link.gate.set()
    assert await stream.receive(frames.WINDOW) == b"a" * frames.WINDOW
    assert link.frames == [frames.taken(ONE, frames.WINDOW)]


@pytest.mark.parametrize(("kind", "number"), [(5, frames.CLIENT), (6, frames.CLIENT), (6, 2)])
async def test_connections_that_nobody_asked_for(kind: int, number: int) -> None:
    reply = struct.pack("<IBI", 4, kind, number)
    ours, theirs = socket.socketpair()
    hello = struct.pack("<IBII", 8, 1, frames.VERSION, 1)
    with theirs:
        theirs.sendall(hello + reply)
        with pytest.raises(SandboxDied, match="nonsense"):
            await AgentSession.open(ours, AgentConfig())
