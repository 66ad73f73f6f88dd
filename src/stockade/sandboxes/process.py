"""The process chain launcher -> bubblewrap -> pid 1 of a sandbox: started, watched, ended.

Nothing here blocks on the sandbox: ends are seen through pidfds, stderr goes to a memfd that cannot fill up.
"""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import anyio

from stockade.core.errors import SandboxFailed
from stockade.sandboxes.launcher.launch import command_line, launcher_memfd

_END_TIMEOUT_S = 10.0
_STDERR_BYTES = 64 * 1024


def keep(stack: ExitStack, fd: int) -> int:
    """`fd`, closed when the stack unwinds."""
    stack.callback(os.close, fd)
    return fd


@dataclass
class Chain:
    """A started chain. `process` is launcher and later bubblewrap; the sandbox's pid 1 is its child."""

    process: subprocess.Popen[bytes]
    pidfd: int
    stderr_fd: int
    info_fd: int
    init_pidfd: int | None = None

    def stderr(self) -> str:
        size = os.fstat(self.stderr_fd).st_size
        data = os.pread(self.stderr_fd, _STDERR_BYTES, max(0, size - _STDERR_BYTES))
        return data.decode(errors="replace")

    def watch_init(self) -> None:
        """Takes hold of the sandbox's pid 1, which bubblewrap has announced by now. SandboxFailed when it has not."""
        said = os.pread(self.info_fd, 4096, 0)
        try:
            self.init_pidfd = os.pidfd_open(int(json.loads(said)["child-pid"]))
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise SandboxFailed("the sandbox's first process is not to be found", "try again") from error

    async def ended(self) -> int:
        """Waits for the end; the status as a shell would give it."""
        await anyio.wait_readable(self.pidfd)
        status = self.process.wait()
        return status if status >= 0 else 128 - status

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            if self.init_pidfd is not None:
                signal.pidfd_send_signal(self.init_pidfd, signal.SIGKILL)
            else:
                self.process.kill()

    async def end(self) -> int:
        """Kills what is left and waits until the kernel has let go of every process of the sandbox.

        Bubblewrap ends after it has reaped pid 1, and pid 1 only after its whole pid namespace is gone.
        """
        self._kill()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_END_TIMEOUT_S):
                await self.ended()
            if self.process.poll() is None:
                self.process.kill()
                await self.ended()
            if self.init_pidfd is not None:
                with anyio.fail_after(_END_TIMEOUT_S):
                    await anyio.wait_readable(self.init_pidfd)
            for fd in (self.pidfd, self.stderr_fd, self.info_fd, self.init_pidfd):
                if fd is not None:
                    os.close(fd)
        status = self.process.returncode
        return status if status >= 0 else 128 - status


def start(operations: Sequence[str], program: Sequence[str], pass_fds: Iterable[int], info_fd: int) -> Chain:
    """Starts the chain; `info_fd` is the memfd bubblewrap writes its child's pid to, and now the chain's.

    SandboxFailed when the machine has no process, memory or descriptor left for it.
    """
    with ExitStack() as stack:
        try:
            launcher = keep(stack, launcher_memfd())
            stderr_fd = os.memfd_create("sandbox-stderr")
        except OSError as error:
            raise SandboxFailed(
                f"cannot start a sandbox: {error.strerror}", "free some memory or descriptors"
            ) from error
        try:
            process = subprocess.Popen(
                ["launch", *command_line(operations, program)],
                executable=f"/proc/self/fd/{launcher}",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr_fd,
                env={},
                cwd="/",
                pass_fds=[launcher, *pass_fds],
                start_new_session=True,
            )
        except OSError as error:
            os.close(stderr_fd)
            raise SandboxFailed(f"cannot start a sandbox: {error.strerror}", "free some memory or processes") from error
        return Chain(process, os.pidfd_open(process.pid), stderr_fd, info_fd)


def channel() -> tuple[socket.socket, socket.socket]:
    """The agent's stream: our end and the sandbox's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    return ours, theirs
