"""Models that reason: how much they shall think, in each provider's own form; what they thought goes back as it came.

The servers refuse what the real ones refuse (tests/support/fake_reasoning.py).
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from stockade.answers.native_tools import NativeAnswers
from stockade.core.errors import ModelFailed
from stockade.core.messages import Message, ModelAnswer, ModelRequest, Reasoning, Sampling
from stockade.core.settings import Effort
from stockade.models.anthropic import Abilities, AnthropicModel, thinking
from stockade.models.openai import OpenAIModel
from stockade.models.openai_request import Dialect, effort_fields
from stockade.models.pricing import Price
from stockade.models.providers import PROVIDERS
from stockade.models.replies import MAX_NESTED, as_items
from stockade.models.responses import ResponsesModel, open_served
from stockade.models.settings import ModelContext, ModelSettings
from tests.support.fake_openai import FakeOpenAI, Reply, fails, piece
from tests.support.fake_reasoning import Claude, Gpt

pytestmark = pytest.mark.anyio
TOOLS = ("shell", "read_file", "finish")
LS, READ = ("shell", {"command": "ls"}), ("read_file", {"path": "a"})
START = (Message(role="system", content="You are brief."), Message(role="user", content="Go."))
HIGH = Sampling(effort="high")
PRICE = Price(input=10, output=100, cached=1, cache_write=20)
Model = AnthropicModel | OpenAIModel


class Told:
    """What the user was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, text: str, _done: int, _total: int) -> None:
        self.lines.append(text)


@asynccontextmanager
async def claude(server: FakeOpenAI, **rest: Any) -> AsyncIterator[AnthropicModel]:
    async with server, AnthropicModel(server.url, "claude-x", "k", **rest) as model:
        yield model


@asynccontextmanager
async def gpt(server: FakeOpenAI, **rest: Any) -> AsyncIterator[ResponsesModel]:
    async with server, ResponsesModel(server.base_url, "o", "k", **rest) as model:
        yield model


@asynccontextmanager
async def chat(server: FakeOpenAI, **rest: Any) -> AsyncIterator[OpenAIModel]:
    async with server, OpenAIModel(server.base_url, "m", "k", **rest) as model:
        yield model


async def conversation(
    opened: AbstractAsyncContextManager[Model], turns: int, sampling: Sampling = HIGH
) -> list[ModelAnswer]:
    """As many answers, each with what came of its calls in the next question."""
    protocol, answers = NativeAnswers(), []
    messages: tuple[Message, ...] = START
    async with opened as model:
        for _ in range(turns):
            request = protocol.constrain(ModelRequest(messages=messages, sampling=sampling), TOOLS)
            answers.append(answer := await model.ask(request))
            understood = protocol.read(answer, TOOLS)
            written = protocol.write(understood).model_copy(update={"reasoning": answer.reasoning})
            results = [protocol.observed(step, "done") for step in understood.steps]
            messages = (*messages, written, *results)
    return answers


def bodies(server: FakeOpenAI) -> list[dict[str, Any]]:
    return [asked.body for asked in server.questions]


@pytest.mark.parametrize("split", [0, 1, 3, 7])
@pytest.mark.parametrize(("kind", "opened"), [(Claude, claude), (Gpt, gpt)])
async def test_several_turns_however_the_bytes_are_cut(kind: Any, opened: Any, split: int) -> None:
    theirs = kind()
    turns = [
        theirs.turn('Ünïcödé 🙂 \\ " \u2028', calls=[LS, READ], split=split),
        theirs.turn("", text="Words.", calls=[READ], split=split),
        theirs.turn(" ".join(map(str, range(40))), text="More.", calls=[LS], split=split),
        theirs.turn("End.", calls=[("finish", {"answer": "3"})], split=split),
    ]
    server = theirs.server(turns)
    answers = await conversation(opened(server), 4)
    assert len(server.questions) == 4  # none was refused and asked again
    assert [len(answer.tool_calls) for answer in answers] == [2, 1, 1, 1]
    assert [answer.content for answer in answers] == ["", "Words.", "More.", ""]
    assert {answer.usage.thinking_tokens for answer in answers} == {20}


