"""Runs of the coder killed for real, at any instant; resumed until they are done.

In the end the record must hold each answer of the script once, in order, and nothing that was acknowledged is lost; the
program is right, and the folder has it. A failing one names its seed.
"""

import random
import signal

import pytest

from tests.cli.conftest import PATIENCE_S, Stage, interrupt, until_event
from tests.faults.test_resume_kills import killed, on_record, resumed

KILLS = 2
ADD = "def add(a, b):\n    return a + b\n"
PROGRAMS = [
    "def add(a, b):\n    return a - b\n",
    "def add(a, b):\n    return a * b\n",
    "def add(a, b):\n    return nothing(a, b)\n",
    "def add(a, b):\n    return a + b + 1\n",
    "def add(a, b):\n    return b + a\n",
    ADD,
]
CHECK = "grep -q 'a + b$' solution.py"
"""The last but one passes the coder's own checks, and not this one."""
ANSWERS = [f"### Requirements\nnone\n### Code\n```python\n{code}```" for code in PROGRAMS]


@pytest.mark.parametrize("seed", range(4))
def test_killed_runs_of_the_coder_go_on_to_their_end(stage: Stage, seed: int) -> None:
    chance, where = random.Random(seed), str(stage.state / "runs.db")
    flags = ("--model", stage.script(*ANSWERS), "--no-input", "--bot", "coder", "--check", CHECK)
    folder = ("--folder", str(stage.demo))
    acknowledged = killed(stage, chance, "run", "Write add(a, b). add(1, 2) == 3", *flags, *folder)
    for _ in range(KILLS - 1):
        if on_record(stage, where):
            acknowledged += killed(stage, chance, "runs", "resume", "last", "--no-input")
    if not on_record(stage, where):
        assert not acknowledged or on_record(stage, where, acknowledged[0]["run_id"]) == acknowledged, f"seed {seed}"
        return
    ended = resumed(stage)
    assert ended.status in (0, 2), f"seed {seed}: {ended.err}"
    events = on_record(stage, where)
    assert not [event for event in acknowledged if event not in events], f"seed {seed}: acknowledged events are lost"
    answered = [event["answer"]["content"] for event in events if event["type"] == "model_answered"]
    assert answered[: len(ANSWERS)] == ANSWERS, f"seed {seed}"
    assert (events[-1]["type"], events[-1]["answer"]) == ("run_finished", ADD), f"seed {seed}: {events[-1]}"
    assert stage.call("runs", "apply", "last").status == 0
    assert (stage.demo / "solution.py").read_text() == ADD


def test_after_ctrl_c_it_is_said_how_to_go_on_and_it_does(stage: Stage) -> None:
    script = stage.script(ANSWERS[0], {"content": ANSWERS[-1], "delay_s": 300})
    process = stage.start("code", "add(1, 2) == 3", "--model", script, "--json")
    until_event(process, "message_injected")
    interrupt(process, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    last = err.decode().splitlines()[-1]
    assert last.startswith("hint: to go on: stockade runs resume ")
    run_id = last.rpartition(" ")[2]
    stage.script(*ANSWERS[:1], ANSWERS[-1])
    ended = stage.call("runs", "resume", run_id, "--json")
    assert ended.status == 0, ended.err
    found = ended.result["code"]
    assert (found["status"], found["code"], len(found["attempts"])) == ("success", ADD, 2)
    assert [event["turn"] for event in ended.events[:-1] if event["type"] == "model_answered"] == [2]


def test_a_coder_goes_on_with_a_check_of_the_users(stage: Stage) -> None:
    model = stage.script(ANSWERS[0])  # the second question finds no answer: it failed
    assert stage.call("code", "add(1, 2) == 3", "--model", model, "--folder", str(stage.demo)).status == 5
    stage.script(ANSWERS[0], *[ANSWERS[-1]] * 7)
    ended = stage.call("runs", "resume", "last", "--check", "grep -q add solution.py && false", "--json")
    found = ended.result["status"], ended.result["reason"], ended.result["verified"]
    assert (ended.status, *found) == (1, "done", "check_failed", False), ended.err
