"""The body of a request, made so that turn 200 costs what turn 1 cost.

A conversation only grows, and messages are immutable: each is serialised once and recognised by identity afterwards.
"""

import json
from collections.abc import Mapping
from typing import Any

from stockade.core.data import Data
from stockade.core.messages import Message, ModelRequest


class Dialect(Data):
    """Where OpenAI-compatible servers differ, as data.

    `extended_sampling`: top_k, min_p and repeat_penalty are understood. `llama_cpp`: cache_prompt and id_slot are.
    """

    extended_sampling: bool = True
    llama_cpp: bool = False
    max_tokens_key: str = "max_tokens"


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def message_json(message: Message) -> str:
    """One message as OpenAI spells it. `content` is always there: some servers fail on null."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        fields["tool_calls"] = message.tool_calls
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    return _dumps(fields)


class PayloadCache:
    """The serialised messages of the last request."""

    def __init__(self) -> None:
        self._seen: list[Message] = []
        self._json: list[str] = []

    def messages(self, messages: tuple[Message, ...]) -> str:
        """The JSON list of these messages; only those not seen in the last call are serialised."""
        same = 0
        for old, new in zip(self._seen, messages, strict=False):
            if old is not new:
                break
            same += 1
        del self._seen[same:], self._json[same:]
        self._seen.extend(messages[same:])
        self._json.extend(map(message_json, messages[same:]))
        return f"[{','.join(self._json)}]"

    def body(self, request: ModelRequest, model: str, dialect: Dialect, slot: int | None = None) -> bytes:
        """The whole request, streaming asked for."""
        rest = _options(request, dialect, slot)
        text = f'{{"model":{_dumps(model)},"messages":{self.messages(request.messages)},{_dumps(rest)[1:]}'
        # A lone surrogate cannot be sent as UTF-8; "?" instead of a crash deep in the HTTP client.
        return text.encode(errors="replace")


def _options(request: ModelRequest, dialect: Dialect, slot: int | None) -> Mapping[str, Any]:
    sampling = request.sampling
    fields: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    plain = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed,
             "presence_penalty": sampling.presence_penalty, "frequency_penalty": sampling.frequency_penalty,
             dialect.max_tokens_key: sampling.max_tokens}  # fmt: skip
    extended = {"top_k": sampling.top_k, "min_p": sampling.min_p, "repeat_penalty": sampling.repeat_penalty}
    for name, value in (plain | extended if dialect.extended_sampling else plain).items():
        if value is not None:
            fields[name] = value
    if request.stop:
        fields["stop"] = request.stop
    if request.schema_ is not None:
        schema = {"name": "answer", "strict": True, "schema": request.schema_}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.tools:
        # tool_choice stays at its default: "required" makes llama.cpp write newlines until the limit.
        fields["tools"] = request.tools
    if dialect.llama_cpp:
        fields["cache_prompt"] = True
        if slot is not None:
            fields["id_slot"] = slot
    return fields
