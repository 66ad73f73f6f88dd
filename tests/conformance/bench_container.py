"""Docker and Podman under the conformance suite: how to make one, kill it, and see what it left on the host."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from stockade_sandbox.backends.containers.container import ContainerSandbox
from stockade_sandbox.backends.containers.engines import EngineName, find_engine
from stockade_sandbox.backends.containers.host_stage import BASE
from stockade_sandbox.backends.layers import container_layers
from stockade_sandbox.conformance.bench import descriptors
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import OnNetwork, Sandbox
from tests.support.site import to_loopback


class ContainerBench:
    """`base` takes layers and copies."""

    def __init__(self, engine: EngineName, folder: Path, base: Path, runtime: str | None = None) -> None:
        self.folder = folder
        self._engine = engine
        self._base = base
        self._runtime = runtime

    @asynccontextmanager
    async def make(self, policy: Policy, on_network: OnNetwork | None = None) -> AsyncIterator[Sandbox]:
        layers = container_layers(policy, self._base)
        try:
            sandbox = ContainerSandbox(policy, layers, self._base, self._engine, self._runtime, to_loopback)
            sandbox.on_network = on_network
            async with sandbox:
                yield sandbox
        finally:
            for layer in layers:
                Review().discard(layer)

    def kill(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, ContainerSandbox)
        assert sandbox.host_pid is not None
        os.kill(sandbox.host_pid, signal.SIGKILL)

    def traces(self) -> set[str]:
        listing = [*find_engine(self._engine).command, "ps", "--all", "--quiet", "--filter", "label=stockade"]
        done = subprocess.run(listing, capture_output=True, text=True, check=True)
        containers = {f"container {name}" for name in done.stdout.split()}
        files = {f"file {path}" for path in self._base.rglob("*") if "trial" not in path.name}
        mounts = {
            f"mount {line}"
            for line in Path("/proc/self/mounts").read_text().splitlines()
            if f"stockade-{os.getpid()}-" in line
        }
        stages = {f"stage {path}" for path in BASE.glob(f"stockade-{os.getpid()}-*")}
        return {*containers, *files, *mounts, *stages, *descriptors()}
