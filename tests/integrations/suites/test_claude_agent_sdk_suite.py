"""The SDK as published, with the Claude Code that it brings along, in `stockade wrap`; a server plays the model."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import claude_agent_sdk
import pytest
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    create_sdk_mcp_server,
    tool,
)
from tests.clients.player import DONE, Player

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/integrations/claude_agent_sdk.md").read_text()
PRESET = ROOT / "packages/stockade/src/stockade/presets/claude.toml"
KEY = "sk-ant-real-4711"
EDIT = ("Edit", {"file_path": "/workspace/calc.py", "old_string": "a - b", "new_string": "a + b"})
STEPS = (("Read", {"file_path": "/workspace/calc.py"}), EDIT)
BROKEN, MENDED = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"


@pytest.fixture
def calc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the folder to work on, beside the page's script; the user's key and home."""
    for name in ("CONFIG", "STATE", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("STOCKADE_NO_FOLDER", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    bundled = Path(claude_agent_sdk.__file__).parent / "_bundled"
    monkeypatch.setenv("PATH", f"{bundled}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    Path("claude-in-stockade").write_text(block("sh"))
    Path("claude-in-stockade").chmod(0o755)
    Path("repo").mkdir()
    (calc := tmp_path / "repo/calc.py").write_text(BROKEN)
    return calc


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def plays(tmp_path: Path, player: Player) -> None:
    """A preset of the user's, with the server in place of Anthropic's host."""
    own = tmp_path / "CONFIG/stockade/presets/claude.toml"
    own.parent.mkdir(parents=True)
    own.write_text(PRESET.read_text().replace("api.anthropic.com", f"localhost:{player.port}"))


def stockade(*words: str) -> str:
    done = subprocess.run(["stockade", *words], cwd="repo", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_pages_example(calc: Path, tmp_path: Path) -> None:
    with Player(STEPS) as player:
        plays(tmp_path, player)
        done = subprocess.run([sys.executable, "-c", block("python")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert DONE in done.stdout
    sent = [headers for headers, _ in player.asked]
    assert sent
    assert all(KEY in headers.values() for headers in sent)
    assert KEY not in done.stdout + done.stderr
    assert calc.read_text() == BROKEN
    assert "+    return a + b" in stockade("diff")
    stockade("apply")
    assert calc.read_text() == MENDED
    stockade("undo")
    assert calc.read_text() == BROKEN


@pytest.mark.usefixtures("calc")
async def test_what_it_asks_and_calls_back_over_the_streams(tmp_path: Path) -> None:
    asked, said = list[str](), list[str]()

    @tool("ticket", "The text of a ticket.", {"number": int})
    async def ticket(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"ticket {given['number']} in process {os.getpid()}"}]}

    async def may(name: str, given: dict[str, Any], _: Any) -> PermissionResultAllow | PermissionResultDeny:
        asked.append(name)
        return PermissionResultDeny(message="not that") if name == "Bash" else PermissionResultAllow()

    bash = ("Bash", {"command": "touch /workspace/never", "description": "make a file"})
    desk: dict[str, Any] = {"desk": create_sdk_mcp_server("desk", tools=[ticket])}
    cli, hear = tmp_path / "claude-in-stockade", said.append
    with Player((*STEPS, bash, ("mcp__desk__ticket", {"number": 7}))) as player:
        plays(tmp_path, player)
        options = ClaudeAgentOptions(cli_path=cli, cwd="repo", can_use_tool=may, mcp_servers=desk, stderr=hear)
        async with ClaudeSDKClient(options) as client:
            answers = [await _answered(client, words) for words in ("mend add", "and again")]
    assert all(DONE in answer for answer in answers), said
    assert asked == ["Edit", "Bash", "mcp__desk__ticket"]
    assert f"ticket 7 in process {os.getpid()}" in str(player.asked[-1][1])
    assert "not that" in str(player.asked[-1][1])
    assert stockade("diff").count("+++ ") == 1
    assert os.listdir("repo") == ["calc.py"]


async def _answered(client: ClaudeSDKClient, words: str) -> str:
    await client.query(words)
    messages = [one async for one in client.receive_response()]
    return str([one.content for one in messages if isinstance(one, AssistantMessage)])
