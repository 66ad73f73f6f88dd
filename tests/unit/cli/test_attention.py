"""The bell and the command that call the user back."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stockade.cli.ui.attention import LONG_S, Attention
from stockade.core.actions import AskUser, Step
from stockade.core.budget import Budget
from stockade.core.events import ActionStarted, RunFinished, RunStarted
from stockade_sandbox.policy import Policy

OSC = "\x1b]9;stockade: the run has ended: done\x1b\\\a"
STARTED = RunStarted(
    at=0.0, version="0", run_id="r", task="t", bot="b", model="m", answers="json", sandbox="s", policy=Policy(),
    budget=Budget(), system_prompt="",
)  # fmt: skip


def ended(at: float, answer: str = "") -> RunFinished:
    return RunFinished(at=at, status="done", reason="finish", turns=1, answer=answer)


def rung(seconds: float, term: str = "xterm-256color", *, terminal: bool = True) -> str:
    file = io.StringIO()
    attention = Attention(Console(file=file, force_terminal=terminal), environ={"TERM": term})
    attention.event(STARTED)
    attention.event(ended(seconds))
    attention.event(ended(seconds + LONG_S))  # the same end, told once more
    return file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "term", "terminal", "heard"),
    [
        (LONG_S + 1, "xterm-256color", True, OSC),
        (LONG_S + 1, "linux", True, "\a"),
        (LONG_S, "xterm", True, ""),
        (LONG_S + 1, "xterm", False, ""),
    ],
)
def test_the_bell_is_for_who_has_waited(seconds: float, term: str, *, terminal: bool, heard: str) -> None:
    assert rung(seconds, term, terminal=terminal) == heard


def test_not_on_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert rung(LONG_S + 1, "dumb") == ""


@pytest.mark.anyio
async def test_a_question_rings_and_patience_begins_anew() -> None:
    file = io.StringIO()
    attention = Attention(Console(file=file, force_terminal=True), environ={"TERM": "xterm"})
    attention.event(STARTED)  # very long ago

    async def typed(question: str, **_: Any) -> str:
        return question

    assert await attention.around(typed)("well? ") == "well? "
    assert file.getvalue() == "\x1b]9;stockade: the bot asks\x1b\\\a"
    await attention.around(typed)("well? ")
    assert file.getvalue().count("\a") == 1


def told(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_command_gets_json_and_never_words_of_the_bot_in_a_shell(tmp_path: Path) -> None:
    answer = f'"; touch {tmp_path}/owned; $(touch {tmp_path}/owned) `touch {tmp_path}/owned`'
    attention = Attention(None, f"cat > {tmp_path}/told")
    attention.event(STARTED)
    attention.event(ActionStarted(at=1.0, turn=1, step=0, action=Step(action=AskUser(question=answer))))
    attention.event(ended(2.0, answer))
    attention.close()
    facts = told(tmp_path / "told")
    assert (facts["event"], facts["run"], facts["status"], facts["answer"]) == ("ended", "r", "done", answer)
    assert not (tmp_path / "owned").exists()


@pytest.mark.anyio
async def test_the_command_is_told_what_is_asked(tmp_path: Path) -> None:
    async def typed(_question: str, **_: Any) -> str:
        return ""

    attention = Attention(None, f"cat > {tmp_path}/told")
    attention.event(STARTED)
    attention.event(ActionStarted(at=1.0, turn=1, step=0, action=Step(action=AskUser(question="Which?"))))
    await attention.around(typed)("your answer: ")
    attention.close()
    facts = told(tmp_path / "told")
    assert (facts["event"], facts["action"]) == ("asks", {"tool": "ask_user", "question": "Which?"})


@pytest.mark.parametrize(
    ("command", "why"),
    [("exit 7", "status 7"), ("exec sleep 1000", "it did not end within 0.2 s"), ("no-such-program", "status 127")],
)
def test_one_that_fails_or_hangs_is_said_at_the_end(
    command: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stockade.cli.ui.attention.COMMAND_S", 0.2 if "sleep" in command else 60)
    attention = Attention(None, command)
    attention.event(STARTED)
    attention.event(ended(1.0, "x" * 1_000_000))  # more than a pipe holds
    attention.close()
    assert capsys.readouterr().err == f"stockade: --notify failed: {why}\n"
