"""examples/plugin in an environment of its own beside ours: by name from the command line, and under its own tests."""

import ast
import importlib
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.once import made_once

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin"


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh interpreter that sees our packages, with the plug-in installed in it alone."""
    return made_once(tmp_path_factory, "plugin", with_plugin) / "bin" / "python"


def with_plugin(fresh: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", fresh], check=True)
    found = fresh / "bin" / "python"
    lines = [
        f"import site; site.addsitedir({path!r})" for path in {sysconfig.get_path(x) for x in ("purelib", "platlib")}
    ]
    (next(fresh.glob("lib/python*/site-packages")) / "ours.pth").write_text("\n".join(lines))
    source = fresh / "plugin"
    subprocess.run(["cp", "-r", PLUGIN, source], check=True)
    command: list[str | Path] = [
        found,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        source,
    ]
    subprocess.run(command, check=True)


def stockade(python: Path, home: Path, *words: str | Path) -> tuple[int, str, str]:
    environment = {**os.environ, "HOME": str(home)}
    done = subprocess.run(
        [python, "-m", "stockade", *words], capture_output=True, text=True, check=False, env=environment, timeout=120,
        cwd=home,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def events(printed: str) -> Mapping[str, dict[str, object]]:
    """The last event of each type."""
    return {one["type"]: one for one in map(json.loads, printed.splitlines())}


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "data.csv").write_text("a,b\n1,2\n3,4\n")
    return tmp_path / "demo"


def test_every_part_by_name_from_the_command_line(python: Path, demo: Path) -> None:
    status, printed, complaints = stockade(
        python, demo.parent, "run", "count", "--folder", demo, "--model", "parrot/wc -l < data.csv", "--bot", "counter",
        "--sandbox", "offline", "-o", "hooks=no_lock_files", "--tool", "count_words", "--json",
    )  # fmt: skip
    assert (status, complaints) == (0, "")
    found = events(printed)
    started = found["run_started"]
    assert (started["model"], started["bot"], started["sandbox"], started["answers"]) == (
        "parrot/wc -l < data.csv", "counter", "offline", "native",
    )  # fmt: skip
    assert "no_lock_files" in str(started["hooks"])
    assert started["tools"] == ["count_words"]
    assert '"in_process": true' in json.dumps(found["tools_ready"])
    assert str(found["result"]["answer"]).endswith("\n3")
    assert (found["result"]["turns"], found["message_injected"]["source"]) == (4, "counter")


def test_the_protocol_by_name_from_the_command_line(python: Path, demo: Path) -> None:
    said = 'parrot/<call>{"tool": "finish", "answer": "two"}</call>'
    words = ("run", "count", "--folder", demo, "--model", said, "--answers", "call-tag", "--quiet")
    assert stockade(python, demo.parent, *words) == (0, "two\n", "")


def test_its_backend_refuses_what_it_cannot_hold(python: Path, demo: Path) -> None:
    words = ("run", "x", "--folder", demo, "--model", "parrot/x", "--sandbox", "offline", "--net", "open")
    status, _, complaints = stockade(python, demo.parent, *words)
    assert (status, "this site has no network for bots" in complaints) == (4, True)


def test_the_lists_have_it_with_its_package(python: Path, tmp_path: Path) -> None:
    assert "counter" in stockade(python, tmp_path, "bots")[1]
    assert "count_words    package   stockade-example 1.0" in stockade(python, tmp_path, "tool", "list")[1]
    complaints = stockade(python, tmp_path, "run", "x", "--model", "parot/x")[2]
    assert "did you mean parrot/x?" in complaints


def test_a_run_with_its_parts_goes_on(python: Path, demo: Path) -> None:
    run = ("run", "count", "--folder", demo, "--model", "parrot/ls", "--sandbox", "offline", "--max-turns", "1")
    assert stockade(python, demo.parent, *run, "--quiet")[0] == 3
    status, printed, _ = stockade(python, demo.parent, "runs", "resume", "last", "--max-turns", "5", "--quiet")
    assert (status, "data.csv" in printed) == (0, True)


def test_its_own_tests_pass_the_conformance_suites_there(python: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        PLUGIN,
        PLUGIN / "tests",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_it_imports_only_public_names() -> None:
    wrong = []
    for path in PLUGIN.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "stockade":
                public = importlib.import_module(str(node.module)).__all__
                wrong += [f"{path.name}: {node.module}.{one.name}" for one in node.names if one.name not in public]
            elif isinstance(node, ast.Import):
                wrong += [f"{path.name}: {one.name}" for one in node.names if one.name.split(".")[0] == "stockade"]
    assert wrong == []
