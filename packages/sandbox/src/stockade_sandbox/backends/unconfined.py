"""No sandbox at all: commands run on the host as whoever runs Stockade. Only for who names it.

There for machines that are thrown away themselves (a container, a CI job). The same agent keeps the shell, time-outs
and clipping work, and `overlay` is a copy, so that review still works; but nothing is held back, and every line of
`guarantees` says so. What has no meaning on the host (copies, an image, a second folder) is refused.
"""

import os
import signal
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from stockade_sandbox.agent.child import Child, start_child
from stockade_sandbox.agent.session import AgentConfig, agent_memfd
from stockade_sandbox.backends.agent_sandbox import AgentSandbox
from stockade_sandbox.backends.layers import copied_layers
from stockade_sandbox.backends.rootfs import check_inside, environment
from stockade_sandbox.errors import PolicyNotEnforceable, UsageError
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import Backend
from stockade_sandbox.processes import descendants
from stockade_sandbox.stoppable import Progress

__all__ = ["ALLOW_ROOT", "UnconfinedSandbox"]

ALLOW_ROOT = "STOCKADE_ALLOW_ROOT_UNCONFINED"
"""Set to 1 by who wants a model's commands run by root, without a sandbox."""


def end_tree(root: int) -> None:
    """Kills a process and all below it; the root first, so that it starts nothing more."""
    for pid in list(descendants(root)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def refuse(policy: Policy) -> None:
    """PolicyNotEnforceable or UsageError for what has no meaning, or no excuse, without a sandbox."""
    if os.geteuid() == 0 and os.environ.get(ALLOW_ROOT) != "1":
        raise PolicyNotEnforceable(
            "sandbox",
            "unconfined commands would run as root",
            f"use another sandbox, or set {ALLOW_ROOT}=1 on a machine that may be lost",
            ("bubblewrap", "docker", "podman", "gvisor"),
        )
    if policy.network.mode != "none":
        raise PolicyNotEnforceable(
            "network",
            "unconfined commands have all of this machine's network, which cannot be limited",
            "use a sandbox for --net, or leave it out and know that the network is open",
            ("bubblewrap", "docker", "podman", "gvisor"),
        )
    for given, what in (
        (policy.rootfs, "an image"),
        (policy.copies, "--copy"),
        (policy.authorities, "-o ca"),
        (policy.folders[1:], "two folders"),
        (policy.lent, "what a tool needs of this machine"),
    ):
        if given:
            raise UsageError(f"{what} cannot be had unconfined", "use a sandbox, for example --sandbox bubblewrap")
    for rule in policy.folders:
        check_inside(rule.inside)


class UnconfinedSandbox(AgentSandbox):
    """Commands on the host, in the folder or a copy of it (layers.copied_layers); implements `port.Sandbox`.

    The folder is where it lies on the host, not at `inside`.
    """

    backend = "unconfined"

    @classmethod
    def prepared(cls, policy: Policy, base: Path, on_progress: Progress | None = None) -> "UnconfinedSandbox":
        """One with its layers made below `base`; what cannot be had is refused before that."""
        refuse(policy)
        return cls(policy, copied_layers(policy, base, on_progress), base)

    @property
    def guarantees(self) -> tuple[str, ...]:
        limits = self._policy.limits
        lines = [
            "UNCONFINED: commands run on this machine as you; they can do whatever you can",
            "files: not held; every file of yours can be read and changed, whatever the folder's mode says",
            "network none: not held; commands reach whatever this machine reaches, itself included, unrecorded",
            f"processes ({limits.processes}): not held; one that leaves its session can outlive the run",
            "system calls: not held",
            "environment: commands get only what was given, but can read that of your other processes",
        ]
        if limits.cpus:
            lines.append(f"processor time ({limits.cpus:g} processors): not held")
        if limits.memory_bytes:
            lines.append(f"memory ({limits.memory_bytes} bytes): not held in total, only for each process")
        if limits.disk_bytes:
            lines.append(f"disk ({limits.disk_bytes} bytes): not held outside the folder, watched in it")
        return tuple(lines)

    def _write_files(self) -> None:
        """Nowhere: this machine's own files are where they would be."""

    async def _start(self) -> None:
        refuse(self._policy)
        private = await anyio.to_thread.run_sync(self._private_folder)
        home = private / "home"
        home.mkdir()
        cwd = self._layers[0].source if self._layers else str(home)
        config = replace(AgentConfig.of(self._policy), cwd=cwd, processes=0)
        variables = {"HOME": str(home), "USER": str(os.geteuid()), **self._policy.environment}

        def start(stream: socket.socket) -> Child:
            agent = agent_memfd()
            try:
                program = f"/proc/self/fd/{agent}"
                env = environment(variables)
                return start_child(["agent", "0"], stream, executable=program, env=env, pass_fds=(agent,))
            finally:
                os.close(agent)

        await self._connect(start, config)
        assert self._child is not None
        self._pid = self._child.process.pid
        await self._watch_disk(())

    def _reason(self, stderr: str) -> str:
        return stderr.splitlines()[-1][:400]

    def _kill(self) -> None:
        pid = self.host_pid
        if pid:
            end_tree(pid)

    def _let_go(self, status: int | None) -> None:
        """Nothing is held, so nothing is let go of: the agent has ended what it started."""


BACKEND = Backend(UnconfinedSandbox.prepared, UnconfinedSandbox, sealed=False)
