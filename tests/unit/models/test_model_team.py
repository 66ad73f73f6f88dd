"""Several models for one run: who is asked what, who goes on where one cannot be asked, and what is on record of it."""

import pytest

from stockade.core.budget import Budget
from stockade.core.errors import ContextExceeded, ModelOverloaded, ModelUnavailable
from stockade.core.events import HistoryCompacted, ModelAnswered, ModelStarted
from stockade.core.messages import Message, ModelAnswer, ModelRequest, Sampling, Usage
from stockade.core.ports import OnText
from stockade.models.composed import MAX_SHORTENED_CHARS, Member, ModelTeam
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
    async with ModelTeam(smart, fast=fast) as model:
        assert (smart.inside, fast.inside) == (1, 1)
        assert model.info is smart.info
        request = ModelRequest(messages=(Message(role="user", content="?"),))
        assert (await model.ask(request)).content == "x"
        assert await model.count(request) is None
    assert (smart.inside, fast.inside) == (0, 0)
    assert fast.requests == []
    fast.fails = True
    with pytest.raises(ModelUnavailable):
        await ModelTeam(smart, fast=fast).__aenter__()
    assert smart.inside == 0


async def test_what_is_folded_is_in_the_words_of_the_fast_model() -> None:
    answers = [say("shell", command=f"cat log{n}") for n in range(40)]
    smart = ScriptedModel([*answers, say("finish", answer="x")], WINDOW)
    fast = ScriptedModel([f"summary {n}: log has 400 lines" for n in range(40)])
    bench = Bench([], MemorySandbox(on_command=large), model=ModelTeam(smart, fast=fast))
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
    bench = Bench([], MemorySandbox(on_command=large), model=ModelTeam(smart, fast=ScriptedModel([answer] * 40)))
    finished = await bench.run(started(budget=Budget(max_turns=0)))
    assert finished.status == "done", finished.detail
    assert not any(event.summary for event in bench.shown if isinstance(event, HistoryCompacted))


async def test_what_is_shortened_is_bounded() -> None:
    fast = ScriptedModel(["short"])
    await ModelTeam(ScriptedModel([]), fast=fast).shorten("x" * 10 * MAX_SHORTENED_CHARS)
    assert len(fast.requests[0].messages[1].content) < MAX_SHORTENED_CHARS + 100


async def test_a_summary_that_says_one_thing_over_and_over_is_none_and_counts() -> None:
    class Again(ScriptedModel):
        async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
            return ModelAnswer(content="a log. " * 200, finish_reason="repeats", usage=Usage(completion_tokens=400))

    short = await ModelTeam(ScriptedModel([]), fast=Again([])).shorten("a long story")
    assert short is not None
    assert (short.content, short.usage.completion_tokens) == ("", 400)


ASKED = ModelRequest(messages=(Message(role="user", content="?"),))
STUCK = ASKED.model_copy(update={"sampling": Sampling(smart=True)})
BUSY = ModelOverloaded("b:1 is busy (429): slow down")


def member(name: str, model: Entered, made: list[str]) -> Member:
    async def make() -> Entered:
        made.append(name)
        return model

    return Member(name, make)


async def test_what_cannot_be_asked_is_left_for_the_next_to_the_end() -> None:
    made: list[str] = []
    own, second, third = Entered(["one", BUSY], WINDOW), Entered([]), Entered(["two", "three"])
    second.fails = True
    fallbacks = [member("b/second", second, made), member("c/third", third, made)]
    async with ModelTeam(own, "a/own", fallbacks=fallbacks) as team:
        first = await team.ask(ASKED)
        assert (first.content, first.by, first.why, made) == ("one", "", "", [])
        for word in ("two", "three"):
            answer = await team.ask(ASKED)
            assert (answer.content, answer.by) == (word, "c/third")
            assert answer.why == "a/own: b:1 is busy (429): slow down; b/second: no server"
        assert made == ["b/second", "c/third"]
        assert team.info is third.info
        with pytest.raises(ModelUnavailable, match=r"^a/own: b:1 is busy .*; b/second: no server; c/third: "):
            await team.ask(ASKED)
        assert (own.inside, third.inside) == (1, 1)
    assert (own.inside, second.inside, third.inside) == (0, 0, 0)


