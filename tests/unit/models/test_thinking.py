"""Models that think before they answer: their thoughts are no answer, and a bound that was met amid them is widened."""

from typing import Any

import pytest

from stockade.core.errors import ModelUnavailable
from stockade.core.messages import ModelRequest
from stockade.models.anthropic import AnthropicModel
from stockade.models.openai import OpenAIModel
from stockade.testing.conformance.model import Heard, question
from tests.support.fake_anthropic import event
from tests.support.fake_openai import FakeOpenAI, Reply, fails, piece, says

pytestmark = pytest.mark.anyio


def thinks(*after: dict[str, Any], key: str = "reasoning_content", usage: int = 0) -> Reply:
    counted = [{"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": usage}}] if usage else []
    return Reply([piece(**{key: "Okay, "}), piece(**{key: "the user"}), *after, *counted])


CUT = piece(finish="length")


def bounds(server: FakeOpenAI) -> list[int | None]:
    return [asked.body.get("max_tokens") for asked in server.questions]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
async def test_thoughts_are_counted_for_the_listener_and_no_part_of_the_answer(key: str) -> None:
    heard = Heard()
    async with FakeOpenAI([thinks(piece("hello"), piece(finish="stop"), key=key)]) as server:
        async with OpenAIModel(server.base_url, "fake") as model:
            answer = await model.ask(question(), heard)
    assert answer.content == "hello"
    assert heard.pieces == ["", "", "hello"]


@pytest.mark.parametrize(
    ("cut", "spent", "again"),
    [
        (thinks(CUT, usage=48), 48, 1),
        (Reply([piece("<think>Okay, "), piece("the user"), CUT]), 0, 1),
        (Reply([CUT, {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 512}}]), 512, 0),
    ],
    ids=["apart", "in the text", "kept back by the server"],
)
async def test_cut_amid_its_thinking_it_is_asked_again_with_more_and_with_that_from_then_on(
    cut: Reply, spent: int, again: int
) -> None:
    heard = Heard()
    async with FakeOpenAI([cut, says("hello", usage=(30, 0, 2)), says("again")]) as server:
        async with OpenAIModel(server.base_url, "fake") as model:
            answer = await model.ask(question(max_tokens=512), heard)
            await model.ask(question(max_tokens=512))
        assert bounds(server) == [512, 2048, 2048]
    assert (answer.content, heard.again, "".join(heard.pieces)) == ("hello", again, "hello")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (30, spent + 2)


async def test_line_breaks_to_the_limit_are_no_thinking() -> None:
    async with FakeOpenAI([Reply([piece("\n\n\n"), CUT])]) as server:
        async with OpenAIModel(server.base_url, "fake") as model:
            answer = await model.ask(question(max_tokens=512))
        assert bounds(server) == [512]
    assert (answer.content, answer.finish_reason) == ("\n\n\n", "length")


async def test_still_thinking_after_that_it_is_told_with_the_way_out() -> None:
    async with FakeOpenAI([thinks(CUT, usage=48), thinks(CUT, usage=1024)]) as server:
        async with OpenAIModel(server.base_url, "fake") as model:
            with pytest.raises(ModelUnavailable, match=r"was still thinking after 1024 tokens \(.*--answer-tokens N"):
                await model.ask(question())
        assert bounds(server) == [48, 1024]


@pytest.mark.parametrize(("window", "asked"), [(2000, [512, 1954]), (540, [512])])
async def test_more_than_the_window_holds_is_not_asked_for(window: int, asked: list[int]) -> None:
    async with FakeOpenAI([thinks(CUT, usage=512)] * 2, models=[{"id": "fake", "max_model_len": window}]) as server:
        async with OpenAIModel(server.base_url, "fake") as model:
            with pytest.raises(ModelUnavailable, match="was still thinking after 512 tokens"):
                await model.ask(question(max_tokens=512))
        assert bounds(server) == asked


async def test_where_the_bound_is_the_servers_it_is_told_at_once() -> None:
    async with FakeOpenAI([thinks(CUT)]) as server, OpenAIModel(server.base_url, "fake") as model:
        with pytest.raises(ModelUnavailable, match="was still thinking after 2 tokens"):
            await model.ask(ModelRequest(messages=question().messages))
        assert bounds(server) == [None]


async def test_a_larger_bound_that_is_refused_is_not_the_fault_that_is_told() -> None:
    async with FakeOpenAI([thinks(CUT), fails(400, "too much is wanted")]) as server:
        async with OpenAIModel(server.base_url, "fake") as model:
            with pytest.raises(ModelUnavailable, match="was still thinking"):
                await model.ask(question())


async def test_an_answer_that_was_cut_after_it_began_is_an_answer() -> None:
    async with FakeOpenAI([thinks(piece("hel"), CUT)]) as server, OpenAIModel(server.base_url, "fake") as model:
        answer = await model.ask(question())
        assert (answer.content, answer.finish_reason, bounds(server)) == ("hel", "length", [48])


async def test_thinking_blocks_of_the_messages_api() -> None:
    heard = Heard()
    started = event("content_block_start", index=0, content_block={"type": "thinking", "thinking": ""})
    thought = event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Okay"})
    signed = event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "xyz"})
    text = event("content_block_delta", index=1, delta={"type": "text_delta", "text": "hello"})
    cut = event("message_delta", delta={"stop_reason": "max_tokens"}, usage={"output_tokens": 48})
    end = event("message_delta", delta={"stop_reason": "end_turn"})
    replies = [Reply([started, thought, signed, cut]), Reply([started, thought, signed, text, end])]
    async with FakeOpenAI(replies) as server, AnthropicModel(server.url, "m", "k") as model:
        answer = await model.ask(question(), heard)
        assert bounds(server) == [48, 1024]
    assert (answer.content, answer.usage.completion_tokens) == ("hello", 48)
    assert (heard.pieces, heard.again) == (["", "hello"], 1)
