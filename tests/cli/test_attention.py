"""The real command calls the user back: the bell on a terminal after 30 s, and the command of `--notify`."""

import json
from pathlib import Path
from typing import Any

import pytest

from stockade.testing import say
from tests.cli.conftest import Stage
from tests.cli.test_terminal import Terminal

LONG = say("shell", command="sleep 31")
DONE = say("finish", answer="$(touch owned) three")


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def told(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(stage: Stage, *answers: str, **environment: str) -> Terminal:
    words = ("--folder", str(stage.demo), "--model", stage.script(*answers), "--tool", "ask_user")
    file = stage.tmp_path / "told"
    notify = f"flock {file}.lock sh -c 'cat >> {file}; echo >> {file}'"  # two may end at once
    return Terminal(stage, "run", "count", *words, "--notify", notify, **environment)


def test_a_long_run_pops_up_where_the_terminal_can_and_tells_the_command(stage: Stage) -> None:
    """Both at once: they wait, and compute nothing."""
    begun = [run(stage, LONG, DONE, TERM=term) for term in ("xterm-256color", "linux")]
    seen = []
    for terminal in begun:
        assert terminal.status() == 0
        seen.append(terminal.seen)
    assert seen[0].count(b"\x1b]9;stockade: the run has ended: done\x1b\\\a") == 1
    assert seen[1].count(b"\a") == 1
    assert b"\x1b]9" not in seen[1]
    for facts in told(stage.tmp_path / "told"):
        assert (facts["event"], facts["status"], facts["task"]) == ("ended", "done", "count")
        assert facts["answer"] == "$(touch owned) three"
        assert facts["seconds"] > 30
        assert facts["folder"] == str(stage.demo)
    assert len(told(stage.tmp_path / "told")) == 2


def test_a_question_after_long_work_rings_and_what_follows_at_once_does_not(stage: Stage) -> None:
    terminal = run(stage, LONG, say("ask_user", question="Which?"), DONE)
    terminal.until(b"your answer")
    assert terminal.seen.count(b"\x1b]9;stockade: the bot asks\x1b\\\a") == 1
    terminal.type(b"that one\r")
    assert terminal.status() == 0
    assert b"\a" not in terminal.seen
    heard = {(one["event"], one.get("action", {}).get("question")) for one in told(stage.tmp_path / "told")}
    assert heard == {("asks", "Which?"), ("ended", None)}  # each by a program of its own, the first may be the slower


def test_a_short_one_is_quiet_and_still_tells(stage: Stage) -> None:
    terminal = run(stage, DONE)
    assert terminal.status() == 0
    assert b"\a" not in terminal.seen
    assert [one["event"] for one in told(stage.tmp_path / "told")] == ["ended"]


def test_in_a_pipe_nothing_rings_and_a_command_that_fails_is_named(stage: Stage) -> None:
    ended = stage.run(DONE, flags=("--notify", "exit 7"))
    assert (ended.status, ended.out) == (0, "$(touch owned) three\n")
    assert "stockade: --notify failed: status 7\n" in ended.err
    assert "\a" not in ended.err
