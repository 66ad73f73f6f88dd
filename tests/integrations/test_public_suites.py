"""The suites that frameworks publish for sandboxes, and ours where they have none, on our adapters: in an environment
that has the frameworks (requirements-integrations.lock), apart from ours. What a suite is known to fail is named there,
strictly.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.once import made_once

ROOT = Path(__file__).parents[2]
SUITES = {
    "test_inspect_suite.py": (45, 0) if os.geteuid() == 0 else (44, 1),
    "test_pydantic_suite.py": (41, 0),
    "test_langchain_suite.py": (79, 7),
    "test_mini_suite.py": (3, 0),
    "test_smolagents_suite.py": (13, 0),
    "test_reasoning_sdks.py": (2, 0),
    "test_request_types.py": (33, 0),
    "test_examples_suite.py": (8, 0),
}
"""How many pass, and how many are known not to. None is skipped. inspect_ai's are 44 and one of ours; an ordinary user
without further ids (subuid(5)) has no root inside.
"""
OURS = {"test_reasoning_sdks.py", "test_request_types.py"}
"""What tries something of ours with what is official, and no adapter of a framework."""


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "frameworks", with_frameworks) / "bin" / "python"


def with_frameworks(fresh: Path) -> None:
    """What nobody imports is not compiled: that is most of it."""
    subprocess.run([sys.executable, "-m", "venv", fresh], check=True)
    install: list[str | Path] = [
        fresh / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-compile",
    ]
    lock = ROOT / "requirements-integrations.lock"  # whole, but for what no adapter needs: litellm, datasets
    subprocess.run([*install, "--requirement", lock], check=True)
    ours = ROOT / "packages" / "sandbox"  # installed, for its entry points
    subprocess.run([*install, "--editable", ours], check=True)
    source = ROOT / "packages" / "stockade" / "src"
    (next(fresh.glob("lib/python*/site-packages")) / "ours.pth").write_text(str(source))


def run_suite(python: Path, suite: str, work: Path, **environment: str) -> dict[str, int]:
    """How many passed, are known to fail, or were skipped, by an interpreter that has the framework."""
    suites = ROOT / "tests/integrations/suites"
    how = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "-o", "asyncio_mode=auto"]
    command: list[str | Path] = [
        python,
        "-m",
        "pytest",
        *how,
        "--rootdir",
        work,
        "--confcutdir",
        suites,
        suites / suite,
    ]
    own = {**os.environ, "XDG_STATE_HOME": str(work / "state"), **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=own, cwd=work)
    assert done.returncode == 0, done.stdout[-5000:]
    return {name: int(count) for count, name in re.findall(r"(\d+) (passed|xfailed|skipped)", done.stdout)}


@pytest.mark.parametrize("suite", SUITES)
def test_a_public_suite(suite: str, python: Path, tmp_path: Path) -> None:
    found = run_suite(python, suite, tmp_path, PYTHONPATH=str(ROOT) if suite in OURS else "")
    passed, known = SUITES[suite]
    assert found == {"passed": passed, **({"xfailed": known} if known else {})}
