"""Coding agents of other makers for real, in `stockade wrap`: a server outside plays their model, and their key stays
outside. They edit two files, run a command and the tests, and start what hunts the key; then review, apply, undo.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stockade_sandbox.policy import parse_credential
from tests.attack.test_credentials import HUNT, VALUE
from tests.cli.conftest import PATIENCE_S, Stage, stage  # noqa: F401 (a fixture)
from tests.clients.internet import Internet
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
COPILOTS = "api.individual.githubcopilot.com"
HOSTS = ("api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com", "api.github.com", COPILOTS)
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "COPILOT_PROVIDER_API_KEY")
ASKS = {"sandbox_permissions": "require_escalated", "justification": "May I?"}
READ_ONLY = ("-c", 'sandbox_mode="read-only"')


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
    for name in KEYS:
        monkeypatch.setenv(name, VALUE)
    return stage


@pytest.fixture
def internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Internet]:
    """All that a preset may reach. It trusts `-o ca=ca.pem`."""
    with Internet(HOSTS, tmp_path / "ca.pem") as there:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{there.port}")
        yield there


AIDER = ("--no-git", "--edit-format", "diff", "--auto-test", "--test-cmd", SHELL, "calc.py", "notes.md")
GEMINI: tuple[Step, ...] = (
    ("replace", {"file_path": "/workspace/calc.py", "instruction": "+", "old_string": "a - b", "new_string": "a + b"}),
    ("write_file", {"file_path": "/workspace/notes.md", "content": "fixed\n"}),
    ("run_shell_command", {"command": SHELL}),
)
OPENCODE: tuple[Step, ...] = (
    ("edit", {"filePath": "/workspace/calc.py", "oldString": "a - b", "newString": "a + b"}),
    ("write", {"filePath": "/workspace/notes.md", "content": "fixed\n"}),
    ("bash", {"command": SHELL, "description": "make a file, run the tests"}),
)
PI: tuple[Step, ...] = (
    ("edit", {"path": "calc.py", "edits": [{"oldText": "a - b", "newText": "a + b"}]}),
    ("write", {"path": "notes.md", "content": "fixed\n"}),
    ("bash", {"command": SHELL}),
)
QWEN: tuple[Step, ...] = (
    ("read_file", {"file_path": "/workspace/calc.py"}),
    ("edit", {"file_path": "/workspace/calc.py", "old_string": "a - b", "new_string": "a + b"}),
    ("write_file", {"file_path": "/workspace/notes.md", "content": "fixed\n"}),
    ("run_shell_command", {"command": SHELL, "is_background": False}),
)
COPILOT: tuple[Step, ...] = (
    ("edit", {"path": "/workspace/calc.py", "old_str": "a - b", "new_str": "a + b"}),
    ("create", {"path": "/workspace/notes.md", "file_text": "fixed\n"}),
    ("bash", {"command": SHELL, "description": "make a file, run the tests"}),
)
BRING = ("--env", "COPILOT_PROVIDER_BASE_URL=https://api.openai.com/v1")
GOOSE: tuple[Step, ...] = (
    ("edit", {"path": "/workspace/calc.py", "before": "a - b", "after": "a + b"}),
    ("write", {"path": "/workspace/notes.md", "content": "fixed\n"}),
    ("shell", {"command": SHELL}),
)


@pytest.mark.parametrize(
    ("command", "model", "steps", "flags"),
    [
        (("claude",), "claude-opus-4-8", (READ, EDIT, WRITE, BASH), ()),
        (("codex",), "gpt-5", (("exec_command", {"cmd": PATCH}), ("exec_command", {"cmd": SHELL})), ()),
        (("aider", *AIDER), "openai/gpt-4o", (), ()),
        (("gemini",), "gemini-2.5-pro", GEMINI, ()),
        (("opencode",), "anthropic/claude-sonnet-4-5", OPENCODE, ()),
        (("goose",), "gpt-4o", GOOSE, ("--env", "GOOSE_PROVIDER=openai", "--max-turns", "20")),
        (("pi",), "anthropic/claude-sonnet-4-5", PI, ()),
        (("qwen",), "qwen3-coder-plus", QWEN, ("--max-turns", "20")),
        (("copilot",), "gpt-5", COPILOT, BRING),
    ],
    ids=("claude", "codex", "aider", "gemini", "opencode", "goose", "pi", "qwen", "copilot"),
)
def test_by_itself(
    project: Stage, internet: Internet, command: tuple[str, ...], model: str, steps: tuple[Step, ...],
    flags: tuple[str, ...],
) -> None:  # fmt: skip
    """As users wrap it: what it needs its preset says, and the key is in their environment."""
    _works_by_itself(project, internet, command, model, steps, flags)


def test_claude_code_with_the_token_of_a_subscription(
    project: Stage, internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `claude setup-token` gives, in place of a key."""
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", VALUE)
    _works_by_itself(project, internet, ("claude",), "claude-opus-4-8", (READ, EDIT, WRITE, BASH), ())
    sent = [{name.lower(): value for name, value in headers.items()} for headers, body in internet.asked if body]
    assert {one.get("authorization") for one in sent} == {f"Bearer {VALUE}"}


