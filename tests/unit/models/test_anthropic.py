"""Anthropic's own API on a fake server: what is sent, what is understood, what goes wrong."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stockade.core.errors import ContextExceeded, ModelOverloaded, ModelUnavailable
from stockade.core.messages import Message, ModelAnswer, ModelRequest, Sampling, Usage
from stockade.loop.window import CountsTokens
from stockade.models.anthropic import AnthropicModel
from stockade.models.pricing import Price
from stockade.models.transport import HttpTimes
from stockade.testing.conformance.model import SCHEMA, Heard, question
from tests.support.fake_anthropic import call, calls, end, event, fails, fake_anthropic, reply, says, start, text
from tests.support.fake_openai import FakeOpenAI, Reply

pytestmark = pytest.mark.anyio
QUICK = HttpTimes(first_byte_s=0.5, idle_s=0.2, backoff_s=1.0)
TOOL = {
    "type": "function",
    "function": {"name": "shell", "description": "Runs.", "parameters": {"type": "object", "properties": {}}},
}


class Slept:
    """A sleep that only remembers."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)


@asynccontextmanager
async def model_of(server: FakeOpenAI, **rest: Any) -> AsyncIterator[AnthropicModel]:
    options: dict[str, Any] = {"times": QUICK, "sleep": Slept(), "jitter": lambda: 0.0, **rest}
    async with AnthropicModel(server.url, "claude-x", "secret", **options) as model:
        yield model


async def ask(*replies: Reply, request: ModelRequest | None = None, **rest: Any) -> ModelAnswer:
    async with fake_anthropic(replies) as server, model_of(server, **rest) as model:
        return await model.ask(request or question())


async def sent(request: ModelRequest) -> dict[str, Any]:
    """The body of this request."""
    async with fake_anthropic() as server, model_of(server) as model:
        await model.ask(request)
        (asked,) = server.questions
    assert asked.path == "/v1/messages"
    assert (asked.headers["x-api-key"], asked.headers["anthropic-version"]) == ("secret", "2023-06-01")
    assert "authorization" not in asked.headers
    found: dict[str, Any] = asked.body
    return found


def called(command: str) -> Message:
    function = {"name": "shell", "arguments": json.dumps({"command": command})}
    return Message(role="assistant", content="", tool_calls=({"id": "same", "type": "function", "function": function},))


async def test_a_schema_that_is_refused_is_left_out_from_then_on() -> None:
    refusal = fails(400, "invalid_request_error", "failed to parse grammar")
    async with fake_anthropic([refusal, says("{}"), refusal]) as server, model_of(server) as model:
        assert (await model.ask(question(schema={"type": "object"}))).content == "{}"
        assert ["tool_choice" in asked.body for asked in server.questions] == [True, False]
        with pytest.raises(ModelUnavailable, match="failed to parse grammar"):
            await model.ask(question())


@pytest.mark.parametrize(
    "said",
    [
        'tool_choice: type "tool" and "any" are not supported for this model.',
        "Thinking may not be enabled when tool_choice forces tool use.",
    ],
)
async def test_a_model_that_no_call_can_be_asked_of_is_asked_for_the_form_of_its_text(said: str) -> None:
    """Of those that always think: each question after the first is asked so at once."""
    schema = {"type": "object"}
    refusal = fails(400, "invalid_request_error", said)
    async with fake_anthropic([refusal, says("{}"), says("{}")]) as server, model_of(server) as model:
        for _ in range(2):
            assert (await model.ask(question(schema=schema))).content == "{}"
    bodies = [asked.body for asked in server.questions]
    assert ["tool_choice" in body for body in bodies] == [True, False, False]
    form = {"format": {"type": "json_schema", "schema": schema}}
    assert [body.get("output_config") for body in bodies] == [None, form, form]
    assert not any("tools" in body for body in bodies[1:])


async def test_a_form_that_is_refused_too_is_left_out() -> None:
    refusals = [
        fails(400, "invalid_request_error", 'tool_choice: type "tool" and "any" are not supported for this model.'),
        fails(400, "invalid_request_error", "output_config.format: this model does not support structured outputs."),
    ]
    async with fake_anthropic([*refusals, says("{}")]) as server, model_of(server) as model:
        assert (await model.ask(question(schema={"type": "object"}))).content == "{}"
    assert not server.questions[-1].body.keys() & {"tools", "tool_choice", "output_config"}


