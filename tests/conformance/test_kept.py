"""What every sandbox must do, of one that a holder has: through its socket as in the process that made it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stockade_sandbox import AsyncSandbox
from stockade_sandbox.conformance import ExecConformance, FolderConformance, ShellConformance
from stockade_sandbox.conformance.programs import ProgramConformance
from stockade_sandbox.conformance.sandbox import fill
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import OnNetwork, Sandbox


class KeptBench:
    """Each is destroyed at its end. What it asks of the network is not told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @asynccontextmanager
    async def make(self, policy: Policy, on_network: OnNetwork | None = None) -> AsyncIterator[Sandbox]:
        assert on_network is None
        async with AsyncSandbox(policy=policy, keep=True) as box:
            try:
                yield box.live
            finally:
                await box.destroy()


class TestKept(ShellConformance, ExecConformance, FolderConformance, ProgramConformance):
    test_further_shells_have_a_state_of_their_own_and_work_at_once = None  # type: ignore[assignment]  # it has one

    @pytest.fixture
    def bench(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptBench:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        return KeptBench(fill(tmp_path / "folder"))
