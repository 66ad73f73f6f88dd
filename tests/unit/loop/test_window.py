"""Runs of hundreds of turns in a small window, on models that count tokens in their own way."""

import json
from collections.abc import Callable
from itertools import pairwise

import pytest

from stockade.answers.fenced import FencedAnswers
from stockade.answers.json_schema import JsonAnswers
from stockade.answers.native_tools import NativeAnswers
from stockade.core.budget import Budget
from stockade.core.errors import ContextExceeded, ModelUnavailable
from stockade.core.events import HistoryCompacted, ModelAnswered, ModelStarted
from stockade.core.messages import Message, ModelAnswer, ModelInfo, ModelRequest, Usage
from stockade.core.ports import AnswerProtocol, OnText
from stockade.loop.run import run
from stockade.testing import MemorySandbox, ScriptedModel, say
from stockade_sandbox.results import Chunk, CommandOutput
from tests.unit.loop.helpers import Bench, started

pytestmark = pytest.mark.anyio

WINDOW = 4096
TASK = "Read all the logs and say which of them has the word zebra."


def large(command: str) -> CommandOutput:
    return CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", (f"{command}: 0123456789abcdef\n" * 400).encode()),))


class WindowedModel(ScriptedModel):
    """`chars` characters are a token. Refuses what does not fit, as its server would; says nothing of its window
    beforehand when `silent`. Keeps what it served from its cache: the common beginning of two requests."""

    def __init__(self, answers: list[str | ModelAnswer], chars: float, silent: bool = False) -> None:
        super().__init__(answers)
        self.info = ModelInfo(name="small", provider="test", context_window=None if silent else WINDOW)
        self._chars = chars
        self.refused = self.counted = 0
        self.too_long: list[ModelRequest] = []

    def tokens(self, messages: tuple[Message, ...]) -> int:
        spelled = (m.content + (json.dumps(m.tool_calls) if m.tool_calls else "") for m in messages)
        return int(sum(map(len, spelled)) / self._chars) + 8 * len(messages)

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        prompt = self.tokens(request.messages)
        if prompt >= WINDOW:
            self.refused += 1
            self.too_long.append(request)
            raise ContextExceeded("too long", prompt, WINDOW)
        before = self.requests[-1].messages if self.requests else ()
        same = 0
        while same < len(before) and before[same] == request.messages[same]:
            same += 1
        answer = await super().ask(request, on_text)
        said = answer.content + json.dumps(answer.tool_calls)
        usage = Usage(
            prompt_tokens=prompt,
            cached_tokens=self.tokens(request.messages[:same]),
            completion_tokens=int(len(said) / self._chars),
        )
        return answer.model_copy(update={"usage": usage})


class CountingModel(WindowedModel):
    """Also counts when asked."""

    async def count(self, request: ModelRequest) -> int | None:
        self.counted += 1
        return self.tokens(request.messages)


class GoneWhileCounting(CountingModel):
    """Its server is started again just when it is asked to count."""

    async def count(self, request: ModelRequest) -> int | None:
        self.counted += 1
        raise ModelUnavailable("no model server at 127.0.0.1:1")