async def test_thinking_that_cannot_be_turned_off_is_asked_for_as_little() -> None:
    said = '"thinking.type.disabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config".'
    async with fake_anthropic([fails(400, "invalid_request_error", said)]) as server, model_of(server) as model:
        await model.ask(question().model_copy(update={"sampling": Sampling(effort="none")}))
    assert [(body.get("thinking"), body.get("output_config")) for body in (one.body for one in server.questions)] == [
        ({"type": "disabled"}, None), (None, {"effort": "low"}),
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["display", "thinking", "tool_choice", "effort", "response_format", "temperature"])
async def test_what_is_refused_whatever_is_left_out_is_an_error(word: str) -> None:
    """A refusal that names a field, though it is about something else, is heard a few times at most."""
    refusals = [fails(400, "invalid_request_error", f"{word}: this is not supported")] * 9
    async with fake_anthropic(refusals) as server, model_of(server) as model:
        with pytest.raises(ModelUnavailable, match="is not supported"):
            await model.ask(question(schema={"type": "object"}))
        assert len(server.questions) <= 5


async def test_words_and_usage() -> None:
    answer = await ask(says("hello big world"), price=Price(input=10, output=100, cached=1, cache_write=20))
    assert (answer.content, answer.finish_reason, answer.model) == ("hello big world", "stop", "fake")
    cost = (10 * 10 + 4 * 1 + 2 * 20 + 3 * 100) / 1e6
    assert answer.usage == Usage(prompt_tokens=16, cached_tokens=4, completion_tokens=3, cost=cost)


async def test_calls() -> None:
    pieces = [start(), *text("I look."), *call("shell", {"command": "ls"}, 1), *call("finish", {}, 2), *end("tool_use")]
    answer = await ask(reply(pieces))
    assert (answer.content, answer.finish_reason) == ("I look.", "tool_calls")
    assert [one["function"]["name"] for one in answer.tool_calls] == ["shell", "finish"]
    assert json.loads(answer.tool_calls[0]["function"]["arguments"]) == {"command": "ls"}
    assert [one["id"] for one in answer.tool_calls] == ["toolu_1", "toolu_2"]


async def test_thinking_that_is_not_shown_goes_back_with_an_empty_text() -> None:
    """Their server wants the field, and may leave it out where it begins the block."""
    begun = event("content_block_start", index=0, content_block={"type": "thinking"})
    signed = event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "Et8B"})
    answer = await ask(reply([start(), begun, signed, *call("shell", {"command": "ls"}, 1), *end("tool_use")]))
    assert answer.reasoning is not None
    assert answer.reasoning.items[0] == {"type": "thinking", "thinking": "", "signature": "Et8B"}