async def test_redacted_thinking_between_and_several_blocks_keep_their_order() -> None:
    theirs = Claude()
    server = theirs.server([theirs.turn("a", redacted="b", text="c", calls=[LS]), theirs.turn("d", calls=[READ])])
    answers = await conversation(claude(server), 2)
    assert bodies(server)[1]["messages"][1]["content"] == list(
        answers[0].reasoning.items if answers[0].reasoning else ()
    )
    kinds = [block["type"] for block in bodies(server)[1]["messages"][1]["content"]]
    assert kinds == ["thinking", "redacted_thinking", "text", "tool_use"]


@pytest.mark.parametrize("told", [True, False])
async def test_a_model_of_budgets_gets_one(told: bool) -> None:
    theirs = Claude(types=("enabled", "disabled"), told=told)
    server = theirs.server([theirs.turn("a", calls=[LS]), theirs.turn("b", calls=[READ])])
    heard = Told()
    await conversation(claude(server, on_progress=heard), 2, Sampling(effort="medium", temperature=0))
    last = bodies(server)[-1]
    assert last["thinking"] == {"type": "enabled", "budget_tokens": 8192}
    assert last["max_tokens"] == 32_768
    assert len(bodies(server)) == (2 if told else 3)
    assert len(heard.lines) == (not told)


async def test_a_schema_is_no_call_while_it_thinks() -> None:
    theirs = Claude()
    server = theirs.server([theirs.turn("a", text='{"word": "hello"}')])
    request = ModelRequest(messages=START, sampling=Sampling(effort="low", temperature=0.3), schema_={"type": "object"})
    async with claude(server) as model:
        answer = await model.ask(request)
    assert answer.content == '{"word": "hello"}'
    form = {"type": "json_schema", "schema": {"type": "object"}}
    assert bodies(server)[0]["output_config"] == {"effort": "low", "format": form}
    assert "tool_choice" not in bodies(server)[0]


ALL = ("low", "medium", "high", "xhigh", "max")
SHOWN, PLAIN = {"type": "adaptive", "display": "summarized"}, {"type": "adaptive"}


@pytest.mark.parametrize(
    ("effort", "can", "fields"),
    [
        (None, Abilities(adaptive=True), {"max_tokens": 8192}),
        ("none", Abilities(off=True), {"max_tokens": 8192, "thinking": {"type": "disabled"}}),
        ("none", Abilities(off=False, levels=ALL), {"max_tokens": 8192, "output_config": {"effort": "low"}}),
        ("minimal", Abilities(adaptive=True, levels=ALL),
         {"max_tokens": 32_768, "thinking": SHOWN, "output_config": {"effort": "low"}}),
        ("xhigh", Abilities(adaptive=True, levels=("low", "high", "max")),
         {"max_tokens": 32_768, "thinking": SHOWN, "output_config": {"effort": "high"}}),
        ("low", Abilities(adaptive=True, levels=("high", "max"), max_tokens=9000),
         {"max_tokens": 9000, "thinking": SHOWN, "output_config": {"effort": "high"}}),
        ("low", Abilities(), {"max_tokens": 32_768, "thinking": PLAIN, "output_config": {"effort": "low"}}),
        (None, Abilities(adaptive=True, off=False, max_tokens=64_000), {"max_tokens": 32_768, "thinking": SHOWN}),
        (None, Abilities(adaptive=True, off=False, shown=False), {"max_tokens": 8192, "thinking": PLAIN}),
        ("none", Abilities(adaptive=True, off=False, levels=ALL),
         {"max_tokens": 8192, "thinking": SHOWN, "output_config": {"effort": "low"}}),
        ("max", Abilities(adaptive=False, budget=True, levels=(), max_tokens=16_000),
         {"max_tokens": 16_000, "thinking": {"type": "enabled", "budget_tokens": 14_976}}),
        ("high", Abilities(adaptive=False, budget=False, levels=()), {"max_tokens": 32_768}),
    ],
)  # fmt: skip
def test_how_much_claude_shall_think(effort: Effort | None, can: Abilities, fields: dict[str, Any]) -> None:
    assert thinking(ModelRequest(messages=START, sampling=Sampling(effort=effort)), can) == fields