async def test_one_that_is_down_from_the_start() -> None:
    own = Entered([])
    own.fails = True
    async with ModelTeam(own, "a/own", fallbacks=[member("b/x", Entered(["yes"], WINDOW), [])]) as team:
        assert team.info.context_window == WINDOW
        answer = await team.ask(ASKED)
    assert (answer.content, answer.by, answer.why) == ("yes", "b/x", "a/own: no server")
    alone = ModelTeam(own, "a/own", fast=Entered([]))
    with pytest.raises(ModelUnavailable, match=r"^no server$"):
        await alone.__aenter__()


async def test_a_request_that_is_too_long_is_no_reason_to_leave() -> None:
    own, made = Entered([ContextExceeded("too long", 9, 8), "short"]), list[str]()
    async with ModelTeam(own, "a/own", fallbacks=[member("b/x", Entered(["x"]), made)]) as team:
        with pytest.raises(ContextExceeded):
            await team.ask(ASKED)
        assert ((await team.ask(ASKED)).content, made) == ("short", [])


async def test_the_stronger_one_is_asked_where_that_is_wanted_and_missed_once() -> None:
    made: list[str] = []
    smart = Entered(["clever", ModelUnavailable("gone"), "never"])
    async with ModelTeam(Entered(["plain"] * 3), "a/own", smart=member("s/mart", smart, made)) as team:
        assert ((await team.ask(ASKED)).content, made) == ("plain", [])
        answer = await team.ask(STUCK)
        assert (answer.content, answer.by, answer.why) == ("clever", "s/mart", "the run was stuck")
        assert [(await team.ask(STUCK)).content for _ in range(2)] == ["plain", "plain"]
    assert (made, smart.inside) == (["s/mart"], 0)


async def test_a_run_that_is_stuck_turns_to_the_stronger_one() -> None:
    """Three times the same; an answer without an action; what was asked of whom is on record."""
    same = say("shell", command="cat x")
    own = Entered([same, same, same, "no action", "never"], WINDOW)
    smart = Entered([say("shell", command="ls"), say("finish", answer="done")])
    team = ModelTeam(own, "a/own", smart=member("s/mart", smart, []))
    bench = Bench([], model=team)
    finished = await bench.run(started().model_copy(update={"options": {"smart_model": "s/mart"}}))
    assert (finished.status, finished.answer) == ("done", "done"), finished.detail
    answered = [event for event in bench.shown if isinstance(event, ModelAnswered)]
    assert [event.answer.by for event in answered] == ["", "", "", "s/mart", "", "s/mart"]
    assert [bool(event.sampling and event.sampling.smart) for event in answered] == [False] * 3 + [True, False, True]
    without = Bench([same, same, same, say("finish", answer="done")])
    await without.run(started())
    assert not any(event.sampling for event in without.shown if isinstance(event, ModelAnswered))


async def test_the_record_says_who_was_there_at_the_start() -> None:
    own = Entered([])
    own.fails = True
    other = Entered([say("finish", answer="x")], WINDOW)
    bench = Bench([], model=ModelTeam(own, "a/own", fallbacks=[member("b/x", other, [])]))
    assert (await bench.run()).status == "done"
    (begun,) = [event for event in bench.shown if isinstance(event, ModelStarted)]
    assert begun.info == other.info


async def test_under_a_bound_on_cost_none_is_asked_of_which_nobody_says_what_it_costs() -> None:
    def unpriced() -> Entered:
        model = Entered(["never"] * 3)
        model.info = model.info.model_copy(update={"priced": False})
        return model

    cloud, smart, last = unpriced(), unpriced(), Entered(["two"])
    fallbacks = [member("b/cloud", cloud, []), member("c/last", last, [])]
    own = Entered(["one", BUSY])
    async with ModelTeam(own, "a/own", smart=member("s/m", smart, []), fallbacks=fallbacks, capped=True) as team:
        assert (await team.ask(STUCK)).content == "one"
        answer = await team.ask(ASKED)
        assert (answer.content, answer.by) == ("two", "c/last")
        assert "b/cloud: --max-cost cannot be kept: nobody says what b/cloud costs" in answer.why
    assert (cloud.requests, smart.requests) == ([], [])


async def test_the_runs_own_may_tell_it_as_late_as_at_its_start() -> None:
    model = Entered([say("finish", answer="x")])
    model.info = model.info.model_copy(update={"priced": False})
    finished = await Bench([], model=model).run(started(budget=Budget(max_cost=1.0)))
    assert (finished.status, finished.reason) == ("failed", "usage")
    assert (finished.detail, model.requests) == ("--max-cost cannot be kept: nobody says what script costs", [])
