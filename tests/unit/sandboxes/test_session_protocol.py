"""Frames, the program itself, and what a broken stream leads to."""

import contextlib
import os
import socket
import struct
import subprocess
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stockade.core.errors import SandboxDied, SandboxFailed
from stockade_sandbox.agent import frames
from stockade_sandbox.agent.frames import (
    Closed,
    Data,
    Done,
    Ended,
    Exports,
    Hello,
    Listening,
    Malformed,
    Opened,
    Out,
    Reader,
    Reply,
    Taken,
)
from stockade_sandbox.agent.session import AgentConfig, AgentSession, agent_memfd
from tests.unit.sandboxes.session_support import agent, start_agent


def _wire(reply: Reply) -> bytes:
    if isinstance(reply, Hello):
        kind, payload = 1, struct.pack("<2I", reply.version, reply.pid)
    elif isinstance(reply, Out):
        kind, payload = 2, struct.pack("<IB", reply.id, reply.stream) + reply.data
    elif isinstance(reply, Listening):
        kind, payload = 4, reply.error.encode() + b"\0"
    elif isinstance(reply, Data):
        kind, payload = 6, struct.pack("<I", reply.number) + reply.data
    elif isinstance(reply, Taken):
        kind, payload = 7, struct.pack("<2I", reply.number, reply.size)
    elif isinstance(reply, Ended):
        kind, payload = 9, struct.pack("<3I", reply.number, reply.status, reply.flags) + reply.error.encode() + b"\0"
    elif isinstance(reply, Exports):
        kind, payload = 10, reply.text
    elif isinstance(reply, Opened):
        kind, payload = 5, struct.pack("<3I", *reply)
    elif isinstance(reply, Closed):
        kind, payload = 8, struct.pack("<I", reply.number)
    else:
        assert isinstance(reply, Done)
        strings = reply.cwd.encode() + b"\0" + reply.error.encode()
        kind, payload = 3, struct.pack("<3I", reply.id, reply.status, reply.flags) + strings
    return struct.pack("<IB", len(payload), kind) + payload


WORDS = st.integers(0, 2**32 - 1)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
REPLIES: st.SearchStrategy[Reply] = st.one_of(
    st.builds(Hello, WORDS, WORDS),
    st.builds(Out, WORDS, st.sampled_from([1, 2]), st.binary(max_size=50)),
    st.builds(Listening, TEXT),
    st.builds(Opened, WORDS, WORDS, WORDS),
    st.builds(Data, WORDS, st.binary(max_size=50)),
    st.builds(Taken, WORDS, WORDS),
    st.builds(Closed, WORDS),
    st.builds(Exports, st.binary(max_size=50)),
    st.builds(Ended, WORDS, st.integers(0, 255), WORDS, TEXT),
    st.builds(Done, WORDS, st.integers(0, 255), WORDS, TEXT, TEXT),
)


@given(st.lists(REPLIES, max_size=5), st.data())
def test_any_split_of_the_frames_reads_the_same(replies: list[Reply], data: st.DataObject) -> None:
    wire = b"".join(map(_wire, replies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    reader, read = Reader(), []
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        reader.feed(wire[start:end])
        while reply := reader.next():
            read.append(reply)
    assert [(type(one), one) for one in read] == [(type(one), one) for one in replies]


@given(st.binary(min_size=5, max_size=200))
def test_garbage_is_malformed_or_incomplete(data: bytes) -> None:
    reader = Reader()
    reader.feed(data)
    with contextlib.suppress(Malformed):
        while reader.next():
            pass


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 64,
        b"\0\0\0\0\x09",
        frames.run(1, 0, 0, b"echo too early"),
        b"\x03\0\0\0\x01abc",
        struct.pack("<IB", 5, 3) + b"12345",
        frames.config(0, 0, 0, 0, 1, "/", []),
        frames.config(0, 0, 0, 0, 1, "/", ["/bin/bash"]) * 2,
        frames.config(0, 0, 0, 0, 3, "/", ["/bin/bash"]),
        frames.config(0, 0, 0, 0, 1, "/", ["/bin/bash"]) + frames.signal(2, 65),
        frames.config(0, 0, 0, 0, 1, "/", ["/bin/bash"]) + frames.signal(0, 9),
        frames.config(0, 0, 0, 0, 1, "/", ["/bin/bash"]) + struct.pack("<IBI", 4, 9, 2),
        frames.config(0, 0, 0, 0, 1, "/", ["/bin/bash"]) + struct.pack("<IB4I", 16, 3, 2, 0, 0, 0),
    ],
)
def test_garbage_ends_the_agent(garbage: bytes) -> None:
    stream, process = start_agent()
    with stream:
        stream.sendall(garbage)
        assert process.wait(10) != 0


