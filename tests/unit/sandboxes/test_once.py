"""One program without an event loop: with the real agent, and with peers that end, fall silent or say nonsense."""

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from stockade.core.errors import ActionFailed, SandboxDied, SandboxFailed
from stockade_sandbox.agent import frames, jobs, once
from stockade_sandbox.agent.jobs import AgentConfig, ProgramJob
from stockade_sandbox.agent.once import Conversation, Stopped
from stockade_sandbox.results import ExecResult
from tests.unit.sandboxes.session_support import start_agent

CONFIG = AgentConfig(cwd="/tmp", grace_s=0.2, timeout_s=20)
HELLO = struct.pack("<IBII", 8, 1, frames.VERSION, 7)
READY = struct.pack("<IB3I", 14, 3, 0, 0, 0) + b"/\0"


@pytest.fixture
def stop_fd() -> Iterator[int]:
    descriptor = os.eventfd(0)
    yield descriptor
    os.close(descriptor)


def job(*argv: str, stdin: bytes = b"", timeout_s: float | None = None, room: int = 1 << 20) -> ProgramJob:
    return ProgramJob(CONFIG, 1, argv, stdin, timeout_s, room)


def ran(one: ProgramJob, stop_fd: int) -> ExecResult:
    stream, process = start_agent()
    stream.setblocking(False)
    try:
        with stream:
            conversation = Conversation(stream, stop_fd)
            conversation.start(CONFIG)
            return conversation.perform(one)
    finally:
        assert process.wait(10) == 0


def test_a_program_with_all_that_it_reads_and_writes(stop_fd: int) -> None:
    data = os.urandom(3 << 20)
    done = ran(job("sh", "-c", "cat; echo oh >&2; exit 7", stdin=data, room=4 << 20), stop_fd)
    assert (done.exit_code, done.stdout == data, done.stderr, done.truncated_bytes) == (7, True, b"oh\n", 0)


def test_its_ends(stop_fd: int) -> None:
    assert ran(job("no-such-program"), stop_fd).exit_code == 127
    late = ran(job("sleep", "60", timeout_s=0.3), stop_fd)
    assert (late.exit_code, late.timed_out) == (124, True)
    cut = ran(job("printf", "abcdef", room=4), stop_fd)
    assert (cut.stdout, cut.truncated_bytes) == (b"abcd", 2)
    with pytest.raises(ActionFailed):
        job()


def test_whoever_stops_waiting_is_told_at_once(stop_fd: int) -> None:
    os.eventfd_write(stop_fd, 1)
    with pytest.raises(Stopped):
        ran(job("true"), stop_fd)


def against(answers: bytes, stop_fd: int, *, ends: bool = True) -> ExecResult:
    """What comes of a peer that says this, whatever it is asked."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.sendall(answers)
    if ends:
        theirs.shutdown(socket.SHUT_WR)
    reading = threading.Thread(target=_read_all, args=(theirs.recv,))
    reading.start()
    try:
        with ours:
            conversation = Conversation(ours, stop_fd)
            conversation.start(CONFIG)
            return conversation.perform(job("true"))
    finally:
        reading.join()
        theirs.close()


def _read_all(receive: Callable[[int], bytes]) -> None:
    while receive(1 << 16):
        pass


@pytest.mark.parametrize(
    ("answers", "kind", "words"),
    [
        (b"", SandboxFailed, "the sandbox ended during its start"),
        (struct.pack("<IBII", 8, 1, 99, 7), SandboxFailed, "speaks another protocol"),
        (HELLO + HELLO, SandboxFailed, "answered out of turn"),
        (HELLO + struct.pack("<IB3I", 17, 3, 0, 0, frames.SPAWN_FAILED) + b"/\0bad", SandboxFailed, "started: bad"),
        (HELLO + READY, SandboxDied, "the sandbox ended during the program 'true'"),
        (HELLO + READY + b"\xff" * 9, SandboxDied, "sent nonsense during the program"),
        (HELLO + READY + READY, SandboxDied, "answered out of turn during the program"),
    ],
)
def test_a_peer_that_breaks_the_rules_has_its_name(
    answers: bytes, kind: type[Exception], words: str, stop_fd: int
) -> None:
    with pytest.raises(kind, match=words):
        against(answers, stop_fd)


def test_silence_has_its_name(stop_fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "HELLO_S", 0.05)
    with pytest.raises(SandboxFailed, match="did not start within"):
        against(b"", stop_fd, ends=False)
    monkeypatch.setattr(once, "HELLO_S", 20.0)
    monkeypatch.setattr(jobs, "SLACK_S", -20.15)
    with pytest.raises(SandboxDied, match="fell silent during the program"):
        against(HELLO + READY, stop_fd, ends=False)
