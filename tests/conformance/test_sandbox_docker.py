"""The sandbox suite on Docker."""

from pathlib import Path

import pytest

from stockade.testing.conformance.sandbox import SandboxConformance, fill
from tests.conformance.bench_container import ContainerBench
from tests.support.engines import engine_environment


class TestDocker(SandboxConformance):
    limits_of = "docker"

    @pytest.fixture
    def bench(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerBench:
        for name, value in engine_environment("docker").items():
            monkeypatch.setenv(name, value)
        base = tmp_path / "layers"
        base.mkdir(mode=0o700)
        return ContainerBench("docker", fill(tmp_path / "folder"), base)
