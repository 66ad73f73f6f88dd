"""Tools beside the built-in actions, questions to the person, and sub-bots: the loop on fakes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from stockade.core.actions import Action, Answered, Failed, Refused, ToolCall, ToolResult
from stockade.core.budget import Budget
from stockade.core.errors import UsageError
from stockade.core.events import ActionFinished, RunFinished, RunStarted, SubRunFinished, SubRunStarted, ToolsReady
from stockade.core.messages import Usage
from stockade.core.tools import ToolSpec
from stockade.loop.pause import Pause, PausingPrompt
from stockade.loop.run import run
from stockade.loop.subagents import SubAgents
from stockade.models.composed import ModelTeam
from stockade.testing import MemorySandbox, ScriptedModel, say
from stockade.testing.fakes import MemoryToolbox
from tests.unit.loop.helpers import TOOLS, Bench, started

pytestmark = pytest.mark.anyio
ADD = ToolSpec(
    name="add",
    description="Adds two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)


def adding() -> MemoryToolbox:
    return MemoryToolbox((ADD, lambda arguments: str(arguments["a"] + arguments["b"])))


def call(**arguments: object) -> str:
    return say("add", arguments=arguments)


def seen(bench: Bench) -> list[object]:
    return [event.observation for event in bench.shown if isinstance(event, ActionFinished)]


async def test_a_tool_is_described_called_and_its_result_fed_back() -> None:
    bench, box = Bench([call(a=2, b="3"), say("finish", answer="5")]), adding()
    bench.parts = replace(bench.parts, toolboxes=(box,))
    finished = await bench.run()
    assert finished.status == "done"
    assert box.calls == [("add", {"a": 2, "b": 3})]
    assert seen(bench) == [ToolResult(status="success", text="5")]
    assert bench.types()[1:4] == ["sandbox_started", "tools_ready", "model_started"]
    first, second = bench.script.requests
    assert "Adds two numbers." in first.messages[0].content
    assert first.schema_ is not None
    assert "add" in str(first.schema_)
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[-1].content == "5"
    assert (box.entered, box.left) == (1, 1)


async def test_two_tools_of_one_name_are_refused_before_the_model_is_asked() -> None:
    bench = Bench([say("finish", answer="x")])
    bench.parts = replace(bench.parts, toolboxes=(adding(), adding()))
    finished = await bench.run()
    assert (finished.status, finished.reason) == ("failed", "tools")
    assert "add" in finished.detail
    assert bench.script.requests == []
    assert bench.sandbox.left == 1


@pytest.mark.parametrize("name", ["shell", "finish", "tool_call"])
async def test_no_tool_takes_the_name_of_a_built_in_action(name: str) -> None:
    bench = Bench([say("finish", answer="x")])
    squatter = MemoryToolbox((ToolSpec(name=name), lambda arguments: "owned"))
    bench.parts = replace(bench.parts, toolboxes=(squatter,))
    assert (await bench.run()).reason == "tools"


class Unusable(MemoryToolbox):
    async def __aenter__(self) -> "Unusable":
        raise UsageError("rg is not installed", "apt install ripgrep")


async def test_a_tool_that_cannot_be_used_ends_the_run_by_name() -> None:
    bench = Bench([say("finish", answer="x")])
    box = adding()
    bench.parts = replace(bench.parts, toolboxes=(box, Unusable()))
    finished = await bench.run()
    assert (finished.status, finished.reason, finished.detail) == (
        "failed",
        "tools",
        "rg is not installed (apt install ripgrep)",
    )
    assert box.left == 1


async def test_a_question_is_put_to_the_person_and_without_one_the_bot_decides() -> None:
    for answer, expected in (("42", Answered(text="42")), (None, Failed)):

        async def type_it(question: str, answer: str | None = answer) -> str | None:
            assert question == "which one?"
            return answer

        bench = Bench([say("ask_user", question="which one?"), say("finish", answer="ok")])
        bench.parts = replace(bench.parts, tools=(*TOOLS, "ask_user"), asker=PausingPrompt(Pause(), type_it))
        assert (await bench.run()).status == "done"
        result = seen(bench)[0]
        assert result == expected if isinstance(expected, Answered) else isinstance(result, Failed)


def with_helpers(bench: Bench, budget: Budget, **options: str) -> SubAgents:
    first = started(budget=budget).model_copy(update={"options": options})
    parts = replace(bench.parts, tools=(*TOOLS, "sub_task"))
    helper = SubAgents(first, parts, "You are a helper.", TOOLS)
    bench.parts = replace(parts, sub_agents=helper)
    return helper


class Once(MemoryToolbox):
    """As most are: it is entered once, and nothing works before and after."""

    async def __aenter__(self) -> "Once":
        assert not self.entered
        await super().__aenter__()
        return self

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        assert (self.entered, self.left) == (1, 0)
        return await super().call(name, arguments, timeout_s)


class NoSevens:
    """Implements core.ports.Approver."""

    def __init__(self) -> None:
        self.asked: list[Action] = []

    async def judge(self, action: Action) -> str | None:
        self.asked.append(action)
        return "no sevens" if isinstance(action, ToolCall) and 7 in action.arguments.values() else None


async def test_a_sub_bot_calls_the_tools_of_its_boss_and_each_record_says_who_did() -> None:
    answers = [
        call(a=1, b=1),
        say("sub_task", task="add"),
        call(a=2, b=3),
        call(a=7, b=3),
        say("finish", answer="5"),
        call(a=5, b=5),
        say("finish", answer="10"),
    ]
    approver, box = NoSevens(), Once((ADD, lambda arguments: str(arguments["a"] + arguments["b"])))
    bench = Bench(answers, approver=approver)
    bench.parts = replace(bench.parts, toolboxes=(box,))
    with_helpers(bench, Budget(max_turns=20))
    assert (await bench.run(started(budget=Budget(max_turns=20)))).answer == "10"
    assert [arguments for _, arguments in box.calls] == [{"a": 1, "b": 1}, {"a": 2, "b": 3}, {"a": 5, "b": 5}]
    assert (box.entered, box.left) == (1, 1)
    assert sum(isinstance(action, ToolCall) for action in approver.asked) == 4
    sub = await bench.store.events("r1.1")
    assert [event.tools for event in sub if isinstance(event, ToolsReady)] == [(ADD,)]
    done = [event.observation for event in sub if isinstance(event, ActionFinished)]
    assert done == [ToolResult(status="success", text="5"), Refused(reason="no sevens")]
    own = [observation for observation in seen(bench) if isinstance(observation, ToolResult)]
    assert [result.text for result in own] == ["2", "The helper says: 5", "10"]
    assert "Adds two numbers." in bench.script.requests[2].messages[0].content


async def test_what_was_used_before_the_run_counts_once_and_not_for_its_sub_bots() -> None:
    bench = Bench([say("sub_task", task="t"), say("finish", answer="a"), say("finish", answer="b")])
    first = started(budget=Budget(max_turns=20)).model_copy(update={"used": Usage(prompt_tokens=10_000)})
    parts = replace(bench.parts, tools=(*TOOLS, "sub_task"))
    bench.parts = replace(parts, sub_agents=SubAgents(first, parts, "You are a helper.", TOOLS))
    finished = await bench.run(first)
    assert 10_000 < finished.usage.prompt_tokens < 11_000
    sub = await bench.store.events("r1.1")
    assert isinstance(sub[-1], RunFinished)
    assert sub[-1].usage.prompt_tokens < 1_000


async def test_a_sub_bot_works_in_the_same_sandbox_with_a_record_of_its_own() -> None:
    answers = [
        say("sub_task", task="count the lines"),
        say("shell", command="wc -l f"),
        say("finish", answer="3 lines"),
        say("finish", answer="all done: 3"),
    ]
    bench = Bench(answers, MemorySandbox({"wc -l f": "3 f\n"}))
    with_helpers(bench, Budget(max_turns=20))
    finished = await bench.run()
    assert (finished.status, finished.answer) == ("done", "all done: 3")
    assert seen(bench) == [ToolResult(status="success", text="The helper says: 3 lines")]
    assert bench.sandbox.entered == 1
    sub = await bench.store.events("r1.1")
    assert isinstance(sub[-1], RunFinished)
    assert sub[-1].answer == "3 lines"
    own = bench.script.requests[1].messages
    assert [message.content for message in own] == ["You are a helper.", "count the lines"]
    named = [event for event in bench.shown if isinstance(event, SubRunStarted | SubRunFinished)]
    assert [event.run_id for event in named] == ["r1.1", "r1.1"]
    assert finished.usage == bench_usage(bench, 4)


def bench_usage(bench: Bench, answers: int) -> object:
    """What the scripted model counts for so many answers."""
    ended = [event for event in bench.shown if isinstance(event, RunFinished)]
    assert len(bench.script.requests) == answers
    return ended[0].usage


async def test_what_a_sub_bot_uses_is_charged_to_its_boss() -> None:
    looks = [say("shell", command=f"echo {number}") for number in range(9)]
    bench = Bench([say("sub_task", task="look around"), *looks])
    with_helpers(bench, Budget(max_turns=6))
    finished = await bench.run(started(budget=Budget(max_turns=6)))
    assert (finished.status, finished.reason) == ("stopped", "turns")
    result = seen(bench)[0]
    assert isinstance(result, ToolResult)
    assert result.status == "error"
    assert "stopped (turns)" in result.text
    assert len(bench.script.requests) == 6


async def test_a_sub_bot_has_a_name_and_another_model_where_there_is_one() -> None:
    """The stronger one is asked as by a run that is stuck; a faster one that the user did not give is named."""
    answers = [
        say("sub_task", task="think", name="thinker", model="smart"),
        say("finish", answer="thought"),
        say("sub_task", task="count", model="fast"),
        say("finish", answer="all done"),
    ]
    bench = Bench(answers)
    with_helpers(bench, Budget(max_turns=20), smart_model="openai/strong")
    assert (await bench.run()).answer == "all done"
    assert [request.sampling.smart for request in bench.script.requests] == [None, True, None, None]
    begun = (await bench.store.events("r1.1"))[0]
    assert isinstance(begun, RunStarted)
    assert (begun.bot, begun.model, begun.boss) == ("thinker", "openai/strong", "r1")
    told = [one.text for one in seen(bench) if isinstance(one, ToolResult)]
    assert told == ["The helper says: thought", "there is no fast model in this run: do without"]


async def test_a_faster_model_does_what_is_given_to_it() -> None:
    bench = Bench([say("sub_task", task="count", model="fast"), say("finish", answer="all done")])
    fast = ScriptedModel([say("finish", answer="3")])
    bench.parts = replace(bench.parts, model=ModelTeam(bench.script, fast=fast))
    with_helpers(bench, Budget(max_turns=20), fast_model="ollama/small")
    assert (await bench.run()).answer == "all done"
    assert (len(fast.requests), len(bench.script.requests)) == (1, 2)
    begun = (await bench.store.events("r1.1"))[0]
    assert isinstance(begun, RunStarted)
    assert (begun.bot, begun.model) == ("helper", "ollama/small")


async def test_more_turns_than_are_left_are_not_begun() -> None:
    bench = Bench([say("sub_task", task="t", max_turns=50), say("finish", answer="gave up")])
    with_helpers(bench, Budget(max_turns=6))
    assert (await bench.run(started(budget=Budget(max_turns=6)))).status == "done"
    result = seen(bench)[0]
    assert isinstance(result, ToolResult)
    assert "50 turns were asked for and only 4 are left" in result.text


async def test_a_sub_bot_has_no_sub_bots() -> None:
    bench = Bench(
        [say("sub_task", task="t"), say("sub_task", task="u"), say("finish", answer="a"), say("finish", answer="b")]
    )
    with_helpers(bench, Budget(max_turns=20))
    finished = await bench.run()
    assert finished.answer == "b"
    assert [run.run_id for run in await bench.store.runs()].count("r1.2") == 0


async def test_tools_that_are_the_same_after_a_restart_are_not_told_again() -> None:
    bench, box = Bench([say("finish", answer="5")]), adding()
    bench.parts = replace(bench.parts, toolboxes=(box,))
    await run(started(), bench.parts)
    assert sum(isinstance(event, ToolsReady) for event in bench.shown) == 1
