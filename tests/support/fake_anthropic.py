"""Answers in the form of Anthropic's stream, for the server of fake_openai.py.

async with fake_anthropic([says("hello"), calls("shell", command="ls")]) as server:
    model = AnthropicModel(server.url, "claude")
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.support.fake_openai import End, FakeOpenAI, Reply

USAGE = (10, 4, 2, 3)
"""input_tokens, cache_read_input_tokens, cache_creation_input_tokens, output_tokens"""


def event(kind: str, **fields: Any) -> bytes:
    """One event, named twice as theirs are."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def start(usage: Sequence[int] = USAGE) -> bytes:
    """The first event."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    counted = dict(zip(names, usage, strict=False)) | {"output_tokens": 1}
    return event("message_start", message={"id": "m", "model": "fake", "role": "assistant", "content": [],
                                           "stop_reason": None, "usage": counted})  # fmt: skip


def end(reason: str = "end_turn", usage: Sequence[int] = USAGE) -> list[bytes]:
    """The last two events."""
    delta = event("message_delta", delta={"stop_reason": reason, "stop_sequence": None},
                 usage={"output_tokens": usage[3]})  # fmt: skip
    return [delta, event("message_stop")]


def text(*pieces: str, index: int = 0) -> list[bytes]:
    """A block of text."""
    deltas = [event("content_block_delta", index=index, delta={"type": "text_delta", "text": one}) for one in pieces]
    first = event("content_block_start", index=index, content_block={"type": "text", "text": ""})
    return [first, event("ping"), *deltas, event("content_block_stop", index=index)]


def call(name: str, arguments: dict[str, Any], index: int = 0) -> list[bytes]:
    """A block with a call, its arguments in two pieces."""
    spelled = json.dumps(arguments)
    halves = spelled[: len(spelled) // 2], spelled[len(spelled) // 2 :]
    deltas = [
        event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": half})
        for half in halves
    ]
    block = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
    return [event("content_block_start", index=index, content_block=block), *deltas,
            event("content_block_stop", index=index)]  # fmt: skip


def says(words: str, reason: str = "end_turn") -> Reply:
    """A well-behaved answer in words."""
    return reply([start(), *text(*(f"{word} " for word in words.split(" ")[:-1]), words.split(" ")[-1]), *end(reason)])


def calls(name: str, /, **arguments: Any) -> Reply:
    """A well-behaved call of a tool."""
    return reply([start(), *call(name, arguments), *end("tool_use")])


def reply(pieces: Sequence[bytes], how: End = "no_done") -> Reply:
    """Events as they are; theirs know no [DONE]."""
    return Reply(pieces, end=how)


def fails(status: int, kind: str, message: str = "no", headers: dict[str, str] | None = None) -> Reply:
    """An error as Anthropic writes it."""
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "r"}).encode()
    return Reply(status=status, headers=headers or {}, body=body)


def fake_anthropic(replies: Iterable[Reply] = (), routes: Mapping[str, object] | None = None) -> FakeOpenAI:
    """The server; when no reply is left it says "ok"."""
    return FakeOpenAI(replies, routes=routes, otherwise=lambda: says("ok"))
