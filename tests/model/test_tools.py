"""A component called by the default model: the sample that the llama.cpp agent fails. `make test-model`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.core.actions import ToolResult
from stockade.core.events import ActionFinished, from_json
from tests.support import wasm

pytestmark = pytest.mark.model
PHRASE = "Something to echo"


@pytest.mark.parametrize("task", [f"Echo back '{PHRASE}'", f"Please echo back '{PHRASE}'"])
def test_the_default_model_has_the_whole_phrase_echoed(task: str, tmp_path: Path) -> None:
    """There "Something to echo" is answered by "Something", and nobody looks."""
    echo = shutil.copy(wasm.ECHO, tmp_path / "echo.wasm")
    models = os.environ.get("STOCKADE_TEST_MODELS", str(Path("~/.cache/stockade-dev/models").expanduser()))
    command = [sys.executable, "-m", "stockade.cli", "run", task, "--tool", str(echo), "--json",
               "--model", "embedded/qwen2.5-coder-1.5b", "--timeout", "1200"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "STOCKADE_MODELS": models})
    *lines, result = done.stdout.splitlines()
    seen = [event.observation for event in map(from_json, lines) if isinstance(event, ActionFinished)]
    assert seen[:1] == [ToolResult(status="data", text=PHRASE)], f"{seen}\n{done.stderr[-2000:]}"
    assert json.loads(result)["status"] == "done", result
