"""The real pipeline on a real model: SmolLM2-135M in the real sandbox by the real command.

It is too small to do tasks, so nothing here asks for wisdom: each answer is a valid action, the run ends by name, the
record is whole and the folder is as it was.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from stockade.core.actions import ToolCall, ToolResult
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    ModelAnswered,
    RunStarted,
    from_json,
)
from tests.support import wasm

MODELS = os.environ.get("STOCKADE_TEST_MODELS") or str(Path.home() / ".cache/stockade-dev/models")


def call(*arguments: str, folder: Path | None = None, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "stockade.cli", *arguments], cwd=folder,
        capture_output=True, text=True, timeout=900, env={**os.environ, "STOCKADE_MODELS": MODELS, **more},
    )  # fmt: skip


def test_smollm2_stays_in_form(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "data.csv").write_text("a,b\n1,2\n")
    done = call("run", "List the files", "--folder", str(folder), "--model", "embedded/smollm2", "--max-turns", "4",
                "--timeout", "600", "--ctx-size", "2048", "--json")  # fmt: skip
    lines = done.stdout.splitlines()
    result = json.loads(lines[-1])
    events = [from_json(line) for line in lines[:-1]]
    assert result["type"] == "result", done.stderr
    assert result["status"] in ("done", "stopped")
    assert done.returncode in (0, 3)
    asked = [event for event in events if isinstance(event, ModelAnswered)]
    assert 1 <= len(asked) == result["turns"] <= 4
    assert sum(event.answer.usage.prompt_tokens for event in asked) > 100
    read = [event for event in events if isinstance(event, AnswerUnderstood)]
    cut = [event for event in events if isinstance(event, AnswerUnreadable)]
    assert len(read) + len(cut) == len(asked)
    assert all("too long" in event.message for event in cut), "a schema allows nothing unreadable but a cut answer"
    assert sorted(path.name for path in folder.iterdir()) == ["data.csv"]
    first = events[0]
    assert isinstance(first, RunStarted)
    shown = call("runs", "show", first.run_id)
    assert shown.returncode == 0
    assert "List the files" in shown.stdout + shown.stderr


def test_smollm2_calls_a_component(tmp_path: Path) -> None:
    """Given no other tool it takes this one. Whatever it says, the whole of it comes back, and it is asked again."""
    echo = shutil.copy(wasm.ECHO, tmp_path / "echo.wasm")
    done = call("run", "Use the tool Echo with the value 'Something to echo'", "--tool", str(echo),
                "--no-tool", "shell", "--no-tool", "write_file", "--model", "embedded/smollm2", "--max-turns", "2",
                "--timeout", "600", "--ctx-size", "2048", "--json")  # fmt: skip
    lines = done.stdout.splitlines()
    events = [from_json(line) for line in lines[:-1]]
    assert json.loads(lines[-1])["status"] in ("done", "stopped"), done.stderr
    begun = [event.action.action for event in events if isinstance(event, ActionStarted)]
    ended = [event.observation for event in events if isinstance(event, ActionFinished)]
    assert begun, done.stderr
    for action, observation in zip(begun, ended, strict=True):
        assert isinstance(action, ToolCall)
        assert action.name == "Echo"
        assert observation == ToolResult(status="data", text=str(action.arguments["value"]))
    assert len([event for event in events if isinstance(event, ModelAnswered)]) == 2


def test_it_writes_what_a_grammar_of_the_user_allows(tmp_path: Path) -> None:
    """pocket-ASI's LLAMA_AUTOGEN_GRAMMAR=false takes `grammar.gbnf`, of the current folder."""
    (tmp_path / "grammar.gbnf").write_text('root ::= "[{\\"command\\": \\"echo " [a-z] "\\"}]"\n')
    arguments = ("auto", "--workspace", str(tmp_path / "home"), "--no-intro", "--max-turns", "2", "--json")
    model = ("--model", "embedded/smollm2", "--ctx-size", "2048")
    done = call(*arguments, *model, folder=tmp_path, LLAMA_AUTOGEN_GRAMMAR="false")
    events = [from_json(line) for line in done.stdout.splitlines()[:-1]]
    written = [event.answer.content for event in events if isinstance(event, ModelAnswered)]
    assert len(written) == 2, done.stderr
    assert all(re.fullmatch(r'\[\{"command": "echo [a-z]"\}\]', text) for text in written), written


def test_a_grammar_that_would_not_be_held_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no").write_text("nothing")
    (tmp_path / "g").write_text('root ::= "x"')
    for words, flags in (
        ("cannot be read: No such file", ("-o", "grammar=nowhere")),
        ("is no GBNF", ("-o", "grammar=no")),
        ("no room for tool calls", ("-o", "grammar=g", "-o", "answers=native")),
    ):
        done = call("run", "x", "--no-folder", "--model", "embedded/smollm2", *flags, folder=tmp_path)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    remote = call(
        "run", "x", "--no-folder", "--model", "ollama/x", "-o", "grammar=g", "-o", "answers=json", folder=tmp_path
    )
    assert (remote.returncode, "is llama.cpp's, and ollama is another" in remote.stderr) == (2, True), remote.stderr
