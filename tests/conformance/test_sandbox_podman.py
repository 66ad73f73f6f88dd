"""The sandbox suite on Podman."""

from pathlib import Path

import pytest

from stockade.testing.conformance.sandbox import SandboxConformance, fill
from tests.conformance.bench_container import ContainerBench
from tests.support.engines import engine_environment


class TestPodman(SandboxConformance):
    limits_of = "podman"

    @pytest.fixture
    def bench(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerBench:
        for name, value in engine_environment("podman").items():
            monkeypatch.setenv(name, value)
        base = tmp_path / "layers"
        base.mkdir(mode=0o700)
        return ContainerBench("podman", fill(tmp_path / "folder"), base)
