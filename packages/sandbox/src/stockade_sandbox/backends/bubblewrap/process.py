"""The process chain launcher -> bubblewrap -> agent of a sandbox: started, watched, ended.

Nothing here blocks on the sandbox: ends are seen through pidfds, stderr goes to a memfd that cannot fill up.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import anyio

from stockade_sandbox.agent.child import Child
from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.launcher.launch import command_line, launcher_memfd

_END_TIMEOUT_S = 10.0


def keep(stack: ExitStack, fd: int) -> int:
    """`fd`, closed when the stack unwinds."""
    stack.callback(os.close, fd)
    return fd


@dataclass
class ProcessTree(Child):
    """A started chain. `process` is the launcher, which stays as guard of bubblewrap, first of a pid namespace."""

    pid_fd: int

    @property
    def pid(self) -> int:
        """The guard's; all processes of the sandbox are its descendants."""
        return self.process.pid

    def kill(self) -> None:
        """Asks the guard to end the sandbox; from any thread, before `end` is called."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)

    def child_pid(self) -> int | None:
        """The host's pid of bubblewrap; None before it was forked."""
        said = os.pread(self.pid_fd, 32, 0)
        return int(said) if said else None

    async def end(self, patience_s: float = _END_TIMEOUT_S) -> int:
        """Ends what is left and waits until the kernel has let go of every process of the sandbox.

        On SIGTERM the guard kills bubblewrap and waits; that returns once the whole pid namespace is gone. A guard that
        was killed, or is not there yet, took everything with it: bubblewrap's death signal is set before it runs.
        """
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                self.process.terminate()
            with anyio.move_on_after(patience_s):
                await self.ended()
            if self.process.poll() is None:
                self.process.kill()
                await self.ended()
            await self._child_gone()
            for fd in (self.pidfd, self.stderr_fd, self.pid_fd):
                os.close(fd)
        return self.status()

    async def _child_gone(self) -> None:
        pid = self.child_pid()
        if pid is None:
            return
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            with anyio.move_on_after(_END_TIMEOUT_S):
                await anyio.wait_readable(pidfd)
        finally:
            os.close(pidfd)


def start(operations: Sequence[str], program: Sequence[str], pass_fds: Iterable[int], pid_fd: int) -> ProcessTree:
    """Starts the chain; `pid_fd` is the memfd that takes bubblewrap's pid, and now the chain's.

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
        return ProcessTree(process, os.pidfd_open(process.pid), stderr_fd, pid_fd)


def channel() -> tuple[socket.socket, socket.socket]:
    """The agent's stream: our end and the sandbox's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    return ours, theirs
