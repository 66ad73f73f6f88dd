"""OpenAI's /v1/responses: what of its stream is an answer, and what of its thinking is for people."""

import json
from typing import Any

import pytest

from stockade.core.errors import ModelFailed, ModelUnavailable
from stockade.core.messages import ModelRequest, Reasoning, Sampling
from stockade.models.openai_request import Dialect
from stockade.models.transport import HttpTimes
from tests.support.fake_openai import FakeOpenAI, Reply, fails, says
from tests.support.fake_reasoning import Gpt
from tests.unit.models.test_reasoning import LS, READ, START, Told, bodies, conversation, gpt

pytestmark = pytest.mark.anyio
OPENAIS = Dialect(responses=True)


async def test_a_summary_of_the_thinking_is_asked_for_and_goes_back_with_the_rest() -> None:
    theirs = Gpt()
    server = theirs.server([theirs.turn("**Counting**\n\nI look.", calls=[LS]), theirs.turn("", calls=[READ])])
    answers = await conversation(gpt(server, dialect=OPENAIS), 2)
    assert [body["reasoning"] for body in bodies(server)] == [{"effort": "high", "summary": "auto"}] * 2
    told = [answer.reasoning.told for answer in answers if answer.reasoning]
    assert told == ["**Counting**\n\nI look.", ""]
    assert bodies(server)[1]["input"][2]["summary"][0]["text"] == told[0]


@pytest.mark.parametrize(
    "said",
    ["Your organization must be verified to generate reasoning summaries. Please go to: https://platform.openai.com/",
     "Unsupported parameter: 'reasoning.summary' is not supported with this model."],
)  # fmt: skip
async def test_where_no_summary_is_given_it_is_asked_without_one(said: str) -> None:
    refusal = fails(400, said, param="reasoning.summary", type="invalid_request_error", code="unsupported_value")
    theirs, heard = Gpt(), Told()
    server = theirs.server([refusal, theirs.turn("", calls=[LS]), theirs.turn("", calls=[READ])])
    await conversation(gpt(server, dialect=OPENAIS, on_progress=heard), 2)
    assert [body["reasoning"] for body in bodies(server)] == [
        {"effort": "high", "summary": "auto"},
        {"effort": "high"},
        {"effort": "high"},
    ]
    assert heard.lines == []


@pytest.mark.parametrize("summary", [None, "x", 3, [None, {"text": 5}, {}]])
async def test_an_odd_summary_is_none(summary: Any) -> None:
    items = ({"type": "reasoning", "summary": summary}, {"type": "function_call"})
    assert Reasoning(form="responses", items=items).told == ""


def events(*said: dict[str, Any]) -> Reply:
    return Reply([f"data: {json.dumps(one)}\n\n".encode() for one in said], end="no_done")


DONE = {"type": "response.completed", "response": {"status": "completed", "usage": {}}}


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ([{"type": "error", "code": "server_error", "message": "odd"}], ModelFailed, "broke off: odd"),
        ([{"type": "error", "error": {"code": "x", "message": "inner"}}], ModelFailed, "broke off: inner"),
        ([{"type": "response.failed", "response": {"error": {"code": "invalid_prompt", "message": "not this"}}}],
         ModelUnavailable, "does not answer this: not this"),
        ([{"type": "response.failed", "response": {}}], ModelFailed, "broke off"),
        ([{"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}}],
         ModelUnavailable, "still thinking"),
        ([{"type": "response.incomplete", "response": {"incomplete_details": {"reason": "content_filter"}}}],
         ModelUnavailable, "held back"),
        ([{"type": "response.output_text.delta", "output_index": 0, "delta": "half"}], ModelFailed, "was cut before"),
        ([{"type": 3, "output_index": "x", "item": [], "response": 7, "delta": {}}], ModelFailed, "cut before its end"),
    ],
)  # fmt: skip
async def test_an_answer_of_responses_that_is_none(said: Any, kind: type[ModelFailed], words: str) -> None:
    async with gpt(FakeOpenAI([events(*said)]), times=HttpTimes(retries=0)) as model:
        with pytest.raises(kind, match=words):
            await model.ask(ModelRequest(messages=START))


async def test_servers_that_tell_items_only_at_their_end_or_do_not_stream() -> None:
    output = [
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"},
        {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "hello"}]},
        {"type": "function_call", "id": "f", "call_id": "c", "name": "shell", "arguments": '{"command": "ls"}'},
    ]
    response = {
        "object": "response",
        "status": "completed",
        "output": output,
        "usage": {"input_tokens": 7, "output_tokens": 5},
    }
    whole = Reply(status=200, body=json.dumps(response).encode())
    done = events({"type": "response.completed", "response": {**response, "object": None}})
    items = [{"type": "response.output_item.done", "output_index": n, "item": one} for n, one in enumerate(output)]
    for reply in (whole, done, events(*items, {**DONE, "response": {**response, "object": None}})):
        [answer] = await conversation(gpt(FakeOpenAI([reply])), 1)
        assert (answer.content, answer.finish_reason) == ("hello", "tool_calls")
        assert answer.tool_calls[0]["function"] == {"name": "shell", "arguments": '{"command": "ls"}'}
        assert answer.reasoning == Reasoning(form="responses", items=tuple(output))
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 5)


async def test_tokens_are_counted_with_the_items() -> None:
    routes = {"/v1/responses/input_tokens": {"object": "response.input_tokens", "input_tokens": 77}}
    server = FakeOpenAI([says("x")], routes=routes)
    async with gpt(server) as model:
        assert await model.count(ModelRequest(messages=START, sampling=Sampling(effort="high"))) == 77
    assert set(server.asked[-1].body) == {"model", "input", "reasoning"}