def test_copilot_with_a_token_of_github(project: Stage, internet: Internet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which it looks at before it sends it, to GitHub and to the host that GitHub names."""
    monkeypatch.setenv("COPILOT_GITHUB_TOKEN", VALUE)
    monkeypatch.delenv("COPILOT_PROVIDER_API_KEY")
    limits = {"max_context_window_tokens": 128_000, "max_prompt_tokens": 100_000, "max_output_tokens": 16_000}
    supports = {"tool_calls": True, "streaming": True}
    can = {"type": "chat", "family": "gpt-5", "tokenizer": "o200k_base", "limits": limits, "supports": supports}
    model = {"id": "gpt-5", "name": "gpt-5", "version": "gpt-5", "vendor": "openai", "model_picker_enabled": True,
             "policy": {"state": "enabled"}, "capabilities": can,
             "supported_endpoints": ["/chat/completions"]}  # fmt: skip
    user = {"login": "me", "copilot_plan": "individual", "chat_enabled": True}
    internet.pages = {"/copilot_internal/user": {**user, "endpoints": {"api": f"https://{COPILOTS}"}},
                      "/models": {"data": [model]}, "/user": {"login": "me", "id": 1}}  # fmt: skip
    _works_by_itself(project, internet, ("copilot",), "gpt-5", COPILOT, ())
    assert {"api.github.com", COPILOTS} <= set(internet.reached)


def _works_by_itself(
    project: Stage, internet: Internet, command: tuple[str, ...], model: str, steps: tuple[Step, ...],
    flags: tuple[str, ...],
) -> None:  # fmt: skip
    before = project.tree()
    internet.steps = steps
    if not steps:
        internet.words = BLOCKS
    told = ("--folder", ".", "--timeout", "200", "-o", f"ca={internet.certificate}", "-m", model, "-p", "mend add")
    ended = project.call("wrap", *told, *flags, "--", *command, folder=project.demo)
    assert ended.status == 0, ended.err
    asked = [(headers, body) for headers, body in internet.asked if body]
    assert asked
    assert all(VALUE in str(headers) for headers, _ in asked), "the real key reaches the server"
    name = model.rpartition("/")[2]
    assert [one for one in asked if name in (one[1].get("model") or one[0][":path"])], "the model is the user's"
    assert VALUE not in ended.out + ended.err
    assert project.tree() == before
    _review_apply_undo(project, before)


@pytest.mark.parametrize(
    ("program", "model", "steps", "flags"),
    [
        ("claude", "claude-opus-4-8", (READ, EDIT), ()),
        ("codex", "gpt-5", (("exec_command", {"cmd": PATCH}),), ()),
        ("gemini", "gemini-2.5-pro", GEMINI[:1], ()),
        ("opencode", "anthropic/claude-sonnet-4-5", OPENCODE[:1], ()),
        ("goose", "gpt-4o", GOOSE[:1], ("--env", "GOOSE_PROVIDER=openai")),
        ("pi", "openai/gpt-4o", PI[:1], ()),
        ("qwen", "qwen3-coder-plus", QWEN[:2], ()),
        ("copilot", "gpt-5", COPILOT[:1], BRING),
    ],
    ids=("claude", "codex", "gemini", "opencode", "goose", "pi", "qwen", "copilot"),
)
def test_it_is_told_that_the_check_fails_and_goes_on_with_its_conversation(
    project: Stage, internet: Internet, program: str, model: str, steps: tuple[Step, ...], flags: tuple[str, ...]
) -> None:
    internet.steps, internet.waits_for = steps, "does not pass"
    told = ("--folder", ".", "--timeout", "200", "-o", f"ca={internet.certificate}", "-m", model, "-p", "mend add")
    check = ("--check", "grep -q 'a + b' calc.py", "--apply")
    ended = project.call("wrap", *told, *check, *flags, "--", program, folder=project.demo)
    assert ended.status == 0, ended.err
    events = project.call("runs", "show", "last", "--json").events
    assert [one["passed"] for one in events if one["type"] == "check_finished"] == [False, True]
    assert "mend add" not in str([one for one in events if one["type"] == "message_injected"])
    later = [text for _, body in internet.asked if internet.waits_for in (text := json.dumps(body))]
    assert later
    assert all("mend add" in text for text in later), "it knows what it was told before"


def _review_apply_undo(project: Stage, before: dict[str, bytes]) -> None:
    assert "+    return a + b" in project.call("diff", folder=project.demo).out
    assert project.call("apply", "--flagged", folder=project.demo).status == 0  # aider reads its history again
    _is_done(project)
    assert project.call("undo", folder=project.demo).status == 0
    assert project.tree() == before


def _is_done(project: Stage) -> None:
    after = project.tree()
    assert after["calc.py"] == b"def add(a, b):\n    return a + b\n"
    assert (after["notes.md"], after["made.txt"], after["tested.txt"]) == (b"fixed\n", b"by-the-shell\n", b"OK\n")
    assert after["hunted.txt"] == b"hunted\n"
    assert VALUE not in project.call("runs", "show", "last", "--json").out


def _on_a_terminal(project: Stage, screen: Screen, question: Sequence[tuple[str, str]], leave: str) -> None:
    """A task typed, what it asks answered, and what it did reviewed, applied and undone."""
    before = project.tree()
    screen.type("mend add")
    screen.until("mend add")
    screen.type("\r")
    for seen, keys in question:
        screen.until(seen)
        assert project.tree() == before
        time.sleep(1)  # a key that comes while a dialog is being drawn is dropped
        screen.type(keys)
    screen.until(DONE)
    screen.type(leave)
    screen.until(leave)
    screen.type("\r")
    screen.until("5 files changed", "Apply to")
    screen.type("y\r")
    assert screen.status() == 0
    _is_done(project)
    assert project.call("undo", folder=project.demo).status == 0
    assert project.tree() == before


def test_claude_code_on_a_terminal(project: Stage, tmp_path: Path) -> None:
    """In a home that was set up before, at an address of the user's own. It asks before it edits, and is answered."""
    home = project.home / ".local" / "share" / "stockade-homes" / "work"
    home.mkdir(parents=True)
    sentinel = parse_credential("ANTHROPIC_API_KEY@x").sentinel
    known = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [sentinel[-20:]], "rejected": []},
        "projects": {"/workspace": {"hasTrustDialogAccepted": True}},
    }
    (home / ".claude.json").write_text(json.dumps(known))
    with Player((READ, EDIT, WRITE, BASH), DONE) as player:
        credential = f"ANTHROPIC_API_KEY@localhost:{player.port}:x-api-key"
        told = ["wrap", "--folder", ".", "--home", "work", "--credential", credential, "--"]
        told += ["claude", "--allowedTools", "Bash", "--permission-mode", "default"]
        shown = Screen(tmp_path, told, project.demo, project.environment(), PATIENCE_S)
        try:
            shown.until("Claude Code", "? for shortcuts")
            asked = [("Do you want to make this edit to calc.py?", "2")]  # and all further ones
            _on_a_terminal(project, shown, asked, "/exit")
        finally:
            shown.close()


def test_codex_on_a_terminal(project: Stage, internet: Internet, tmp_path: Path) -> None:
    """It is new here: told at the start that the key is the one of the environment, where that is worth nothing."""
    internet.steps = (("exec_command", {"cmd": PATCH}), ("exec_command", {"cmd": SHELL, **ASKS}))
    told = ["wrap", "--folder", ".", "-o", f"ca={internet.certificate}", "-m", "gpt-5", "--", "codex", *READ_ONLY]
    shown = Screen(tmp_path, told, project.demo, project.environment(), PATIENCE_S)
    try:
        shown.until("Sign in another way")
        shown.type("3")
        shown.until("Use an OpenAI API key")
        shown.type("\r")
        shown.until("Detected OPENAI_API_KEY")
        for _ in range(60):  # it drops a key that comes too soon after another
            if "Ask Codex to do anything" in shown.text:
                break
            shown.type("\r")
            time.sleep(1)
        shown.until("gpt-5 default")
        asked = [("Would you like to make the following edits?", "y"), ("Would you like to run the following", "y")]
        _on_a_terminal(project, shown, asked, "/quit")
    finally:
        shown.close()
    sent = [headers for headers, body in internet.asked if body]
    assert sent
    assert all(VALUE in str(headers) for headers in sent)
