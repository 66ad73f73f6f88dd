"""Two models for one run: who is asked what, and what the fast one's failing does."""

import pytest

from stockade.core.budget import Budget
from stockade.core.errors import ModelUnavailable
from stockade.core.events import HistoryCompacted
from stockade.core.messages import Message, ModelAnswer, ModelRequest, Usage
from stockade.core.ports import OnText
from stockade.models.composed import MAX_SHORTENED_CHARS, SmartAndFast
from stockade.testing import MemorySandbox, ScriptedModel, say
from stockade_sandbox.results import Chunk, CommandOutput
from tests.unit.loop.helpers import Bench, started

pytestmark = pytest.mark.anyio

WINDOW = 4096


def large(command: str) -> CommandOutput:
    return CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", (f"{command}: 0123456789abcdef\n" * 400).encode()),))


class Entered(ScriptedModel):
    """Counts who is in it."""

    inside = 0
    fails = False

    async def __aenter__(self) -> "Entered":
        if self.fails:
            raise ModelUnavailable("no server")
        self.inside += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.inside -= 1


async def test_both_are_entered_and_left() -> None:
    smart, fast = Entered(["x"], WINDOW), Entered([])
    async with SmartAndFast(smart, fast) as model:
        assert (smart.inside, fast.inside) == (1, 1)
        assert model.info is smart.info
        request = ModelRequest(messages=(Message(role="user", content="?"),))
        assert (await model.ask(request)).content == "x"
        assert await model.count(request) is None
    assert (smart.inside, fast.inside) == (0, 0)
    assert fast.requests == []
    fast.fails = True
    with pytest.raises(ModelUnavailable):
        await SmartAndFast(smart, fast).__aenter__()
    assert smart.inside == 0


async def test_what_is_folded_is_in_the_words_of_the_fast_model() -> None:
    answers = [say("shell", command=f"cat log{n}") for n in range(40)]
    smart = ScriptedModel([*answers, say("finish", answer="x")], WINDOW)
    fast = ScriptedModel([f"summary {n}: log has 400 lines" for n in range(40)])
    bench = Bench([], MemorySandbox(on_command=large), model=SmartAndFast(smart, fast))
    finished = await bench.run(started(budget=Budget(max_turns=0)))
    assert finished.status == "done", finished.detail
    folded = [event for event in bench.shown if isinstance(event, HistoryCompacted)]
    assert folded
    assert folded[0].summary == "summary 0: log has 400 lines"
    assert "log0" in fast.requests[0].messages[1].content
    assert "summary 0" in fast.requests[1].messages[1].content
    assert any("summary 0" in message.content for request in smart.requests for message in request.messages)
    assert all(request.messages[1].content.startswith("do it") for request in smart.requests)
    assert finished.usage.completion_tokens > sum(len(answer) // 4 for answer in answers)


@pytest.mark.parametrize("answer", [ModelUnavailable("gone"), "  "])
async def test_without_its_words_folding_is_as_ever(answer: str | ModelUnavailable) -> None:
    answers = [say("shell", command=f"cat log{n}") for n in range(40)]
    smart = ScriptedModel([*answers, say("finish", answer="x")], WINDOW)
    bench = Bench([], MemorySandbox(on_command=large), model=SmartAndFast(smart, ScriptedModel([answer] * 40)))
    finished = await bench.run(started(budget=Budget(max_turns=0)))
    assert finished.status == "done", finished.detail
    assert not any(event.summary for event in bench.shown if isinstance(event, HistoryCompacted))


async def test_what_is_shortened_is_bounded() -> None:
    fast = ScriptedModel(["short"])
    await SmartAndFast(ScriptedModel([]), fast).shorten("x" * 10 * MAX_SHORTENED_CHARS)
    assert len(fast.requests[0].messages[1].content) < MAX_SHORTENED_CHARS + 100


async def test_a_summary_that_says_one_thing_over_and_over_is_none_and_counts() -> None:
    class Again(ScriptedModel):
        async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
            return ModelAnswer(content="a log. " * 200, finish_reason="repeats", usage=Usage(completion_tokens=400))

    short = await SmartAndFast(ScriptedModel([]), Again([])).shorten("a long story")
    assert short is not None
    assert (short.content, short.usage.completion_tokens) == ("", 400)
