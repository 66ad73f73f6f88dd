"""How tests are collected: names that stay, and what only root can run."""

import gzip
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conformance.ordinary_user import run_as_ordinary_user

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("packed", [gzip.compress(b"ok"), b"plain"])
def test_bytes_that_change_each_second_are_not_in_a_name(packed: bytes, request: pytest.FixtureRequest) -> None:
    assert request.node.name.partition("[")[2] in ("22 bytes]", "plain]")


@pytest.mark.root
def test_what_needs_root_is_not_collected_for_others() -> None:
    home = Path(tempfile.mkdtemp(prefix="stockade-user-"))
    try:
        options = ["--collect-only", "-q", "-p", "no:cacheprovider", f"--basetemp={home}/t", f"--rootdir={ROOT}"]
        suite = "tests/unit/sandboxes/test_unconfined.py"
        done = run_as_ordinary_user([sys.executable, "-m", "pytest", *options, suite], home)
    finally:
        shutil.rmtree(home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_root_is_refused_unless_it_says_so" not in done.stdout
    assert "(3 deselected)" in done.stdout
