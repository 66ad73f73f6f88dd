"""The process chain launcher -> bubblewrap -> agent of a sandbox: started, watched, ended.

Needs no event loop. Ends are seen through pidfds, stderr goes to a memfd that cannot fill up.
"""

import os
import select
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from stockade_sandbox.agent.binary import agent_memfd, sealed_memfd
from stockade_sandbox.agent.child import Child, way_out
from stockade_sandbox.agent.jobs import AgentConfig
from stockade_sandbox.backends.bubblewrap.argv import Launch, bubblewrap_argv, launch_operations, program
from stockade_sandbox.backends.bubblewrap.trace import Trace
from stockade_sandbox.backends.host_info import HostFacts, pinned_files
from stockade_sandbox.backends.in_root import open_in_root
from stockade_sandbox.backends.seccomp import filter_bytes
from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.launcher.launch import command_line, launcher_memfd
from stockade_sandbox.policy import Policy
from stockade_sandbox.results import FolderLayer

_END_TIMEOUT_S = 10.0


@dataclass
class ProcessTree(Child):
    """A started chain. `process` is the launcher, which stays as guard of bubblewrap, first of a pid namespace."""

    pid_fd: int
    trace: Trace | None = None

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

    def end(self, patience_s: float = _END_TIMEOUT_S) -> int:
        """Ends what is left and waits until the kernel has let go of every process of the sandbox. Blocks.

        On SIGTERM the guard kills bubblewrap and waits; that returns once the whole pid namespace is gone. A guard that
        was killed, or is not there yet, took everything with it: bubblewrap's death signal is set before it runs.
        """
        with suppress(ProcessLookupError):
            self.process.terminate()
        if not self.wait(patience_s):
            self.process.kill()
        status = self.status()
        self._await_child()
        for fd in (self.pidfd, self.stderr_fd, self.pid_fd, *([self.trace.fd] if self.trace else ())):
            os.close(fd)
        return status

    def _await_child(self) -> None:
        pid = self.child_pid()
        if pid is None:
            return
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        try:
            poll.poll(_END_TIMEOUT_S * 1000)
        finally:
            os.close(pidfd)


def _keep(stack: ExitStack, fd: int) -> int:
    """`fd`, closed when the stack unwinds."""
    stack.callback(os.close, fd)
    return fd


def shell_bytes(root: str, path: str) -> bytes:
    """A program of a root file system, no link of which leads out of it. SandboxFailed when it is none."""
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = open_in_root(folder, path, os.O_RDONLY)
    except OSError as error:
        raise SandboxFailed(f"{path} cannot be read there: {error.strerror}", "does it have bash?") from None
    finally:
        os.close(folder)
    with open(fd, "rb") as file:
        data = file.read()
    if not data.startswith(b"\x7fELF"):
        raise SandboxFailed(f"{path} is no program there", "a sandbox with a root needs bash itself")
    return data


def start_tree(
    policy: Policy, layers: Sequence[FolderLayer], host: HostFacts, stream: socket.socket, launch: Launch,
    *, traced: bool = False,
) -> ProcessTree:  # fmt: skip
    """A sandbox for that policy on prepared layers, with `stream` as the agent's. `launch` says all but descriptors.
    `traced`: it writes down what is started in it.

    SandboxFailed when the machine has no process, memory or descriptor left for it.
    """
    options = bubblewrap_argv(policy, layers, host, building=launch.build is not None, writable=launch.writable)
    args = os.fsencode("".join(f"{option}\0" for option in options))
    is_root = launch.build is not None or (launch.writable is not None and launch.writable.uid == 0)
    seccomp = filter_bytes(installing=is_root)
    package = pinned_files(host.bwrap.package) if host.bwrap.package else {}
    shell = shell_bytes(policy.rootfs or "/", AgentConfig().shell[0]) if launch.ids else b""
    with ExitStack() as stack:
        try:
            launcher, agent = _keep(stack, launcher_memfd()), _keep(stack, agent_memfd())
            args_fd = _keep(stack, sealed_memfd("bwrap-args", args))
            fds: tuple[int, ...] = (stream.fileno(), agent, args_fd, _keep(stack, sealed_memfd("seccomp", seccomp)))
            if shell:
                fds = (*fds, _keep(stack, sealed_memfd("bash", shell, executable=True)))
                for fd in (agent, fds[-1]):
                    os.fchmod(fd, 0o111)  # the kernel lets nobody look into who runs what they may not read
            package_fds = tuple(_keep(stack, sealed_memfd("package", data)) for data in package.values())
            own = stack.enter_context(ExitStack())  # those that the chain has to its end
            pid_fd = _keep(own, os.memfd_create("bwrap-pid"))
            stderr_fd = _keep(own, os.memfd_create("sandbox-stderr"))
            trace = Trace(_keep(own, os.memfd_create("sandbox-trace"))) if traced else None
        except OSError as error:
            hint = "free some memory or descriptors"
            raise SandboxFailed(f"cannot start a sandbox: {error.strerror}", hint) from error
        complete = launch._replace(pid_fd=pid_fd, package_fds=package_fds, fds=fds)
        more = (trace.fd,) if trace else ()
        if trace:
            complete = complete._replace(trace_fd=trace.fd)
        operations = launch_operations(policy, layers, host, complete)
        argv = ["launch", *command_line(operations, program(host, root=launch.ids is not None))]
        process = _spawn(argv, launcher, (*fds, pid_fd, *package_fds, *more), stderr_fd)
        own.pop_all()
        return ProcessTree(process, os.pidfd_open(process.pid), stderr_fd, pid_fd, trace)


def _spawn(argv: list[str], launcher: int, pass_fds: Sequence[int], stderr_fd: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
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
        raise SandboxFailed(f"cannot start a sandbox: {error.strerror}", way_out(error)) from error
