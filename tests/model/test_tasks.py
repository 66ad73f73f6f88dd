"""Five small tasks that the default model must solve, by the real command in the real sandbox: `make test-model`.

Not part of the ordinary run: the model is 1.1 GB.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.model


@dataclass(frozen=True)
class Task:
    """What is asked, what is there before, and how to see that it is done."""

    words: str
    files: dict[str, str]
    solved: Callable[[Path], bool]


def text(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else ""


TASKS = {
    "count lines": Task(
        "Write the number of lines of data.csv into count.txt",
        {"data.csv": "name,age\nann,31\nbob,25\ncem,44\n"},
        lambda folder: text(folder / "count.txt") == "4",
    ),
    "rename": Task(
        "Rename every .txt file to .md",
        {"a.txt": "a", "b.txt": "b", "c.log": "c"},
        lambda folder: sorted(path.name for path in folder.iterdir()) == ["a.md", "b.md", "c.log"],
    ),
    "json": Task(
        "Write the value of the key name in config.json into name.txt",
        {"config.json": '{"version": 2, "name": "stockade"}\n'},
        lambda folder: text(folder / "name.txt").strip('"') == "stockade",
    ),
    "sort": Task(
        "Sort words.txt alphabetically into sorted.txt",
        {"words.txt": "pear\napple\nfig\n"},
        lambda folder: text(folder / "sorted.txt") == "apple\nfig\npear",
    ),
    "program": Task(
        "Create a file hello.py that prints Hello, world",
        {},
        lambda folder: "Hello, world" in subprocess.run(
            [sys.executable, "-I", folder / "hello.py"], capture_output=True, text=True, timeout=20
        ).stdout,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_the_default_model_solves_it(name: str, tmp_path: Path) -> None:
    task, folder = TASKS[name], tmp_path / "folder"
    folder.mkdir()
    for file, content in task.files.items():
        (folder / file).write_text(content)
    models = os.environ.get("STOCKADE_TEST_MODELS", str(Path("~/.cache/stockade-dev/models").expanduser()))
    command = [sys.executable, "-m", "stockade.cli", "run", task.words, "--folder", str(folder), "--json", "--apply",
               "--model", "embedded/qwen2.5-coder-1.5b", "--timeout", "1200"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "STOCKADE_MODELS": models})
    result = json.loads(done.stdout.splitlines()[-1])
    assert task.solved(folder), f"{result}\n{done.stderr[-2000:]}"
    assert (done.returncode, result["status"]) == (0, "done")
