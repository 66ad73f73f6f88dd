"""A child process of ours that carries the agent's stream: started, watched through its pidfd, ended."""

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import anyio

from stockade_sandbox.errors import SandboxFailed

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

    async def ended(self) -> int:
        """Waits for its end; the status as a shell would give it."""
        await anyio.wait_readable(self.pidfd)
        return self.status()

    def status(self) -> int:
        """The same, of one that is known to end now."""
        status = self.process.wait()
        return status if status >= 0 else 128 - status

    async def end(self, patience_s: float) -> int:
        """Waits, then kills its session; always ends. Call once, when nothing else waits."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(patience_s):
                await self.ended()
            if self.process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
            status = await self.ended()
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
        raise SandboxFailed(
            f"{argv[0]} cannot be started: {error.strerror}", "free some memory or processes"
        ) from error
    return Child(process, os.pidfd_open(process.pid), stderr_fd)