async def test_the_whole_of_a_plain_request() -> None:
    request = ModelRequest(
        messages=(Message(role="system", content="Be brief."), Message(role="user", content="Hi.")),
        sampling=Sampling(temperature=1.2, top_p=0.9, top_k=5, seed=3, min_p=0.1, max_tokens=7),
        stop=("END", " "),
        tools=(TOOL,),
    )
    cached = {"cache_control": {"type": "ephemeral"}}
    assert await sent(request) == {
        "model": "claude-x",
        "max_tokens": 7,
        "system": [{"type": "text", "text": "Be brief.", **cached}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi.", **cached}]}],
        "tools": [{"name": "shell", "description": "Runs.", "input_schema": {"type": "object", "properties": {}}}],
        "temperature": 1.0,
        "top_k": 5,
        "stop_sequences": ["END"],
        "stream": True,
    }


async def test_roles_alternate_and_the_ids_of_calls_are_never_the_same() -> None:
    result = Message(role="tool", content="a", tool_call_id="same")
    conversation = (
        Message(role="user", content="task"), called("ls"), result, Message(role="user", content="go on"),
        called("ls"), result, Message(role="tool", content="lost", tool_call_id="never"),
        Message(role="system", content="late"),
    )  # fmt: skip
    turns = (await sent(ModelRequest(messages=conversation)))["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant", "user"]
    first, second = turns[1]["content"][0]["id"], turns[3]["content"][0]["id"]
    assert first != second
    assert [block["type"] for block in turns[2]["content"]] == ["tool_result", "text"]
    assert turns[2]["content"][0]["tool_use_id"] == first
    assert turns[4]["content"][0]["tool_use_id"] == second
    assert [block.get("text") for block in turns[4]["content"][1:]] == ["lost", "late"]
    assert "cache_control" in turns[4]["content"][-1]


async def test_each_question_is_marked_for_the_cache_where_the_one_before_ended() -> None:
    """They look back over twenty blocks from a mark: a turn of twelve calls and their results is more."""
    function = {"name": "shell", "arguments": "{}"}
    calls = tuple({"id": f"c{number}", "type": "function", "function": function} for number in range(12))
    results = tuple(Message(role="tool", content="done", tool_call_id=f"c{number}") for number in range(12))
    conversation: tuple[Message, ...] = (Message(role="user", content="task"),)
    ends: list[dict[str, object]] = []
    for _ in range(3):
        turns = (await sent(ModelRequest(messages=conversation)))["messages"]
        marked = [block for turn in turns for block in turn["content"] if "cache_control" in block]
        assert marked == [*ends[-1:], turns[-1]["content"][-1]]
        ends = marked
        conversation += (Message(role="assistant", content="", tool_calls=calls), *results)


@pytest.mark.parametrize(
    ("told", "asked", "bound"),
    [({}, None, 8192), ({"max_tokens": 64_000}, None, 32_768), ({"max_tokens": 4096}, None, 4096),
     ({"max_tokens": 64_000}, 500, 500)],
)  # fmt: skip
async def test_an_answer_is_as_long_as_the_server_gives(told: dict[str, int], asked: int | None, bound: int) -> None:
    routes = {"/v1/models/claude-x": told}
    async with fake_anthropic(routes=routes) as server, model_of(server) as model:
        await model.ask(question().model_copy(update={"sampling": Sampling(max_tokens=asked)}))
        assert server.questions[0].body["max_tokens"] == bound


@pytest.mark.parametrize(
    "conversation",
    [
        (),
        (Message(role="system", content=" "),),
        (Message(role="assistant", content="I began."),),
        (Message(role="user", content=""), Message(role="assistant", content=" \n")),
    ],
)
async def test_what_their_server_would_refuse_is_not_sent(conversation: tuple[Message, ...]) -> None:
    body = await sent(ModelRequest(messages=conversation))
    assert body["messages"][0]["role"] == "user"
    assert all(turn["content"] for turn in body["messages"])
    assert all(block["text"].strip() for turn in body["messages"] for block in turn["content"])
    assert "system" not in body


async def test_a_schema_is_a_tool_that_must_be_called() -> None:
    heard = Heard()
    async with fake_anthropic([calls("answer", word="yes", yes=True)]) as server, model_of(server) as model:
        answer = await model.ask(question(schema=SCHEMA), heard)
        body = server.questions[0].body
    assert body["tool_choice"] == {"type": "tool", "name": "answer"}
    assert body["tools"][0]["input_schema"] == SCHEMA
    assert json.loads(answer.content) == {"word": "yes", "yes": True}
    assert "".join(heard.pieces) == answer.content
    assert (answer.tool_calls, answer.finish_reason) == ((), "stop")


async def test_a_server_that_does_not_stream() -> None:
    whole = {"type": "message", "model": "fake", "stop_reason": "max_tokens", "usage": {"input_tokens": 3},
             "content": [{"type": "text", "text": "half"}, {"type": "tool_use", "id": "t", "name": "shell",
                                                            "input": {"command": "ls"}}]}  # fmt: skip
    answer = await ask(Reply(body=json.dumps(whole).encode()))
    assert (answer.content, answer.finish_reason, answer.usage.prompt_tokens) == ("half", "length", 3)
    assert json.loads(answer.tool_calls[0]["function"]["arguments"]) == {"command": "ls"}


@pytest.mark.parametrize(
    ("reason", "ours"),
    [("end_turn", "stop"), ("max_tokens", "length"), ("model_context_window_exceeded", "length"),
     ("stop_sequence", "stop"), ("pause_turn", "pause_turn"), ("tool_use", "stop")],
)  # fmt: skip
async def test_reasons(reason: str, ours: str) -> None:
    assert (await ask(says("x", reason))).finish_reason == ours


@pytest.mark.parametrize(
    "odd",
    [
        [event("thinking_of_something_new", index=0), event("ping")],
        [event("content_block_start", index=5, content_block={"type": "thinking", "thinking": "hm"}),
         event("content_block_delta", index=5, delta={"type": "thinking_delta", "thinking": "hm"}),
         event("content_block_delta", index=5, delta={"type": "signature_delta", "signature": "x"})],
        [event("content_block_start", index=None, content_block=None), event("message_delta", delta=None, usage=None)],
        [event("content_block_start"), event("content_block_delta"), event("message_start")],
        [b'data: {"type": 3}\n\n', b"data: {}\n\n"],
    ],
    ids=["unknown", "thinking", "null", "empty", "no type"],
)  # fmt: skip
async def test_what_is_not_known_is_passed_over(odd: list[bytes]) -> None:
    assert (await ask(reply([start(), *odd, *text("hello", index=9), *end()]))).content == "hello"


async def test_a_piece_without_its_beginning_counts() -> None:
    delta = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "hello"})
    assert (await ask(reply([delta, *end()]))).content == "hello"


