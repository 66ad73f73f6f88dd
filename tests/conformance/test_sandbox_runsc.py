"""The sandbox suite on Docker and Podman with gVisor as their runtime."""

from pathlib import Path

import pytest

from stockade_sandbox.backends.containers.engines import EngineName
from stockade_sandbox.conformance.sandbox import SandboxConformance, fill
from tests.conformance.bench_container import ContainerBench
from tests.support.engines import engine_environment, engine_runsc


def bench(engine: EngineName, base: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerBench:
    for name, value in engine_environment(engine).items():
        monkeypatch.setenv(name, value)
    layers = base / "layers"
    layers.mkdir(mode=0o700)
    return ContainerBench(engine, fill(base / "folder"), layers, engine_runsc(engine))


class TestDockerWithRunsc(SandboxConformance):
    limits_of = "docker with runsc"

    @pytest.fixture
    def bench(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerBench:
        return bench("docker", tmp_path, monkeypatch)


class TestPodmanWithRunsc(SandboxConformance):
    limits_of = "podman with runsc"

    @pytest.fixture
    def bench(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerBench:
        return bench("podman", tmp_path, monkeypatch)
