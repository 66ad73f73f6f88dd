"""The sandbox suite on bubblewrap: as whoever runs the tests and, when that is root, as an ordinary user too."""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from stockade_sandbox.conformance.sandbox import SandboxConformance, fill
from tests.conformance.bench_bubblewrap import BubblewrapBench
from tests.conformance.ordinary_user import run_as_ordinary_user

ROOT = Path(__file__).parents[2]


class TestBubblewrap(SandboxConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> BubblewrapBench:
        base = tmp_path / "layers"
        base.mkdir(mode=0o700)
        return BubblewrapBench(fill(tmp_path / "folder"), base)


@pytest.mark.root
def test_all_of_it_as_an_ordinary_user() -> None:
    home = Path(tempfile.mkdtemp(prefix="stockade-user-"))
    try:
        suite = f"{Path(__file__).relative_to(ROOT)}::TestBubblewrap"
        options = ["-q", "-p", "no:cacheprovider", f"--basetemp={home}/t", f"--rootdir={ROOT}"]
        done = run_as_ordinary_user([sys.executable, "-m", "pytest", *options, suite], home)
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout
    finally:
        shutil.rmtree(home)