def native(tool: str, **arguments: object) -> ModelAnswer:
    call = {"id": "1", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
    return ModelAnswer(content="", tool_calls=(call,), finish_reason="tool_calls")


def fenced(tool: str, **arguments: str) -> str:
    return f"```{'bash' if tool == 'shell' else tool}\n{arguments.get('command', arguments.get('answer'))}\n```"


SPELLED: dict[str, tuple[Callable[[], AnswerProtocol], Callable[..., str | ModelAnswer]]] = {
    "json": (JsonAnswers, say),
    "native": (NativeAnswers, native),
    "fenced": (FencedAnswers, fenced),
}


def bench_of(model: WindowedModel, protocol: AnswerProtocol) -> Bench:
    bench = Bench([], MemorySandbox(on_command=large), model=model)
    object.__setattr__(bench.parts, "protocol", protocol)
    return bench


@pytest.mark.parametrize("chars", [4.0, 2.0, 1.2])
@pytest.mark.parametrize("how", list(SPELLED))
@pytest.mark.parametrize("kind", [WindowedModel, CountingModel])
async def test_300_turns_with_large_outputs_end_well(chars: float, how: str, kind: type[WindowedModel]) -> None:
    protocol, spell = SPELLED[how]
    answers = [spell("shell", command=f"cat log{n}.txt") for n in range(299)] + [spell("finish", answer="log7")]
    model = kind(answers, chars)
    bench = bench_of(model, protocol())
    finished = await bench.run(started(task=TASK, budget=Budget(max_turns=0, timeout_s=0)))
    assert (finished.status, finished.turns, finished.answer) == ("done", 300, "log7"), finished.detail
    assert all(request.messages[1].content.startswith(TASK) for request in model.requests)
    answered = [event for event in bench.shown if isinstance(event, ModelAnswered)]
    assert max(event.answer.usage.prompt_tokens for event in answered) < WINDOW
    folded = sum(isinstance(event, HistoryCompacted) for event in bench.shown)
    assert folded <= {4.0: 60, 2.0: 100, 1.2: 150}[chars]
    if kind is CountingModel:
        assert not model.refused
    # Between two foldings every request begins with the one before it.
    grown = sum(new.messages[: len(old.messages)] == old.messages for old, new in pairwise(model.requests))
    assert grown >= len(model.requests) - 1 - folded
    assert finished.usage.cached_tokens > 0


async def test_a_window_that_nobody_told_is_learned_from_the_first_refusal() -> None:
    answers: list[str | ModelAnswer] = [say("shell", command=f"cat {n}") for n in range(40)]
    model = WindowedModel([*answers, say("finish", answer="x")], 3.0, silent=True)
    bench = bench_of(model, JsonAnswers())
    finished = await bench.run(started(task=TASK, budget=Budget(max_turns=0)))
    assert finished.status == "done", finished.detail
    assert model.refused <= 2
    assert next(event.window for event in bench.shown if isinstance(event, HistoryCompacted)) == WINDOW


async def test_long_answers_are_folded_too() -> None:
    answers: list[str | ModelAnswer] = [
        say("write_file", path=f"f{n}", content=f"{n} " * 1500) for n in range(30)
    ]  # each alone is a third of the window
    model = WindowedModel([*answers, say("finish", answer="x")], 3.0)
    finished = await bench_of(model, JsonAnswers()).run(started(task=TASK, budget=Budget(max_turns=0)))
    assert finished.status == "done", finished.detail


async def test_an_answer_that_the_window_cut_makes_room_for_the_next() -> None:
    cut = ModelAnswer(content='{"thought": "', finish_reason="length")

    class Cutting(WindowedModel):
        async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
            answer = await super().ask(request, on_text)
            if answer.finish_reason == "length":
                rest = WINDOW - answer.usage.prompt_tokens
                answer = answer.model_copy(update={"usage": Usage(prompt_tokens=WINDOW - rest, completion_tokens=rest)})
            return answer

    model = Cutting([say("shell", command="cat a"), cut, say("finish", answer="x")], 4.0)
    bench = bench_of(model, JsonAnswers())
    finished = await bench.run(started(task=TASK))
    assert finished.status == "done"
    assert "history_compacted" in bench.types()


async def test_a_window_too_small_for_the_instructions_is_refused_at_once() -> None:
    model = WindowedModel([say("finish", answer="x")], 3.0)
    bench = bench_of(model, JsonAnswers())
    first = started().model_copy(update={"system_prompt": "Obey. " * 4000})
    finished = await run(first, bench.parts)
    assert (finished.status, finished.reason) == ("failed", "model")
    assert f"the window of {WINDOW} tokens is too small" in finished.detail
    assert not model.requests


async def test_a_huge_task_is_cut_and_the_run_goes_on() -> None:
    model = WindowedModel([say("shell", command="cat a"), say("finish", answer="x")], 3.0)
    bench = bench_of(model, JsonAnswers())
    finished = await bench.run(started(task=TASK + "x " * 100_000))
    assert finished.status == "done"
    assert "characters left out" in model.requests[0].messages[1].content
    (begun,) = [event for event in bench.shown if isinstance(event, ModelStarted)]
    assert f"{begun.task_left_out} characters left out" in model.requests[0].messages[1].content


async def test_where_nobody_knows_the_window_a_task_is_whole_until_the_server_says() -> None:
    """On 3a7bdc0 it was cut to 64,000 characters."""
    task = TASK + "x " * 100_000
    model = WindowedModel([say("shell", command="cat a"), say("finish", answer="x")], 3.0, silent=True)
    bench = bench_of(model, JsonAnswers())
    assert (await bench.run(started(task=task))).status == "done"
    assert model.too_long[0].messages[1].content == task
    folded = next(event for event in bench.shown if isinstance(event, HistoryCompacted))
    assert f"{folded.task_left_out} characters left out" in model.requests[-1].messages[1].content


async def test_a_server_that_is_gone_while_it_should_count_ends_nothing() -> None:
    answers: list[str | ModelAnswer] = [say("shell", command=f"cat log{n}.txt") for n in range(20)]
    model = GoneWhileCounting([*answers, say("finish", answer="log7")], 2.0)
    finished = await bench_of(model, JsonAnswers()).run(started(task=TASK, budget=Budget(max_turns=0, timeout_s=0)))
    assert (finished.status, finished.answer) == ("done", "log7"), finished.detail
    assert model.counted
