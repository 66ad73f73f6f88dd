"""A bot that ends again and again while something is plainly not done."""

import pytest

from stockade.core.budget import Budget
from stockade.core.changes import Change
from stockade.core.events import TurnsForgotten
from stockade.testing import ScriptedModel, say
from tests.unit.loop.advice.test_review import bench
from tests.unit.loop.helpers import Bench, started

pytestmark = pytest.mark.anyio
TASK = "Write the sum of a.csv to sum.txt"
BLANK = (Change(path="sum.txt", kind="added", size=0),)
FILES = {"/workspace/sum.txt": b""}


def ends(count: int) -> list[str]:
    return [say("finish", answer=f"end {number}") for number in range(1, count + 1)]


def made(*answers: str) -> Bench:
    found = bench(*BLANK, files=FILES, printed={f"wrong {number}": "" for number in range(9)})
    found.script = ScriptedModel(answers)
    object.__setattr__(found.parts, "model", found.script)
    return found


def forgotten(run: Bench) -> list[TurnsForgotten]:
    return [event for event in run.shown if isinstance(event, TurnsForgotten)]


async def test_it_begins_anew_without_what_it_has_tried_and_warmer() -> None:
    first, second, third = ends(3)
    run = made(say("shell", command="wrong 1"), first, second, third, say("shell", command="wrong 2"), *ends(4))
    await run.run(started(TASK))
    again = run.script.requests[4]
    said = " ".join(message.content for message in again.messages)
    assert "sum.txt holds nothing." in said
    assert "do it in another way" in said
    assert "wrong 1" not in said
    assert TASK in said
    assert (again.sampling.temperature or 0) > 0.3
    assert [event.anew for event in forgotten(run)] == [True, True]


async def test_it_ends_after_two_more_attempts() -> None:
    answers: list[str] = []
    for number in range(5):
        answers += [say("shell", command=f"wrong {number}"), *ends(3 if not number else 1)]
    run = made(*answers)
    finished = await run.run(started(TASK))
    assert (finished.status, finished.answer) == ("done", "end 1")
    assert len(forgotten(run)) == 2
    assert run.sandbox.ran.count("wrong 2") == 1
    assert "wrong 3" not in run.sandbox.ran


async def test_the_same_action_in_a_new_attempt_is_no_loop_yet() -> None:
    wrong = say("shell", command="wrong 1")
    run = made(wrong, *ends(1), wrong, *ends(2), wrong, *ends(4))
    await run.run(started(TASK))
    after = run.script.requests[6]
    assert "wrong 1" in str(after.messages[-2:])
    assert "shell" in str(after.schema_)


async def test_too_few_turns_are_left() -> None:
    run = made(say("shell", command="wrong 1"), *ends(3))
    finished = await run.run(started(TASK, budget=Budget(max_turns=6)))
    assert (finished.status, finished.answer, forgotten(run)) == ("done", "end 3", [])


@pytest.mark.parametrize("advice", [True, False])
async def test_what_is_there_is_accepted(advice: bool) -> None:
    run = bench(Change(path="sum.txt", kind="added", size=3), files={"/workspace/sum.txt": b"12\n"})
    finished = await run.run(started(TASK).model_copy(update={"advice": advice}))
    assert finished.status == "done"
    assert forgotten(run) == []


@pytest.mark.parametrize(("task", "again"), [("Indent a.json", 2), ("What is in a.json?", 0), ("Tell me the sum", 0)])
async def test_a_folder_that_has_not_changed_is_not_done(task: str, again: int) -> None:
    looks = [say("shell", command="wrong 1"), say("shell", command="wrong 2"), say("shell", command="wrong 3")]
    run = bench(printed={f"wrong {number}": "x\n" for number in range(9)})
    run.script = ScriptedModel([looks[0], *ends(2), looks[1], *ends(1), looks[2], *ends(3)])
    object.__setattr__(run.parts, "model", run.script)
    finished = await run.run(started(task))
    assert finished.status == "done"
    assert len(forgotten(run)) == again
