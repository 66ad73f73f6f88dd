"""gVisor under the conformance suite: how to make one, kill it, and see what it left on the host."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from stockade_sandbox.backends.containers.gvisor import STATE, GVisorSandbox
from stockade_sandbox.backends.containers.host_stage import BASE
from stockade_sandbox.backends.layers import container_layers
from stockade_sandbox.conformance.bench import descriptors
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import OnNetwork, Sandbox
from tests.conformance.bench_bubblewrap import descendants
from tests.support.site import to_loopback


class GVisorBench:
    """`base` takes layers and copies. Debian's runsc is old; what that costs is in known_limits.py."""

    def __init__(self, folder: Path, base: Path) -> None:
        self.folder = folder
        self._base = base
        self._others = descendants()

    @asynccontextmanager
    async def make(self, policy: Policy, on_network: OnNetwork | None = None) -> AsyncIterator[Sandbox]:
        layers = container_layers(policy, self._base)
        try:
            sandbox = GVisorSandbox(policy, layers, self._base, to_loopback)
            sandbox.on_network = on_network
            async with sandbox:
                yield sandbox
        finally:
            for layer in layers:
                Review().discard(layer)

    def kill(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, GVisorSandbox)
        assert sandbox.host_pid is not None
        os.kill(sandbox.host_pid, 9)

    def traces(self) -> set[str]:
        processes = {f"process {pid}" for pid in descendants() - self._others}
        state = {f"state {path.name}" for path in STATE.glob(f"*stockade-{os.getpid()}-*")}
        files = {f"file {path}" for path in self._base.rglob("*") if "trial" not in path.name}
        mounts = {
            f"mount {line}"
            for line in Path("/proc/self/mounts").read_text().splitlines()
            if f"stockade-{os.getpid()}-" in line
        }
        stages = {f"stage {path}" for path in BASE.glob(f"stockade-{os.getpid()}-*")}
        groups = {f"group {path}" for path in Path("/sys/fs/cgroup").glob(f"*/stockade-{os.getpid()}-*-*-*")}
        return {
            *processes,
            *state,
            *files,
            *mounts,
            *stages,
            *groups,
            *descriptors(),
        }
