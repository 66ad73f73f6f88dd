"""One program over the agent's stream, from the first request to its result, by poll(2): without an event loop, whose
import alone costs more than all of this.
"""

import math
import os
import select
import socket
import time
from collections.abc import Callable

from stockade_sandbox.agent.frames import PIECE, Malformed, Reader, Reply
from stockade_sandbox.agent.jobs import (
    ENDED_FOR_MEMORY,
    HELLO_S,
    SLACK_S,
    AgentConfig,
    ProgramJob,
    check_hello,
    check_ready,
)
from stockade_sandbox.errors import SandboxDied, SandboxFailed
from stockade_sandbox.results import ExecResult

_RECEIVE_BYTES = 1 << 16


class Stopped(Exception):
    """`stop_fd` became readable: nobody waits any more."""


class _Silent(Exception):
    """Nothing came in time."""


class Conversation:
    """One session with one job in it: `start`, then `perform`. `stream` is non-blocking, and the caller's to close.

    SandboxDied when the agent ends before its time; Stopped.
    """

    def __init__(self, stream: socket.socket, stop_fd: int) -> None:
        self._socket, self._stop_fd = stream, stop_fd
        self._reader = Reader()
        self._what = "its start"

    def _await(self, event: int, until: float, source: int | None = None) -> bool:
        """Whether the agent's stream is ready; else it is `source` that can be read."""
        poll = select.poll()
        poll.register(self._socket, event)
        poll.register(self._stop_fd, select.POLLIN)
        if source is not None:
            poll.register(source, select.POLLIN)
        left = None if until == math.inf else max(0.0, until - time.monotonic()) * 1000
        ready = [fd for fd, _ in poll.poll(left)]
        if self._stop_fd in ready:
            raise Stopped
        if not ready:
            raise _Silent
        return self._socket.fileno() in ready

    def _send(self, request: bytes) -> None:
        """All of it, as `_next`."""
        left, until = memoryview(request), time.monotonic() + SLACK_S
        while left:
            self._await(select.POLLOUT, until)
            left = left[self._sent(left) :]

    def _sent(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise SandboxDied(f"the sandbox ended during {self._what}") from error

    def _next(self, until: float, job: ProgramJob | None = None, source: int | None = None) -> Reply:
        """SandboxDied at its end, and for what is no frame; _Silent when none came `until` then. Meanwhile the `job`
        is fed from the descriptor `source`.
        """
        try:
            while (reply := self._reader.next()) is None:
                feeding = source if job is not None and job.wants_input() else None
                if not self._await(select.POLLIN, until, feeding):
                    assert job is not None
                    assert feeding is not None
                    job.feed(_read(feeding))
                    self._send(job.due())
                    continue
                data = self._received()
                if not data:
                    raise SandboxDied(f"the sandbox ended during {self._what}")
                self._reader.feed(data)
        except Malformed as error:
            raise SandboxDied(f"the sandbox's agent sent nonsense during {self._what}") from error
        return reply

    def _received(self) -> bytes:
        try:
            return self._socket.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise SandboxDied(f"the sandbox ended during {self._what}") from error

    def start(self, config: AgentConfig) -> None:
        """Until the shell is ready, in whose folder programs run. SandboxFailed when it does not get there."""
        try:
            self._send(config.request())
            until = time.monotonic() + HELLO_S
            check_hello(self._next(until))
            check_ready(self._next(until))
        except _Silent:
            raise SandboxFailed(f"the sandbox did not start within {HELLO_S:g} s") from None

    def perform(
        self, job: ProgramJob, source: int | None = None, ended_for_memory: Callable[[], int] = lambda: 0
    ) -> ExecResult:
        """What came of it. `source` is where its input comes from, a descriptor. `ended_for_memory`: how many programs
        the kernel has ended at the limit of memory.
        """
        self._what = job.what
        try:
            self._send(job.request + job.due())
            until = time.monotonic() + job.patience_s
            while job.ended is None:
                job.take(self._next(until, job, source))
                self._send(job.due())
        except _Silent:
            raise SandboxDied(f"the sandbox fell silent during {job.what}") from None
        except Malformed:
            raise SandboxDied(f"the sandbox's agent answered out of turn during {job.what}") from None
        return job.result(ENDED_FOR_MEMORY if ended_for_memory() else b"")


def _read(source: int) -> bytes:
    """Some of it; nothing at its end, or when it cannot be read any more."""
    try:
        return os.read(source, PIECE)
    except OSError:
        return b""
