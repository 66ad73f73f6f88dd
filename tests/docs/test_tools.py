"""The tool files of docs/tools.md are those of the examples, and do what the page says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stockade.tools.tool_files import CommandTool, read_tool

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "examples" / "tools"
PAGE = (ROOT / "docs" / "tools.md").read_text()


def test_the_page_shows_the_examples() -> None:
    shown = re.findall(r"```(?:toml|yaml)\n(.*?)```", PAGE, re.DOTALL)
    files = {path.read_text() for path in TOOLS.iterdir() if path.suffix in (".toml", ".yaml")}
    assert set(shown) == files


def test_the_page_names_every_key() -> None:
    table = PAGE.partition("## What a file may say")[2].partition("## What installing")[0]
    assert set(CommandTool.model_fields) - {"folder"} <= set(re.findall(r"`(\w+)`", table))


@pytest.mark.parametrize("path", sorted(TOOLS.glob("*.[ty]*ml")), ids=lambda path: path.name)
def test_every_example_is_a_tool(path: Path) -> None:
    assert read_tool(path).name == path.stem


def run(tmp_path: Path, *flags: str, say: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of a run whose model takes these actions."""
    script = tmp_path / "script.jsonl"
    actions = [*say, {"tool": "finish", "answer": "done"}]
    lines = [json.dumps({"content": json.dumps({"thought": "", "action": action})}) for action in actions]
    script.write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "stockade.cli", "run", "try it", "--model", f"scripted/{script}", "--answers", "json",
         "--json", *flags],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=300, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_program_of_yours(tmp_path: Path) -> None:
    action = {"tool": "shell", "command": "todo add look again; todo done 1; todo list"}
    events = run(tmp_path, "--tool", "examples/tools/todo.toml", say=[action])
    finished = next(event for event in events if event["type"] == "action_finished")
    assert "".join(chunk["text"] for chunk in finished["observation"]["chunks"]).split() == ["1", "look", "again"]
    assert "todo add WORDS" in events[0]["system_prompt"]


def test_a_program_of_the_host(tmp_path: Path) -> None:
    flags = ("--tool", "examples/tools/host_disk.toml", "--allow-external", "host_disk")
    events = run(tmp_path, *flags, say=[{"tool": "host_disk", "path": "/"}])
    finished = next(event for event in events if event["type"] == "action_finished")
    assert finished["observation"]["status"] == "data"
    assert "%" in finished["observation"]["text"]