@pytest.mark.parametrize(
    "bad",
    [
        fails(529, "overloaded_error"),
        fails(500, "api_error"),
        reply([start(), *text("hal"), event("error", error={"type": "overloaded_error", "message": "Overloaded"})]),
        reply([start(), *text("hal")], "cut"),
        reply([start(), *text("hal")]),
        reply([start(), *text("hal")], "stall"),
        reply([start(), b"data: {nonsense\n\n"]),
    ],
    ids=["529", "500", "error amid", "cut", "no end", "stall", "malformed"],
)
async def test_passing_faults_are_tried_again_and_what_was_heard_is_void(bad: Reply) -> None:
    heard = Heard()
    async with fake_anthropic([bad, says("at last")]) as server, model_of(server) as model:
        assert (await model.ask(question(), heard)).content == "at last"
    assert "".join(heard.pieces) == "at last"


async def test_the_servers_word_on_when_to_come_back_counts() -> None:
    slept = Slept()
    await ask(fails(429, "rate_limit_error", headers={"retry-after": "17"}), sleep=slept)
    assert slept.pauses == [17.0]
    with pytest.raises(ModelOverloaded, match="is busy"):
        await ask(fails(429, "rate_limit_error", headers={"retry-after": "4000"}), sleep=slept)
    assert slept.pauses == [17.0]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (fails(401, "authentication_error", "invalid x-api-key"), "refused the key .*ANTHROPIC_API_KEY"),
        (fails(404, "not_found_error", "model: claude-x"), "has no model 'claude-x'"),
        (fails(400, "invalid_request_error", "Your credit balance is too low"), "wants to be paid"),
        (fails(400, "invalid_request_error", "tools.0.name: bad"), "refused the request"),
    ],
)
async def test_lasting_faults_are_told_at_once(bad: Reply, said: str) -> None:
    slept = Slept()
    with pytest.raises(ModelUnavailable, match=said):
        await ask(bad, sleep=slept)
    assert not slept.pauses


async def test_context_exceeded() -> None:
    with pytest.raises(ContextExceeded) as caught:
        await ask(fails(400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"))
    assert (caught.value.prompt_tokens, caught.value.window) == (208310, 200000)


async def test_a_parameter_that_is_not_taken_is_left_out_from_then_on() -> None:
    request = question().model_copy(update={"sampling": Sampling(temperature=0.4)})
    bad = fails(400, "invalid_request_error", "`temperature` is deprecated for this model.")
    async with fake_anthropic([bad]) as server, model_of(server) as model:
        assert (await model.ask(request)).content == "ok"
        await model.ask(request)
        assert ["temperature" in asked.body for asked in server.questions] == [True, False, False]


async def test_tokens_are_counted_by_the_server() -> None:
    routes = {"/v1/messages/count_tokens": {"input_tokens": 77}}
    async with fake_anthropic(routes=routes) as server, model_of(server) as model:
        assert isinstance(model, CountsTokens)
        assert await model.count(question()) == 77
        assert set(server.asked[-1].body) == {"model", "system", "messages"}
    async with fake_anthropic([fails(404, "not_found_error")]) as server, model_of(server) as model:
        assert await model.count(question()) is None
        assert await model.count(question()) is None
        assert len(server.questions) == 1


async def test_the_window_is_learned() -> None:
    routes = {"/v1/models/claude-x": {"id": "claude-x", "max_input_tokens": 1_000_000}}
    async with fake_anthropic(routes=routes) as server, model_of(server) as model:
        assert model.info.context_window == 1_000_000
    far = AnthropicModel("https://api.anthropic.com", "claude-x", "k")
    assert (far.info.context_window, far.info.native_tools, far.info.priced) == (200_000, True, False)
    known = AnthropicModel("https://api.anthropic.com", "c", "k", price=Price(input=1, output=1, window=5))
    assert (known.info.context_window, known.info.priced) == (5, True)