REQUESTS = st.one_of(
    st.builds(frames.kill, st.integers(0, 8)),
    st.builds(frames.resize, st.integers(0, 8), st.tuples(st.integers(0, 65535), st.integers(0, 65535))),
    st.builds(frames.signal, st.integers(1, 8), st.sampled_from([1, 2, 15, 18, 20, 28, 64])),
    st.builds(frames.taken, st.integers(0, 8), st.just(0)),
    st.builds(frames.close, st.integers(0, 9)),
    st.builds(frames.data, st.just(2), st.binary(min_size=1, max_size=100)),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(REQUESTS, max_size=20), st.booleans())
def test_any_order_of_requests_about_programs_ends_with_its_end(requests: list[bytes], terminal: bool) -> None:
    """The agent goes on, and tells the end of the one that runs: it is alive, whatever was asked of whom."""
    stream, process = start_agent()
    size = (24, 80) if terminal else None
    with stream:
        stream.sendall(frames.config(0, 0, 0, 0, 1, "/", ["/bin/bash", "--norc"]))
        stream.sendall(frames.start(2, 0, 0, "/", ["sh", "-c", "trap '' INT HUP; cat"], size))
        stream.sendall(b"".join(requests) + frames.kill(2) + frames.start(4, 0, 0, "/", ["echo", "alive"]))
        stream.settimeout(20)
        reader, ended = Reader(), dict[int, int]()
        while set(ended) != {2, 4}:
            data = stream.recv(1 << 16)
            assert data
            reader.feed(data)
            while reply := reader.next():
                if isinstance(reply, Ended):
                    ended[reply.number] = reply.status
    assert process.wait(10) == 0


def test_the_end_of_the_stream_ends_the_agent() -> None:
    stream, process = start_agent()
    stream.close()
    assert process.wait(10) == 0


def test_standard_input_and_output_can_be_the_stream() -> None:
    program = agent_memfd()
    request = frames.config(0, 0, 0, 0, 2, "/", ["/bin/bash", "--norc"])
    process = subprocess.Popen(
        [f"/proc/self/fd/{program}", "0"], pass_fds=[program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    os.close(program)
    with process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(request)
        process.stdin.flush()
        reader, replies = Reader(), list[Reply]()
        while len(replies) < 2:
            reader.feed(process.stdout.read(100))
            while reply := reader.next():
                replies.append(reply)
    assert isinstance(replies[0], Hello)
    assert replies[1] == Done(0, 0, 0, "/", "")
    assert process.returncode == 0


@pytest.mark.anyio
async def test_nothing_of_the_host_is_inherited(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    descriptor = os.open(secret, os.O_RDONLY)
    try:
        async with agent(extra=(descriptor,)) as (session, _):
            listed = (await session.run("ls -l /proc/self/fd; ls -l /proc/$$/fd")).stdout
            beside = (await session.exec(["ls", "/proc/self/fd"])).stdout
    finally:
        os.close(descriptor)
    assert b"secret" not in listed
    assert b"socket:" not in listed
    assert beside.split() == [b"0", b"1", b"2", b"3"]


@pytest.mark.anyio
@pytest.mark.parametrize("shell", ["/no/such/shell", "/bin/false"])
async def test_a_shell_that_cannot_be_started(shell: str) -> None:
    with pytest.raises(SandboxFailed, match="shell cannot be started") as caught:
        async with agent(AgentConfig(cwd="/", shell=(shell,))):
            pass
    assert not isinstance(caught.value, SandboxDied)


@pytest.mark.anyio
async def test_an_agent_that_is_none() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(SandboxDied, match="nonsense"):
            await AgentSession.open(ours, AgentConfig())


@pytest.mark.anyio
async def test_a_hundred_commands_in_a_row() -> None:
    async with agent() as (session, _):
        for i in range(100):
            assert (await session.run(f"echo {i}")).stdout == b"%d\n" % i


def test_a_silent_agent_does_not_hold_the_start_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade_sandbox.agent.session.HELLO_S", 0.05)

    async def main() -> None:
        ours, theirs = socket.socketpair()
        with theirs, pytest.raises(SandboxFailed, match="did not start"):
            await AgentSession.open(ours, AgentConfig())

    anyio.run(main)
