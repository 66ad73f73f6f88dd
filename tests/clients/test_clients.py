"""Coding agents of other makers for real, in `stockade wrap`: a server outside plays their model, and their key stays
outside. They edit two files, run a command and the tests, and start what hunts the key; then review, apply, undo.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stockade_sandbox.policy import parse_credential
from tests.attack.test_credentials import HUNT, VALUE
from tests.cli.conftest import PATIENCE_S, Stage, stage  # noqa: F401 (a fixture)
from tests.clients.player import DONE, Player, Step
from tests.support.tmux import Screen
from tests.support.toolchains import clients

pytestmark = pytest.mark.toolchain
TEST = """\
import unittest
from calc import add

class Adding(unittest.TestCase):
    def test_it(self):
        self.assertEqual(add(1, 2), 3)
"""
SHELL = "echo by-the-shell > made.txt; python3 -m unittest -q 2>&1 | tail -1 > tested.txt; python3 hunt.py > hunted.txt"
PATCH = """apply_patch <<'EOF'
*** Begin Patch
*** Update File: calc.py
@@
 def add(a, b):
-    return a - b
+    return a + b
*** Add File: notes.md
+fixed
*** End Patch
EOF"""
READ: Step = ("Read", {"file_path": "/workspace/calc.py"})
EDIT: Step = ("Edit", {"file_path": "/workspace/calc.py", "old_string": "a - b", "new_string": "a + b"})
WRITE: Step = ("Write", {"file_path": "/workspace/notes.md", "content": "fixed\n"})
BASH: Step = ("Bash", {"command": SHELL, "description": "make a file, run the tests"})
BLOCKS = """calc.py
```python
<<<<<<< SEARCH
    return a - b
=======
    return a + b
>>>>>>> REPLACE
```

notes.md
```
<<<<<<< SEARCH
=======
fixed
>>>>>>> REPLACE
```
"""
FAKE = 'model_providers.fake={{name="fake",wire_api="responses",base_url="{}/v1",env_key="OPENAI_API_KEY"}}'


@pytest.fixture
def project(
    stage: Stage,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Stage:
    """The user's folder, with a bug and a test; the clients on the PATH, their keys set."""
    for name, text in (("calc.py", "def add(a, b):\n    return a - b\n"), ("test_calc.py", TEST), ("hunt.py", HUNT)):
        (stage.demo / name).write_text(text)
    monkeypatch.setenv("PATH", f"{clients()}:{os.environ['PATH']}")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, VALUE)
    return stage


def codex(player: Player) -> tuple[str, ...]:
    base = f"http://127.0.0.1:3128/credential/localhost:{player.port}"
    return ("codex", "-c", 'model="m"', "-c", 'model_provider="fake"', "-c", FAKE.format(base))


def aider(_: Player) -> tuple[str, ...]:
    own = ("--model", "openai/gpt-4o", "--no-git", "--edit-format", "diff", "--auto-test", "--test-cmd", SHELL)
    return ("aider", *own, "calc.py", "notes.md")


def claude(_: Player) -> tuple[str, ...]:
    return ("claude",)


@pytest.mark.parametrize(
    ("command", "key", "header", "steps", "words"),
    [
        (claude, "ANTHROPIC_API_KEY", "x-api-key", (READ, EDIT, WRITE, BASH), DONE),
        (codex, "OPENAI_API_KEY", "", (("exec_command", {"cmd": PATCH}), ("exec_command", {"cmd": SHELL})), DONE),
        (aider, "OPENAI_API_KEY", "", (), BLOCKS),
    ],
)  # fmt: skip
def test_by_itself(
    project: Stage,
    command: Callable[[Player], tuple[str, ...]],
    key: str,
    header: str,
    steps: tuple[Step, ...],
    words: str,
) -> None:
    before = project.tree()
    with Player(steps, words) as player:
        credential = f"{key}@localhost:{player.port}{f':{header}' if header else ''}"
        told = ("--folder", ".", "--timeout", "200", "--credential", credential, "-p", "mend add", "--")
        ended = project.call("wrap", *told, *command(player), folder=project.demo)
    assert ended.status == 0, ended.err
    sent = [headers for headers, body in player.asked if body]
    assert sent
    assert all(VALUE in str(headers) for headers in sent), "the real key reaches the server"
    assert VALUE not in ended.out + ended.err
    assert project.tree() == before
    assert project.call("apply", "--flagged", folder=project.demo).status == 0  # aider reads its history again
    after = project.tree()
    assert after["calc.py"] == b"def add(a, b):\n    return a + b\n"
    assert (after["notes.md"], after["made.txt"], after["tested.txt"]) == (b"fixed\n", b"by-the-shell\n", b"OK\n")
    assert after["hunted.txt"] == b"hunted\n"
    assert project.call("undo", folder=project.demo).status == 0
    assert project.tree() == before
    record = project.call("runs", "show", "last", "--json").out
    assert VALUE not in record


def test_claude_code_on_a_terminal(project: Stage, tmp_path: Path) -> None:
    """In a home that was set up before. It asks once before it edits, and is answered."""
    home = project.home / ".local" / "share" / "stockade-homes" / "work"
    home.mkdir(parents=True)
    sentinel = parse_credential("ANTHROPIC_API_KEY@x").sentinel
    known = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [sentinel[-20:]], "rejected": []},
        "projects": {"/workspace": {"hasTrustDialogAccepted": True}},
    }
    (home / ".claude.json").write_text(json.dumps(known))
    with Player((READ, EDIT), DONE) as player:
        credential = f"ANTHROPIC_API_KEY@localhost:{player.port}:x-api-key"
        told = ["wrap", "--folder", ".", "--home", "work", "--credential", credential, "--", "claude"]
        shown = Screen(tmp_path, told, project.demo, project.environment(), PATIENCE_S)
        try:
            shown.until("Claude Code", "? for shortcuts")
            shown.type("mend add")
            shown.until("mend add")
            shown.type("\r")
            shown.until("Do you want to make this edit to calc.py?")
            assert project.demo.joinpath("calc.py").read_text().endswith("a - b\n")
            shown.type("\r")
            shown.until("Added 1 line", DONE)
            shown.type("/exit")
            shown.until("Exit the CLI")
            shown.type("\r")
            shown.until("1 file changed", "Apply to")
            shown.type("y\r")
            assert shown.status() == 0
        finally:
            shown.close()
    assert project.demo.joinpath("calc.py").read_text().endswith("a + b\n")
    assert project.call("undo", folder=project.demo).status == 0
    assert project.demo.joinpath("calc.py").read_text().endswith("a - b\n")
