"""The sandbox suite on Docker: as root and, where it differs for a user who may use the daemon, as one."""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from stockade_sandbox.conformance.sandbox import SandboxConformance, fill
from tests.conformance.bench_container import ContainerBench
from tests.conformance.ordinary_user import UID, run_as_ordinary_user
from tests.support.engines import GIVEN_DOCKER, engine_environment, share_docker

ROOT = Path(__file__).parents[2]
DIFFERS = "read_only or overlay or rw_writes or copies or scratch or environment or ordinary or leaves or killed"
"""Without root, copies and the engine's own mounts take the place of what is mounted on the host."""


class TestDocker(SandboxConformance):
    limits_of = "docker"

    @pytest.fixture
    def bench(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerBench:
        for name, value in engine_environment("docker").items():
            monkeypatch.setenv(name, value)
        base = tmp_path / "layers"
        base.mkdir(mode=0o700)
        return ContainerBench("docker", fill(tmp_path / "folder"), base)


@pytest.mark.root
def test_what_differs_as_an_ordinary_user() -> None:
    home = Path(tempfile.mkdtemp(prefix="stockade-user-"))
    try:
        suite = f"{Path(__file__).relative_to(ROOT)}::TestDocker"
        options = ["-q", "-p", "no:cacheprovider", f"--basetemp={home}/t", f"--rootdir={ROOT}"]
        environment = ["env", f"{GIVEN_DOCKER}={share_docker(UID)}"]
        done = run_as_ordinary_user(
            [*environment, sys.executable, "-m", "pytest", *options, "-k", DIFFERS, suite], home
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout
    finally:
        shutil.rmtree(home)
