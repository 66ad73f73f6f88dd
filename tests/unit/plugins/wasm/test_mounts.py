"""What the sandbox sees: Python's byte code is there, or every start compiles wasmtime's modules anew."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from stockade.plugins.wasm.worker import with_bytecode


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Installed by something that compiles nothing."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    with_bytecode.cache_clear()
    (tmp_path / "inner").mkdir()
    (tmp_path / "one.py").write_text("ONE = 1\n")
    (tmp_path / "inner" / "two.py").write_text("TWO = 2\n")
    return tmp_path


def bytecode(source: Path) -> Path:
    return Path(importlib.util.cache_from_source(str(source)))


def test_what_was_not_compiled_is(folder: Path) -> None:
    assert with_bytecode(folder) == folder
    for source in (folder / "one.py", folder / "inner" / "two.py"):
        assert bytecode(source).is_file()


def test_what_is_fresh_is_left_and_what_is_not_is_made_anew(folder: Path) -> None:
    with_bytecode(folder)
    one, two = bytecode(folder / "one.py"), bytecode(folder / "inner" / "two.py")
    before = one.stat().st_ino, two.stat().st_ino
    (folder / "one.py").write_text("ONE = 1000\n")
    os.utime(folder / "one.py", (2e9, 2e9))
    with_bytecode.cache_clear()
    with_bytecode(folder)
    assert (one.stat().st_ino == before[0], two.stat().st_ino == before[1]) == (False, True)


def test_nothing_is_written_where_python_is_told_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with_bytecode(folder)
    assert not list(folder.rglob("*.pyc"))


def test_a_folder_that_takes_nothing_is_used_as_it_is(folder: Path) -> None:
    (folder / "__pycache__").write_text("in the way")
    assert with_bytecode(folder) == folder
    assert os.listdir(folder / "inner" / "__pycache__")
