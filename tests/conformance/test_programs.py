"""Programs beside the shell, on every backend with our agent in it."""

from pathlib import Path

import pytest

from stockade_sandbox.backends.containers.engines import EngineName
from stockade_sandbox.conformance.programs import FreezeConformance, ProgramConformance
from stockade_sandbox.conformance.sandbox import fill
from tests.conformance.bench_bubblewrap import BubblewrapBench
from tests.conformance.bench_container import ContainerBench
from tests.conformance.bench_gvisor import GVisorBench
from tests.support.engines import engine_environment


class TestBubblewrap(ProgramConformance, FreezeConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> BubblewrapBench:
        return BubblewrapBench(fill(tmp_path / "folder"), layers(tmp_path))


class TestGVisor(ProgramConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> GVisorBench:
        return GVisorBench(fill(tmp_path / "folder"), layers(tmp_path))


@pytest.mark.parametrize("engine", [pytest.param("docker", marks=pytest.mark.root), "podman"])
class TestContainers(ProgramConformance, FreezeConformance):
    @pytest.fixture
    def bench(self, engine: EngineName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerBench:
        for name, value in engine_environment(engine).items():
            monkeypatch.setenv(name, value)
        return ContainerBench(engine, fill(tmp_path / "folder"), layers(tmp_path))


def layers(base: Path) -> Path:
    made = base / "layers"
    made.mkdir(mode=0o700)
    return made
