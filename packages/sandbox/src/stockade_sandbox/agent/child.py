"""A child process of ours that carries the agent's stream: started, watched through its pidfd, ended."""

import os
import select
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EMFILE

from stockade_sandbox.errors import SandboxDied, SandboxFailed

_STDERR_BYTES = 64 * 1024


@dataclass
class Child:
    """A process, first of a session of its own. Its stderr goes to a memfd, which nobody has to read in time."""

    process: subprocess.Popen[bytes]
    pidfd: int
    stderr_fd: int

    def stderr(self) -> str:
        """The last of it."""
        size = os.fstat(self.stderr_fd).st_size
        data = os.pread(self.stderr_fd, _STDERR_BYTES, max(0, size - _STDERR_BYTES))
        return data.decode(errors="replace")

    def wait(self, patience_s: float) -> bool:
        """Blocks until its end, no longer than that; whether it has ended."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(patience_s * 1000))

    def status(self) -> int:
        """As a shell would give it, of one that has ended: its pidfd is readable then."""
        status = self.process.wait()
        return status if status >= 0 else 128 - status

    def end(self, patience_s: float) -> int:
        """Waits, then kills its session; always ends. Blocks. Call once, when nothing else waits."""
        if not self.wait(patience_s):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        status = self.status()
        os.close(self.pidfd)
        os.close(self.stderr_fd)
        return status


def start_child(
    argv: Sequence[str],
    stream: socket.socket,
    *,
    executable: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str = "/",
    pass_fds: Sequence[int] = (),
) -> Child:
    """Starts it with `stream` as standard input and output. SandboxFailed when this machine cannot."""
    stderr_fd = os.memfd_create("sandbox-stderr")
    try:
        process = subprocess.Popen(
            list(argv),
            executable=executable,
            stdin=stream.fileno(),
            stdout=stream.fileno(),
            stderr=stderr_fd,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        os.close(stderr_fd)
        raise SandboxFailed(f"{argv[0]} cannot be started: {error.strerror}", way_out(error)) from error
    return Child(process, os.pidfd_open(process.pid), stderr_fd)


def way_out(error: OSError) -> str:
    """Of a program that could not be started."""
    return "raise the limit of open files: ulimit -n 1024" if error.errno == EMFILE else "free some memory or processes"


def channel() -> tuple[socket.socket, socket.socket]:
    """The agent's stream: our end and the sandbox's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    return ours, theirs


def death(error: SandboxDied, status: int | None, reason: str) -> SandboxDied:
    """The same death with how the chain ended, `status` None while it does not, and the line that says why."""
    how = "and is being ended" if status is None else f"with status {status}"
    return SandboxDied(f"{error.message}, {how}{f': {reason}' if reason else ''}", error.hint)
