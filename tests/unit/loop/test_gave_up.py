"""A bot that says itself that its task is not done: asked once to do it, and then taken at its word."""

import pytest

from stockade.core.budget import Budget
from stockade.core.events import Nudged
from stockade.loop.gave_up import DETAIL, says_not_done
from stockade.testing import MemorySandbox, say
from tests.unit.loop.helpers import Bench, started

NOT_DONE = "The task is not done. The file is not in gzip format."


@pytest.mark.parametrize(
    "answer",
    [
        NOT_DONE,
        "The task is not yet complete: b.txt is missing.",
        "The task could not be completed, because there is no data.csv.",
        "The task cannot be done without a network.",
        "I wasn't told where. I could not finish the task.",
        "I am unable to complete this task.",
        "Failed to carry out your request: no such folder.",
        "Your task isn’t finished.",
        "The task remains unfinished.",
    ],
)
def test_what_says_so(answer: str) -> None:
    assert says_not_done(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "The task is done.",
        "Done. I could not find any other TODO.",
        "No line was found.",
        "The test is not done in a loop, but once.",
        "All tasks are done; nothing is incomplete.",
        "The task is complete. The old file is not needed any more.",
        f"{'It is done. ' * 200}The task is not done.",
    ],
)
def test_what_does_not(answer: str) -> None:
    assert not says_not_done(answer)


@pytest.mark.anyio
async def test_it_is_asked_once_and_then_the_run_has_given_up() -> None:
    bench = Bench([say("finish", answer=NOT_DONE)] * 9)
    finished = await bench.run(started("gzip it"))
    assert (finished.status, finished.reason, finished.detail) == ("stopped", "gave_up", DETAIL)
    assert finished.answer == NOT_DONE
    nudges = [event for event in bench.shown if isinstance(event, Nudged) and event.why == "gave_up"]
    assert len(nudges) == 1
    assert "Task: gzip it" in nudges[0].text
    assert nudges[0].text in bench.script.requests[-1].messages[-1].content


@pytest.mark.anyio
async def test_it_goes_on_where_it_can() -> None:
    bench = Bench([say("finish", answer=NOT_DONE), say("shell", command="gzip a"), say("finish", answer="Done.")])
    finished = await bench.run(started())
    assert (finished.status, finished.reason, finished.turns) == ("done", "finish", 3)


@pytest.mark.anyio
async def test_a_check_that_passes_knows_better() -> None:
    bench = Bench([say("finish", answer=NOT_DONE)] * 9)
    finished = await bench.run(started(check="test -f x"))
    assert (finished.status, finished.verified) == ("done", True)


@pytest.mark.anyio
async def test_without_advice_or_turns_it_is_taken_at_its_word_at_once() -> None:
    for first in (started().model_copy(update={"advice": False}), started(budget=Budget(max_turns=1))):
        bench = Bench([say("finish", answer=NOT_DONE)] * 9, MemorySandbox())
        finished = await bench.run(first)
        assert (finished.status, finished.reason, finished.turns) == ("stopped", "gave_up", 1)
