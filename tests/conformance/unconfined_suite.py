"""The sandbox suite on `unconfined`. NOT collected by itself: it runs `kill -9 -1` and the like for real.

test_sandbox_unconfined.py runs it in a process id namespace of its own, as another user.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stockade.core.ports import OnNetwork, Sandbox
from stockade_sandbox.backends.layers import copied_layers
from stockade_sandbox.backends.unconfined import UnconfinedSandbox, end_tree
from stockade_sandbox.conformance.bench import descriptors
from stockade_sandbox.conformance.sandbox import SandboxConformance, fill
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import Policy
from tests.conformance.bench_bubblewrap import descendants
from tests.conformance.ordinary_user import UID


class UnconfinedBench:
    def __init__(self, folder: Path, base: Path) -> None:
        self.folder = folder
        self._base = base

    @asynccontextmanager
    async def make(self, policy: Policy, on_network: OnNetwork | None = None) -> AsyncIterator[Sandbox]:
        layers = copied_layers(policy, self._base)
        try:
            sandbox = UnconfinedSandbox(policy, layers, self._base)
            sandbox.on_network = on_network
            async with sandbox:
                yield sandbox
        finally:
            for layer in layers:
                Review().discard(layer)

    def kill(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, UnconfinedSandbox)
        assert sandbox.host_pid is not None
        end_tree(sandbox.host_pid)

    def traces(self) -> set[str]:
        files = {f"file {path}" for path in self._base.rglob("*")}
        return {*(f"process {pid}" for pid in descendants()), *files, *descriptors()}


class TestUnconfined(SandboxConformance):
    limits_of = "unconfined"

    @pytest.fixture
    def bench(self, tmp_path: Path) -> UnconfinedBench:
        assert os.geteuid() == UID
        assert b"run_as_ordinary_user" in Path("/proc/1/cmdline").read_bytes(), "this is the real machine"
        base = tmp_path / "layers"
        base.mkdir(mode=0o700)
        return UnconfinedBench(fill(tmp_path / "folder"), base)
