"""The sandbox suite on Podman: as root and, rootless, as an ordinary user with ids of their own to give away."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from stockade_sandbox.conformance.sandbox import SandboxConformance, fill
from tests.conformance.bench_container import ContainerBench
from tests.conformance.ordinary_user import UID, run_as_ordinary_user
from tests.support.engines import engine_environment, need

ROOT = Path(__file__).parents[2]


class TestPodman(SandboxConformance):
    limits_of = "podman" if os.geteuid() == 0 else "rootless podman"

    @pytest.fixture
    def bench(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerBench:
        for name, value in engine_environment("podman").items():
            monkeypatch.setenv(name, value)
        base = tmp_path / "layers"
        base.mkdir(mode=0o700)
        return ContainerBench("podman", fill(tmp_path / "folder"), base)


def _accounts(folder: Path) -> Path:
    """Files of /etc that know the user, and ids that are the user's to give to containers."""
    folder.mkdir()
    passwd = Path("/etc/passwd").read_text() + f"tester:x:{UID}:{UID}::/nonexistent:/bin/sh\n"
    for name, text in {"passwd": passwd, "subuid": "tester:200000:65536\n", "subgid": "tester:200000:65536\n"}.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.root
def test_all_of_it_as_an_ordinary_user() -> None:
    need("newuidmap", "newgidmap")
    home = Path(tempfile.mkdtemp(prefix="stockade-user-"))
    accounts = Path(tempfile.mkdtemp(prefix="stockade-etc-"))
    try:
        suite = f"{Path(__file__).relative_to(ROOT)}::TestPodman"
        options = ["-q", "-p", "no:cacheprovider", f"--basetemp={home}/t", f"--rootdir={ROOT}"]
        accounts.chmod(0o755)
        command = [sys.executable, "-m", "pytest", *options, suite]
        done = run_as_ordinary_user(command, home, timeout_s=900, etc=_accounts(accounts / "etc"))
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout
    finally:
        shutil.rmtree(home)
        shutil.rmtree(accounts)
