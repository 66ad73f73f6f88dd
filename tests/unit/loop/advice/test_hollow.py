"""A question that is answered with "done" is asked once more; anything that may be an answer is taken."""

import pytest

from stockade.core.events import Nudged
from stockade.loop.advice.hollow import is_hollow
from stockade.testing import MemorySandbox, say
from tests.unit.loop.helpers import Bench, started


@pytest.mark.parametrize(
    "answer",
    ["", "  ", "Done.", "The task is done.", "Task is done", "I have read all the files. The task is complete.", "exit",
     "The task is done. There are no more files to process.", "finish the shell session"],
)  # fmt: skip
def test_what_says_nothing(answer: str) -> None:
    assert is_hollow(answer)


@pytest.mark.parametrize(
    "answer",
    ["teapot", "12", "yes", "no", "none", "ok", "It is in done.txt", "All tests are done, 3 failed", "read, write",
     "The work was done by Ann", "done " * 200],
)  # fmt: skip
def test_what_may_be_an_answer(answer: str) -> None:
    assert not is_hollow(answer)


def _nudges(bench: Bench) -> list[Nudged]:
    return [event for event in bench.shown if isinstance(event, Nudged) and event.why == "hollow"]


@pytest.mark.anyio
@pytest.mark.parametrize("task", ["How many lines has a.txt?", "Read the files and answer with the word in the last."])
async def test_a_question_is_asked_once_more(task: str) -> None:
    bench = Bench([say("finish", answer="Task is done."), say("finish", answer="12")])
    finished = await bench.run(started(task))
    assert (finished.status, finished.answer, finished.turns) == ("done", "12", 2)
    assert [f"Task: {task}" in nudge.text for nudge in _nudges(bench)] == [True]


@pytest.mark.anyio
async def test_then_it_is_taken_at_its_word() -> None:
    bench = Bench([say("finish", answer="Done.")] * 3)
    finished = await bench.run(started("What is in a.txt?"))
    assert (finished.status, finished.answer, finished.turns) == ("done", "Done.", 2)


@pytest.mark.anyio
@pytest.mark.parametrize("task", ["Sort a.txt into b.txt.", "Run the tests.", "Find all .log files and delete them."])
async def test_a_task_that_asks_for_no_words_is_done(task: str) -> None:
    bench = Bench([say("finish", answer="Done.")])
    assert (await bench.run(started(task))).turns == 1
    assert not _nudges(bench)


@pytest.mark.anyio
async def test_what_was_printed_last_is_before_its_eyes() -> None:
    answers = [say("shell", command="wc -l < a.txt"), say("finish", answer="Done."), say("finish", answer="12")]
    bench = Bench(answers, MemorySandbox({"wc -l < a.txt": "12\n"}))
    await bench.run(started("How many lines has a.txt?"))
    assert "The last command printed:\n12\n" in _nudges(bench)[0].text


@pytest.mark.anyio
@pytest.mark.parametrize(("task", "answer"), [("How many?", "It printed 12."), ("Count into n.txt.", "Done.")])
async def test_what_it_thought_stands_for_an_answer_that_says_nothing(task: str, answer: str) -> None:
    bench = Bench([say("finish", thought="It printed 12.", answer="Done.")] * 2)
    assert (await bench.run(started(task))).answer == answer


@pytest.mark.anyio
async def test_a_thought_that_says_nothing_either_stands_for_nothing() -> None:
    bench = Bench([say("finish", thought="The task is done.", answer="Done.")] * 2)
    assert (await bench.run(started("How many?"))).answer == "Done."


@pytest.mark.anyio
async def test_what_was_printed_stands_for_both() -> None:
    done = say("finish", thought="The task is done. Output is correct.", answer="Done.")
    bench = Bench([say("shell", command="wc -l a"), done, done], MemorySandbox({"wc -l a": "5 a\n"}))
    assert (await bench.run(started("How many lines has a?"))).answer == "Done.\nThe last command printed:\n5 a"


@pytest.mark.anyio
async def test_a_bot_that_is_asked_for_the_answer_is_not_told_in_the_same_turn_that_it_goes_in_circles() -> None:
    look = say("shell", command="wc -l a")
    bench = Bench([look, look, say("finish", answer="Done."), say("finish", answer="5")],
                  MemorySandbox({"wc -l a": "5 a\n"}))  # fmt: skip
    assert (await bench.run(started("How many lines has a?"))).answer == "5"
    assert [event.why for event in bench.shown if isinstance(event, Nudged)] == ["loop", "hollow"]
