"""However a Planner's run ends, what it did is on record, and it goes on from there (AG-20 to AG-22)."""

import os
import signal
from collections.abc import Sequence

import pytest

from tests.cli.conftest import PATIENCE_S, Stage, descendants, gone, interrupt, until_event, watched
from tests.cli.test_plan import ASKED, COUNT, DONE, events, flags_of, plans
from tests.cli.test_terminal import QUESTION as DECIDE
from tests.cli.test_terminal import Terminal

AGAIN = plans("cat count.txt > again.txt")


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def goes_on(stage: Stage, *flags: str) -> None:
    """Who it is and what it has done is there; the next action is asked about, and done with the files of the first."""
    started = stage.call("runs", "show", "--json").events[0]
    assert started["options"]["profile"]["name"] == "Counter"
    assert "You are Counter" in started["system_prompt"]
    stage.script(COUNT, AGAIN, DONE, DONE)
    again = Terminal(stage, "runs", "resume", "last", *flags)
    again.until(ASKED)
    assert b"again.txt" in again.seen
    again.type(b"y\n")
    again.until(DECIDE)
    again.type(b"y\n")
    assert again.status() == 0
    assert (stage.demo / "again.txt").read_text() == "3\n"
    commands = [event["action"]["action"].get("command") for event in events(stage, "action_started")]
    assert commands == ["wc -l < data.csv > count.txt", "cat count.txt > again.txt"]


@pytest.mark.parametrize(
    ("answers", "flags", "reason", "more"),
    [
        ((COUNT,), (), "model", ()),
        ((COUNT, AGAIN), ("--max-turns", "1"), "turns", ("--max-turns", "20")),
    ],
)
def test_ends_of_its_own(
    stage: Stage, answers: Sequence[str], flags: tuple[str, ...], reason: str, more: tuple[str, ...]
) -> None:
    ended = stage.call("plan", "count", *flags_of(stage, answers), "--continuous", "--json", *flags)
    assert (ended.result["reason"], ended.result["status"] in ("stopped", "failed")) == (reason, True), ended.err
    goes_on(stage, *more)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_ends_from_outside(stage: Stage, number: int) -> None:
    slow = {"content": DONE, "delay_s": 300}
    process = stage.start("plan", "count", *flags_of(stage, [COUNT, slow]), "--continuous", "--json")
    until_event(process, "action_finished")
    below = watched(descendants(process.pid))
    if number == signal.SIGKILL:
        os.kill(process.pid, number)
    else:
        interrupt(process, number)
    process.communicate(timeout=PATIENCE_S)
    assert gone(below)
    ends = [event["reason"] for event in events(stage, "run_finished")]
    assert ends == ([] if number == signal.SIGKILL else ["user"])
    goes_on(stage)
