"""Ctrl-C at any moment, and death without warning: the record is closed or readable, and nothing is left behind."""

import os
import signal
import subprocess

import pytest

from stockade.testing import say
from tests.cli.conftest import COUNT, DONE, PATIENCE_S, Stage, descendants, gone, interrupt, until_event, watched

SLEEP = say("shell", command="echo begun > begun.txt; sleep 300")
THINK = {"content": DONE, "delay_s": 300}
IGNORE = say("shell", command="trap '' INT TERM HUP; sleep 300 & wait; sleep 300")


def started(stage: Stage, *answers: object) -> "subprocess.Popen[bytes]":
    model = stage.script(*answers)  # type: ignore[arg-type]
    return stage.start("run", "count", "--folder", str(stage.demo), "--model", model, "--json")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("answers", "moment"),
    [
        ((THINK,), "run_started"),
        ((THINK,), "sandbox_started"),
        ((SLEEP, DONE), "action_started"),
        ((IGNORE, DONE), "action_started"),
        ((COUNT, THINK), "action_finished"),
    ],
)
def test_ctrl_c_closes_the_record_and_leaves_nothing(
    stage: Stage, answers: tuple[object, ...], moment: str, number: int
) -> None:
    if number != signal.SIGINT and moment != "action_started":
        answers, moment = (SLEEP, DONE), "action_started"
    before = stage.tree()
    process = started(stage, *answers)
    until_event(process, moment)
    below = watched(descendants(process.pid))
    interrupt(process, number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert err.decode().splitlines()[-2] == "stockade: interrupted: the run is closed and on record"
    assert err.decode().splitlines()[-1].startswith("hint: to go on: stockade runs resume ")
    assert gone(below)
    assert stage.tree() == before
    last = stage.call("runs", "show", "--json").events[-1]
    assert (last["type"], last["status"], last["reason"]) == ("run_finished", "stopped", "user")
    assert ("Not applied" in err.decode()) == bool(last["changes"])
    if not last["changes"]:
        assert stage.left_behind() == []


def test_a_second_ctrl_c_quits_at_once(stage: Stage) -> None:
    process = started(stage, IGNORE, DONE)
    until_event(process, "action_started")
    below = watched([process.pid, *descendants(process.pid)])
    interrupt(process)
    interrupt(process)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert gone(below)
    assert "count" in stage.call("runs", "list").out


def test_kill_9_leaves_no_process_and_an_intact_record(stage: Stage) -> None:
    before = stage.tree()
    process = started(stage, SLEEP, DONE)
    until_event(process, "action_started")
    below = watched(descendants(process.pid))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    assert gone(below)
    assert stage.tree() == before
    assert "interrupted" in stage.call("runs", "list").out
    shown = stage.call("runs", "show")
    assert shown.out.endswith("[interrupted: the record ends here]\n")
    assert "sleep 300" in shown.out
    discarded = stage.call("runs", "discard", "last")
    assert discarded.status in (0, 2)
    assert stage.left_behind() == []
    assert stage.tree() == before


def test_ctrl_c_in_sandbox_exec_and_shell(stage: Stage) -> None:
    process = stage.start("sandbox", "exec", "--folder", str(stage.demo), "--", "sh", "-c", "touch x; sleep 300")
    while not (below := descendants(process.pid)) or len(below) < 4:
        assert process.poll() is None
    pidfds = watched(below)
    interrupt(process)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert gone(pidfds)
    assert stage.left_behind() == []
