"""Bubblewrap under the conformance suite: how to make one, kill it, and see what it left on the host."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.conformance.bench import descriptors
from stockade_sandbox.limits.cgroups import places
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import OnNetwork, Sandbox
from tests.support.site import to_loopback


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _pids() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def descendants(of: int | None = None) -> set[int]:
    """Every process below `of`, by default below this one."""
    top = of or os.getpid()
    parents = {}
    for pid in _pids():
        with suppress(OSError):
            parents[pid] = _parent(pid)
    found = {top}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {top}


class BubblewrapBench:
    """`base` takes layers and copies. Processes are known by their pid namespace, which outlives their parents."""

    def __init__(self, folder: Path, base: Path) -> None:
        self.folder = folder
        self._base = base
        self._namespaces: set[str] = set()

    @asynccontextmanager
    async def make(self, policy: Policy, on_network: OnNetwork | None = None) -> AsyncIterator[Sandbox]:
        layers = prepare_layers(policy, self._base)
        try:
            sandbox = BubblewrapSandbox(policy, layers, self._base, to_loopback)
            sandbox.on_network = on_network
            async with sandbox:
                yield sandbox
        finally:
            for layer in layers:
                Review().discard(layer)

    def kill(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, BubblewrapSandbox)
        assert sandbox.host_pid is not None
        os.kill(sandbox.host_pid, signal.SIGKILL)

    def _inside(self) -> Iterator[str]:
        """Processes of sandboxes: for root by namespace, for an ordinary user (who may not look) by user and parent."""
        children = descendants()
        for pid in children:
            with suppress(OSError):
                self._namespaces.add(os.readlink(f"/proc/{pid}/ns/pid"))
        self._namespaces.discard(os.readlink("/proc/self/ns/pid"))
        for pid in _pids():
            with suppress(OSError):
                if pid in children or os.readlink(f"/proc/{pid}/ns/pid") in self._namespaces:
                    yield f"process {pid}"

    def traces(self) -> set[str]:
        groups = {f"group {folder}" for place in places() for folder in place.path.glob(f"stockade-{os.getpid()}-*")}
        files = {f"file {path}" for path in self._base.rglob("*") if "trial" not in path.name}
        lines, ours = Path("/proc/self/mounts").read_text().splitlines(), (str(self._base), f"stockade-{os.getpid()}-")
        mounts = {f"mount {line}" for line in lines if any(name in line for name in ours)}
        return {*self._inside(), *groups, *files, *mounts, *descriptors()}
