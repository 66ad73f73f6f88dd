"""The official SDKs with the servers of tests/support/fake_reasoning.py: they read what those say, what they send back
is taken, and what would be wrong of it is refused as the real ones refuse it. So the fakes are true where ours rely on
them.
"""

import copy
from typing import Any

import anthropic
import openai
import pytest
from tests.support.fake_reasoning import Claude, Gpt

pytestmark = pytest.mark.anyio
LS = ("shell", {"command": "ls"})
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_anthropics() -> None:
    claude = Claude()
    turns = [
        claude.turn("Ünï", redacted="r", text="Words", calls=[LS], split=3),
        claude.turn("more", text="end", split=1),
    ]
    asked: dict[str, Any] = {
        "model": "claude-x", "max_tokens": 9000, "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"},
        "tools": [{"name": "shell", "description": "", "input_schema": SCHEMA}],
    }  # fmt: skip
    async with (
        claude.server(turns) as server,
        anthropic.AsyncAnthropic(api_key="k", base_url=server.url, max_retries=0) as client,
    ):
        about = await client.models.retrieve("claude-x")
        assert about.capabilities is not None
        assert about.capabilities.thinking.types.adaptive.supported
        messages: list[Any] = [{"role": "user", "content": "go"}]
        async with client.messages.stream(messages=messages, **asked) as stream:
            first = await stream.get_final_message()
        assert [block.type for block in first.content] == ["thinking", "redacted_thinking", "text", "tool_use"]
        details = first.usage.output_tokens_details
        assert details is not None
        assert details.thinking_tokens == 20
        result = {"type": "tool_result", "tool_use_id": first.content[3].id, "content": "out"}
        blocks = [block.model_dump(exclude_none=True) for block in first.content]
        messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
        async with client.messages.stream(messages=messages, **asked) as stream:
            assert (await stream.get_final_message()).content[-1].text == "end"
        changed, left_out = copy.deepcopy(messages), copy.deepcopy(messages)
        changed[1]["content"][0]["thinking"] += "."
        del left_out[1]["content"][1]
        for sent, rest, said in (
            (changed, {}, "Invalid `signature` in `thinking` block"),
            (left_out, {}, "cannot be modified"),
            (messages, {"extra_body": {"temperature": 0.5}}, "may only be set to 1"),
            (messages, {"tool_choice": {"type": "tool", "name": "shell"}}, "forces tool use"),
        ):
            with pytest.raises(anthropic.BadRequestError, match=said):
                await client.messages.create(messages=sent, **asked, **rest)


async def test_openais() -> None:
    gpt = Gpt()
    turns = [gpt.turn("sum", text="Words", calls=[LS], split=3), gpt.turn("x", text="end", split=1)]
    asked: dict[str, Any] = {
        "model": "o", "store": False, "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "high"},
        "tools": [{"type": "function", "name": "shell", "description": "", "parameters": SCHEMA, "strict": False}],
    }  # fmt: skip
    async with (
        gpt.server(turns) as server,
        openai.AsyncOpenAI(api_key="k", base_url=server.base_url, max_retries=0) as client,
    ):
        items: list[Any] = [{"role": "user", "content": "go"}]
        async with client.responses.stream(input=items, **asked) as stream:
            first = await stream.get_final_response()
        assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
        assert first.output_text == "Words"
        assert first.usage is not None
        assert first.usage.output_tokens_details.reasoning_tokens == 20
        items += [_plain(item.model_dump(exclude_none=True)) for item in first.output]
        items.append({"type": "function_call_output", "call_id": items[-1]["call_id"], "output": "x"})
        async with client.responses.stream(input=items, **asked) as stream:
            assert (await stream.get_final_response()).output_text == "end"
        changed = copy.deepcopy(items)
        changed[1]["encrypted_content"] = "other"
        for sent, rest, said in (
            (items[:2], {}, "without its required following item"),
            ([items[0], *items[2:]], {}, "without its required 'reasoning' item"),
            (changed, {}, "could not be verified"),
            (items[:-1], {}, "No tool output found"),
            (items, {"temperature": 0.2}, "'temperature' is not supported"),
        ):
            with pytest.raises(openai.BadRequestError, match=said):
                await client.responses.create(input=sent, **asked, **rest)


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    """Without what the SDK adds to what it reads."""
    item.pop("parsed_arguments", None)
    for part in item.get("content", ()):
        part.pop("parsed", None)
    return item