async def test_a_summary_that_is_refused_is_left_out_and_the_thinking_stays() -> None:
    refusal = fails(400, "thinking.adaptive.display: Extra inputs are not permitted", type="invalid_request_error")
    theirs = Claude()
    server = theirs.server([refusal, theirs.turn("a", calls=[LS]), theirs.turn("b", calls=[LS])])
    await conversation(claude(server), 2)
    assert [body["thinking"] for body in bodies(server)] == [SHOWN, PLAIN, PLAIN]


async def test_what_a_provider_tells_of_the_thinking_is_for_people_and_is_not_sent_as_words() -> None:
    theirs = Claude()
    server = theirs.server([theirs.turn("I look first.", calls=[LS]), theirs.turn("c", text="Then.", calls=[LS])])
    first, second = (NativeAnswers().read(answer, TOOLS) for answer in await conversation(claude(server), 2))
    assert (first.thought, first.summary, first.shown) == (None, "I look first.", "I look first.")
    assert (second.thought, second.summary, second.shown) == ("Then.", None, "Then.")
    assert NativeAnswers().write(first).content == ""


@pytest.mark.parametrize(
    ("form", "effort", "fields"),
    [
        ("reasoning_effort", None, {}),
        ("reasoning_effort", "none", {"reasoning_effort": "none"}),
        ("reasoning_effort", "xhigh", {"reasoning_effort": "xhigh"}),
        ("reasoning", "low", {"reasoning": {"effort": "low"}}),
        ("template", "none", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("template", "high", {"reasoning_effort": "high",
                              "chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "high"}}),
        ("thinking", "none", {"thinking": {"type": "disabled"}}),
        ("thinking", "max", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
    ],
)  # fmt: skip
def test_how_others_are_told_how_much_to_think(form: str, effort: Effort | None, fields: dict[str, Any]) -> None:
    assert effort_fields(effort, form) == fields


async def test_openais_temperature_is_left_out_where_a_model_reasons() -> None:
    theirs = Gpt()
    server = theirs.server([theirs.turn("a", calls=[LS]), theirs.turn("b", calls=[READ])])
    await conversation(gpt(server), 2, Sampling(effort="low", temperature=0))
    assert ["temperature" in body for body in bodies(server)] == [True, False, False]


@pytest.mark.parametrize(
    ("effort", "named", "sent"),
    [("minimal", ". Supported values are: 'low', and 'high'.", ["minimal", "low"]),
     ("max", ". Supported values are: 'none', 'low', 'medium', and 'high'.", ["max", "high"]),
     ("none", ". Supported values are: 'low', 'medium'.", ["none", "low"]),
     ("high", ". Supported values are: 'none'.", ["high", None]), ("low", "", ["low", None])],
)  # fmt: skip
async def test_an_effort_that_is_not_taken_is_the_nearest_that_is_named(
    effort: Effort, named: str, sent: list[str | None]
) -> None:
    said = f"Unsupported value: '{effort}' is not supported with this model{named}"
    refusal = fails(400, said, param="reasoning.effort", type="invalid_request_error", code="unsupported_value")
    theirs, heard = Gpt(), Told()
    server = theirs.server([refusal, theirs.turn("a", calls=[LS]), theirs.turn("b", calls=[LS])])
    await conversation(gpt(server, on_progress=heard), 2, Sampling(effort=effort))
    assert [body.get("reasoning", {}).get("effort") for body in bodies(server)] == [*sent, sent[-1]]
    assert len(heard.lines) == 1
    assert heard.lines[0].endswith(f"it is asked with {sent[-1]}" if sent[-1] else "it is asked without it")


@pytest.mark.parametrize(
    ("said", "effort", "sent"),
    [("1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'reasoning_effort'), 'msg': \"Input should be"
      " 'low', 'medium' or 'high'\", 'input': 'xhigh'}", "xhigh", ["xhigh", "high"]),
     ("Validation error for `reasoning_effort`: expected one of `'low' | 'medium' | 'high'`, received `'xhigh'`.",
      "xhigh", ["xhigh", "high"]),
     ("`reasoning_effort` must be one of `none` or `default`", "low", ["low", None]),
     ("Budget 0 is invalid. This model only works in thinking mode.", "none", ["none", None]),
     ("Unable to submit request because Thinking can't be disabled for this model.", "none", ["none", None])],
    ids=["vLLM, SGLang", "Kimi", "Groq", "Gemini", "Vertex"],
)  # fmt: skip
async def test_how_others_say_that_an_effort_is_not_theirs(said: str, effort: Effort, sent: list[str | None]) -> None:
    server = FakeOpenAI([fails(400, said), calls(), calls()])
    await conversation(chat(server), 2, Sampling(effort=effort))
    assert [body.get("reasoning_effort") for body in bodies(server)] == [*sent, sent[-1]]


async def test_items_that_are_no_pair_with_the_calls_are_written_anew() -> None:
    """A reasoning item without the very call that followed it is refused; so is a changed block."""
    for theirs, opened in ((Gpt(), gpt), (Claude(), claude)):
        server = theirs.server([theirs.turn("a", calls=[LS, READ]), theirs.turn("b", calls=[LS])])
        async with opened(server) as model:
            protocol = NativeAnswers()
            request = protocol.constrain(ModelRequest(messages=START), TOOLS)
            answer = await model.ask(request)
            understood = protocol.read(answer, TOOLS)
            one = understood.model_copy(update={"steps": understood.steps[:1]})
            written = protocol.write(one).model_copy(update={"reasoning": answer.reasoning})
            messages = (*START, written, protocol.observed(one.steps[0], "done"))
            again = await model.ask(request.model_copy(update={"messages": messages}))
        assert again.tool_calls, server.questions[-1].body


@pytest.mark.parametrize(("theirs", "opened"), [(Claude(), claude), (Gpt(), gpt)])
async def test_thinking_that_is_refused_is_forgotten_once_for_all(theirs: Any, opened: Any) -> None:
    first, heard = theirs.turn("OLD", calls=[LS]), Told()
    theirs.key = "another"
    later = [theirs.turn("NEW", calls=[READ]), theirs.turn("c", calls=[LS])]
    server = theirs.server([first, *later])
    await conversation(opened(server, on_progress=heard), 3)
    assert len(bodies(server)) == 4
    assert len(heard.lines) == 1
    kept = json.dumps(bodies(server)[-1])
    assert ("NEW" in kept, "OLD" in kept) == (True, False)


async def test_the_cost_of_thinking_and_of_what_was_cached() -> None:
    theirs, ours = Claude(), Gpt()
    server, other = theirs.server([theirs.turn("a", calls=[LS])]), ours.server([ours.turn("a", calls=[LS])])
    [answer] = await conversation(claude(server, price=PRICE), 1)
    assert answer.usage.model_dump() == pytest.approx({
        "prompt_tokens": 16, "cached_tokens": 4, "completion_tokens": 30, "thinking_tokens": 20,
        "cost": (10 * 10 + 4 * 1 + 2 * 20 + 30 * 100) / 1e6, "thinking_cost": 0.002,
    })  # fmt: skip
    [answer] = await conversation(gpt(other, price=PRICE), 1)
    assert answer.usage.model_dump() == pytest.approx({
        "prompt_tokens": 10, "cached_tokens": 4, "completion_tokens": 30, "thinking_tokens": 20,
        "cost": (6 * 10 + 4 * 1 + 30 * 100) / 1e6, "thinking_cost": 0.002,
    })  # fmt: skip


def calls(*deltas: dict[str, Any], usage: dict[str, Any] | None = None) -> Reply:
    """A call of `ls`, and what came beside it."""
    call = {"index": 0, "id": "1", "function": {"name": "shell", "arguments": '{"command": "ls"}'}}
    counted = usage or {"prompt_tokens": 10, "completion_tokens": 9}
    return Reply([*(piece(**delta) for delta in deltas), piece(tool_calls=[call]), piece(finish="tool_calls"),
                  {"choices": [], "usage": counted}], split=3)  # fmt: skip


def assistant(server: FakeOpenAI) -> dict[str, Any]:
    message = bodies(server)[-1]["messages"][2]
    assert message["role"] == "assistant"
    return dict(message)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_thinking_goes_back_under_the_name_that_it_came_by(name: str) -> None:
    server = FakeOpenAI([calls({name: "I thi"}, {name: "nk."}), calls()])
    answers = await conversation(chat(server), 2)
    assert assistant(server)[name] == "I think."
    assert answers[0].usage.thinking_tokens == 2  # a server of this machine: pieces


@pytest.mark.parametrize(("opened", "theirs"), [(gpt, Gpt()), (chat, None)])
async def test_a_key_for_the_cache_is_the_same_in_each_turn(opened: Any, theirs: Gpt | None) -> None:
    server = theirs.server([theirs.turn("", calls=[LS]) for _ in range(3)]) if theirs else FakeOpenAI([calls()] * 3)
    await conversation(opened(server, dialect=Dialect(cache=("prompt_cache_key",))), 3)
    keys = [body["prompt_cache_key"] for body in bodies(server)]
    assert (len(keys), len(set(keys))) == (3, 1)


@pytest.mark.parametrize(("opened", "theirs"), [(gpt, Gpt()), (chat, None)])
async def test_a_key_for_the_cache_that_is_refused_is_left_out_from_then_on(opened: Any, theirs: Gpt | None) -> None:
    refused = fails(400, "Unrecognized request argument supplied: prompt_cache_key")
    told = [theirs.turn("", calls=[LS]) for _ in range(2)] if theirs else [calls()] * 2
    server = theirs.server([refused, *told]) if theirs else FakeOpenAI([refused, *told])
    await conversation(opened(server, dialect=Dialect(cache=("prompt_cache_key",))), 2)
    assert ["prompt_cache_key" in body for body in bodies(server)] == [True, False, False]


async def test_openrouters_details_are_put_together() -> None:
    details: list[dict[str, Any]] = [
        {"type": "reasoning.text", "text": "Let ", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.text", "text": "me.", "format": "anthropic-claude-v1", "index": 0, "signature": None},
        {"type": "reasoning.text", "signature": "Et8B", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "one", "id": "a", "index": 1},
        {"type": "reasoning.encrypted", "data": "two", "id": "b", "index": 1},
    ]
    told = [{"reasoning": "Let me." if n == 1 else "", "reasoning_details": [one]} for n, one in enumerate(details)]
    server = FakeOpenAI([calls(*told), calls()])
    await conversation(chat(server, dialect=PROVIDERS["openrouter"].dialect), 2)
    whole = {
        "type": "reasoning.text",
        "text": "Let me.",
        "format": "anthropic-claude-v1",
        "index": 0,
        "signature": "Et8B",
    }
    message = assistant(server)
    assert message["reasoning_details"] == [whole, *details[3:]]
    assert "reasoning" not in message
    assert bodies(server)[0]["reasoning"] == {"effort": "high"}


async def test_geminis_signature_stands_by_its_call() -> None:
    signed = {"google": {"thought_signature": "EjQK"}}
    call = {"id": "jm4", "type": "function", "extra_content": signed,
            "function": {"name": "shell", "arguments": '{"command": "ls"}'}}  # fmt: skip
    other = {**call, "id": "jm5", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}
    del other["extra_content"]
    reply = Reply([piece(tool_calls=[call]), piece(tool_calls=[other]), piece(finish="tool_calls")])
    server = FakeOpenAI([reply, calls()])
    await conversation(chat(server, dialect=PROVIDERS["gemini"].dialect), 2)
    sent = assistant(server)["tool_calls"]
    assert sent[0]["extra_content"] == signed
    assert "extra_content" not in sent[1]
    assert [one["function"]["name"] for one in sent] == ["shell", "read_file"]


def deepseek(asked: Any) -> Reply | None:
    """Refuses as theirs does."""
    for message in asked.body["messages"]:
        if message["role"] == "assistant" and "reasoning_content" not in message:
            return fails(400, "The `reasoning_content` in the thinking mode must be passed back to the API.")
    return None


async def test_deepseek_wants_thinking_in_each_of_its_messages() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 9, "prompt_cache_hit_tokens": 6,
             "completion_tokens_details": {"reasoning_tokens": 5}}  # fmt: skip
    server = FakeOpenAI([calls({"reasoning_content": "Hm."}, usage=usage), calls(), calls()], refuses=deepseek)
    answers = await conversation(chat(server, dialect=PROVIDERS["deepseek"].dialect, price=PRICE), 3)
    assert [
        message.get("reasoning_content") for message in bodies(server)[-1]["messages"] if message["role"] == "assistant"
    ] == ["Hm.", ""]
    assert (answers[0].usage.cached_tokens, answers[0].usage.thinking_tokens) == (6, 5)
    assert (bodies(server)[0]["thinking"], bodies(server)[0]["reasoning_effort"]) == ({"type": "enabled"}, "high")


async def test_thinking_of_one_provider_is_not_sent_to_another() -> None:
    call = {"id": "x", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    for form in ("anthropic", "responses", "chat"):
        item = {"type": "thinking", "thinking": "MINE", "reasoning_content": "MINE"}
        reasoning = Reasoning.model_validate({"form": form, "items": [item]})
        messages = (*START, Message(role="assistant", content="", tool_calls=(call,), reasoning=reasoning),
                    Message(role="tool", content="out", tool_call_id="x"))  # fmt: skip
        for opened, other in ((claude, "anthropic"), (gpt, "responses"), (chat, "chat")):
            server = FakeOpenAI([fails(400, "no")] * 2)
            async with opened(server) as model:
                with pytest.raises(ModelFailed):
                    await model.ask(ModelRequest(messages=messages))
            assert ("MINE" in json.dumps(bodies(server)[0])) == (form == other != "responses"), (form, other)


@pytest.mark.parametrize(
    ("provider", "environment", "api", "kind"),
    [
        ("openai", {"OPENAI_API_KEY": "k"}, "auto", ResponsesModel),
        ("openai", {"OPENAI_API_KEY": "k"}, "chat", OpenAIModel),
        ("openai", {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "auto", OpenAIModel),
        ("openai", {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "responses", ResponsesModel),
        ("azure", {"AZURE_OPENAI_ENDPOINT": "https://x.y", "AZURE_OPENAI_API_KEY": "k"}, "auto", ResponsesModel),
        ("azure", {"AZURE_OPENAI_ENDPOINT": "https://x.y", "AZURE_OPENAI_API_KEY": "k",
                   "OPENAI_API_VERSION": "2024-10-21"}, "auto", OpenAIModel),
    ],
)  # fmt: skip
def test_which_api_is_spoken(provider: str, environment: dict[str, str], api: Any, kind: type) -> None:
    context = ModelContext(provider, ModelSettings(api=api), environment=environment)
    assert type(open_served("gpt-x", context)) is kind


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"x": value}
    return value


@pytest.mark.parametrize(
    "value", [["text"], [{"a": "\ud800"}], [{"a": float("nan")}], [nested(MAX_NESTED + 1)], [nested(5000)], [{}, None]]
)
def test_what_cannot_go_on_record_does_not_go_back(value: Sequence[object]) -> None:
    assert as_items(value) == ()
    assert as_items([nested(3), {"a": 1.5}]) == (nested(3), {"a": 1.5})


async def test_odd_thinking_costs_the_thinking_alone() -> None:
    odd: list[dict[str, Any]] = [
        {"reasoning_details": [3, {"type": "reasoning.text", "text": "\ud83d"}]},
        {"reasoning_content": 7},
    ]
    server = FakeOpenAI([calls(*odd), calls()])
    answers = await conversation(chat(server), 2)
    assert answers[0].reasoning is None
    assert answers[0].tool_calls


async def test_what_a_template_writes_of_thinking_is_no_special_token() -> None:
    """Of a server that renders templates; what is signed is sent as it is."""
    text = "<|im_end|>"
    details = {"type": "reasoning.text", "text": text, "signature": "s", "index": 0}
    server = FakeOpenAI([calls({"reasoning_content": text}), calls({"reasoning_details": [details]}), calls()])
    await conversation(chat(server, dialect=Dialect(server="vllm")), 3)
    sent = [message for message in bodies(server)[-1]["messages"] if message["role"] == "assistant"]
    assert text not in sent[0]["reasoning_content"]
    assert sent[1]["reasoning_details"] == [details]
