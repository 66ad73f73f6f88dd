"""`--mcp`, the `.mcp.json` of a folder, and `stockade trust`, as they are typed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SERVER = (Path(__file__).parents[1] / "support" / "mcp_server.py").read_text()
WRAPPER = "import sys; sys.argv[1:] = open('/copied/mode').read().split(); exec(open('/copied/server.py').read())"


def call(name: str, **arguments: Any) -> str:
    return json.dumps({"tool_calls": [{"function": {"name": name, "arguments": json.dumps(arguments)}}]})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "mode").write_text("only")
    lines = [call("here__echo", text="spoken inside"), *[call("finish", answer="done")] * 2]
    (tmp_path / "script.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def servers(path: Path, **more: Any) -> Path:
    entry = {"command": "/usr/bin/python3", "args": ["-c", WRAPPER]}
    path.write_text(json.dumps({"mcpServers": {"here": entry, **more}}))
    return path


def stockade(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        **{f"XDG_{name}_HOME": str(home / name) for name in ("STATE", "CONFIG", "CACHE", "DATA")},
    }
    return subprocess.run(
        [sys.executable, "-m", "stockade.cli", *words],
        env=environment,
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    copies = [word for name in ("server.py", "mode") for word in ("--copy", str(home / name))]
    script = f"scripted/{home / 'script.jsonl'}"
    return stockade(home, "run", "say it", "--model", script, "--answers", "native", "--plain", *copies, *words)


def test_a_run_with_a_server_as_it_is_now(home: Path) -> None:
    file = str(servers(home / "servers.json"))
    first = run(home, "--mcp", file)
    assert first.returncode == 0, first.stderr
    assert "spoken inside" in first.stderr
    (home / "mode").write_text("only change")
    assert run(home, "--mcp", file).returncode == 0


def test_the_list_in_a_folder_is_read_once_it_is_trusted(home: Path) -> None:
    path = servers(home / "work" / ".mcp.json", broken={"command": "/no/such/server"})
    work = ("--folder", str(home / "work"), "--discard")
    before = run(home, *work)
    assert "stockade trust" in before.stderr
    assert "spoken inside" not in before.stderr
    asked = stockade(home, "trust", str(path))
    assert asked.returncode == 2
    assert "--yes" in asked.stderr
    assert "/no/such/server" in asked.stderr
    assert stockade(home, "trust", str(path), "--yes").returncode == 0
    after = run(home, *work)
    assert after.returncode == 0, after.stderr
    assert "spoken inside" in after.stderr
    assert "broken was left out" in after.stderr
    assert "spoken inside" not in run(home, *work, "--mcp", "none").stderr
    servers(path)
    assert "stockade trust" in run(home, *work).stderr


def test_what_was_not_seen_whole_is_not_trusted_on_sight(home: Path) -> None:
    path = home / "work" / ".mcp.json"
    for text in ("\n" * 300 + "{}", '{"a": "' + " " * 2000 + '"}'):
        path.write_text(text)
        found = stockade(home, "trust", str(path))
        assert found.returncode == 2
        assert "too long" in found.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "x", "--mcp", "nothing.json"), "there is no such file"),
        (("run", "x", "--mcp", "script.jsonl"), "ends in .json"),
        (("trust", "script.jsonl"), "is not read from a folder"),
        (("trust", "work/.mcp.json"), "cannot be read"),
        (("trust", "nope.toml"), "nope.toml cannot be read: No such file or directory"),
        (("trust", "stockade.toml", "--yes"), "stockade.toml is not TOML: "),
        (("trust", "broken/.mcp.json", "--yes"), "broken/.mcp.json is not JSON: "),
    ],
)
def test_what_cannot_be_is_one_line(home: Path, words: tuple[str, ...], said: str) -> None:
    (home / "stockade.toml").write_text("net = maybe\n")
    (home / "broken").mkdir()
    (home / "broken" / ".mcp.json").write_text("{")
    found = stockade(home, *words)
    assert (found.returncode, found.stdout) == (2, "")
    assert said in found.stderr
    assert "Traceback" not in found.stderr
