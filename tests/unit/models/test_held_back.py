"""Answers that a model or its provider does not give, in each one's own form: none of them is acted on, or asked for
again; another model may be.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from stockade.acp.session import Turn, stop_reason
from stockade.core.errors import AnswerHeldBack, ModelFailed
from stockade.core.events import RunFinished
from stockade.core.messages import Message, ModelRequest
from stockade.fleet.results import outcome_of
from stockade.loop.ending import failed
from stockade.models.anthropic import AnthropicModel
from stockade.models.composed import Member, ModelTeam
from stockade.models.http import from_status, from_stream
from stockade.models.openai import OpenAIModel
from stockade.models.pricing import Price
from stockade.models.responses import ResponsesModel
from stockade.testing import ScriptedModel
from tests.support.fake_anthropic import call, end, event, fake_anthropic, reply, start, text
from tests.support.fake_openai import FakeOpenAI, Reply, piece
from tests.unit.models.test_anthropic import model_of

pytestmark = pytest.mark.anyio
QUESTION = ModelRequest(messages=(Message(role="user", content="Go."),))
WHY = "This request was declined because it could enable cyber harm."


def declined(**details: object) -> list[bytes]:
    delta = {"stop_reason": "refusal", "stop_details": {"type": "refusal", **details}}
    return [event("message_delta", delta=delta, usage={"output_tokens": 1}), event("message_stop")]


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([start(), *declined(category="cyber", explanation=WHY)], f"(refusal): cyber: {WHY}"),
        ([start(), *text("Sure, first"), *declined(category="cyber", explanation=WHY)], f"(refusal): cyber: {WHY}"),
        ([start(), *text("I"), *call("shell", {"command": "ls"}, 1), *declined(category=None, explanation=None)],
         "(refusal)"),
        ([start(), *text("half"), *end("refusal")], "(refusal)"),
        ([start(), *declined(category=7, explanation=["x"])], "(refusal)"),
    ],
    ids=["at once", "amid words", "behind a call", "without details", "odd details"],
)  # fmt: skip
async def test_claude_declines(pieces: Sequence[bytes], said: str) -> None:
    async with fake_anthropic([reply(pieces)]) as server, model_of(server) as model:
        with pytest.raises(AnswerHeldBack) as caught:
            await model.ask(QUESTION)
        assert caught.value.message == f"the answer was held back by the model's provider {said}"
        assert len(server.questions) == 1


@pytest.mark.parametrize(
    "reason",
    ["content_filter", "refusal", "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "sensitive",
     "guardrail_intervened"],
)  # fmt: skip
@pytest.mark.parametrize("said", ["", "so far"])
async def test_a_chat_completion_is_held_back(reason: str, said: str) -> None:
    answer = Reply([piece(said or None), piece(finish=reason)])
    async with FakeOpenAI([answer]) as server, OpenAIModel(server.base_url, "m", "k") as model:
        with pytest.raises(AnswerHeldBack, match=reason):
            await model.ask(QUESTION)


async def test_a_refusal_in_words_is_no_answer() -> None:
    pieces = [piece(refusal="I cannot "), piece(refusal="help with that."), piece(finish="stop")]
    async with FakeOpenAI([Reply(pieces)]) as server, OpenAIModel(server.base_url, "m", "k") as model:
        with pytest.raises(AnswerHeldBack, match=r"provider: I cannot help with that\."):
            await model.ask(QUESTION)


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "response.refusal.delta", "output_index": 0, "delta": "I cannot."},
         {"type": "response.completed", "response": {"status": "completed"}}],
        [{"type": "response.output_item.done", "output_index": 0,
          "item": {"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]}},
         {"type": "response.completed", "response": {"status": "completed"}}],
        [{"type": "response.output_text.delta", "output_index": 0, "delta": "First I cannot."},
         {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "content_filter"}}}],
        [{"type": "response.failed", "response": {"error": {"code": "cyber_policy", "message": "I cannot."}}}],
    ],
    ids=["words in pieces", "words at once", "cut by a filter", "failed"],
)  # fmt: skip
async def test_responses_are_held_back(events: list[dict[str, Any]]) -> None:
    answer = Reply([f"data: {json.dumps(one)}\n\n".encode() for one in events], end="no_done")
    async with FakeOpenAI([answer]) as server, ResponsesModel(server.base_url, "m", "k") as model:
        with pytest.raises(AnswerHeldBack, match=r"content_filter|: I cannot\."):
            await model.ask(QUESTION)
        assert len([one for one in server.questions if one.path.endswith("/responses")]) == 1


REQUESTS = {
    "OpenAI": (400, {"code": "invalid_prompt", "message": "Invalid prompt: your prompt was flagged as potentially "
                     "violating our usage policy. Please try again with a different prompt"}),
    "OpenAI, biology": (400, {"code": "bio_policy", "message": "not this"}),
    "Azure": (400, {"code": "content_filter", "message": "The response was filtered due to the prompt triggering "
                    "Azure OpenAI's content management policy."}),
    "OpenRouter": (403, {"code": 403, "message": 'openai/x requires moderation. Your input was flagged for "violence"',
                         "metadata": {"reasons": ["violence"], "flagged_input": "..."}}),
}  # fmt: skip


@pytest.mark.parametrize("case", REQUESTS)
def test_a_question_is_not_answered(case: str) -> None:
    status, error = REQUESTS[case]
    found = from_status(status, {}, json.dumps({"error": error}).encode(), "box:1", "m")
    assert isinstance(found, AnswerHeldBack)
    assert found.message.startswith(f"box:1 does not answer this ({status}): ")
    assert "--fallback" in (found.hint or "")


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, {"code": "invalid_prompt", "message": "messages[3]: a name is missing"}),
     (403, {"message": "this key may not use the model"}), (500, {"code": "content_filter", "message": "down"})],
)  # fmt: skip
def test_other_errors_are_what_they_were(status: int, error: dict[str, Any]) -> None:
    found: ModelFailed = from_status(status, {}, json.dumps({"error": error}).encode(), "box:1", "m")
    assert not isinstance(found, AnswerHeldBack)


def test_a_stream_may_say_so_too() -> None:
    assert isinstance(from_stream({"code": "invalid_prompt", "message": "not this"}, "box:1"), AnswerHeldBack)
    assert not isinstance(from_stream({"code": "server_error", "message": "odd"}, "box:1"), AnswerHeldBack)


async def test_the_next_model_goes_on() -> None:
    async def other() -> ScriptedModel:
        return ScriptedModel(["done"])

    async with ModelTeam(ScriptedModel([AnswerHeldBack("no")]), "a/b", fallbacks=[Member("c/d", other)]) as team:
        answer = await team.ask(QUESTION)
        assert (answer.content, answer.by, answer.why) == ("done", "c/d", "a/b: no")


async def test_what_an_answer_cost_that_could_not_be_used_is_told_with_the_next() -> None:
    pieces = [start((1_000_000,)), *text("half"), *end("refusal")]
    price = Price(input=3.0, output=0.0)

    async def other() -> ScriptedModel:
        return ScriptedModel(["one", "two"])

    async with fake_anthropic([reply(pieces)]) as server:
        own = AnthropicModel(server.url, "claude-x", "secret", price=price)
        async with ModelTeam(own, "a/b", fallbacks=[Member("c/d", other)]) as team:
            first, second = await team.ask(QUESTION), await team.ask(QUESTION)
    assert first.usage.cost == pytest.approx(3.0)
    assert second.usage.cost == 0


async def test_of_another_run_nothing_is_added() -> None:
    error = AnswerHeldBack("no")
    error.cost = 3.0
    team = ModelTeam(ScriptedModel([error, "done"]), "a/b")
    async with team:
        with pytest.raises(AnswerHeldBack):
            await team.ask(QUESTION)
    async with team:
        assert (await team.ask(QUESTION)).usage.cost == 0


async def test_all_decline() -> None:
    async def other() -> ScriptedModel:
        return ScriptedModel([AnswerHeldBack("nor I")])

    async with ModelTeam(ScriptedModel([AnswerHeldBack("no")]), "a/b", fallbacks=[Member("c/d", other)]) as team:
        with pytest.raises(AnswerHeldBack, match="a/b: no; c/d: nor I"):
            await team.ask(QUESTION)


def test_a_run_that_is_declined_ends_by_that_name_and_is_not_begun_anew_by_a_batch() -> None:
    ending = failed(AnswerHeldBack("no"))
    assert (ending.status, ending.reason) == ("failed", "declined")
    finished = RunFinished(at=0, status=ending.status, reason=ending.reason, detail=ending.detail)
    assert outcome_of(finished) == "gave up"
    assert stop_reason(Turn(finished=finished)) == "refusal"
