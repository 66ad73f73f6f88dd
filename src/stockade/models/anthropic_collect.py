"""Events of Anthropic's stream put together, or a whole answer where the server does not stream.

https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

import json
from typing import Any

from stockade.core.messages import ModelAnswer, Usage
from stockade.models.anthropic_payload import SCHEMA_TOOL
from stockade.models.collect import checked
from stockade.models.prices import FREE, Price
from stockade.models.values import as_count, as_dict, as_text

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}


class _Block:
    def __init__(self, kind: str, call_id: str = "", name: str = "") -> None:
        self.kind, self.id, self.name = kind, call_id, name
        self.pieces: list[str] = []

    @property
    def whole(self) -> str:
        return "".join(self.pieces)


class AnthropicBuilder:
    """Implements transport.Builder. With `schema`, the input of the call that was asked for is the text. Thinking is
    counted and not kept.
    """

    def __init__(self, schema: bool = False, price: Price | None = None) -> None:
        self.size = 0
        self.thoughts = 0
        self._schema, self._price = schema, price or FREE
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, Any] = {}
        self._reason = ""
        self._stopped = False
        self._model = ""

    @property
    def ended(self) -> bool:
        return bool(self._reason)

    @property
    def enough(self) -> bool:
        return False  # what it costs is told behind it

    @property
    def empty(self) -> bool:
        return not any(block.pieces or block.kind == "tool_use" for block in self._blocks.values())

    def add(self, piece: dict[str, Any]) -> str:
        """Take one event; gives the text that is new in it."""
        match piece.get("type"):
            case "message_start":
                self._message(as_dict(piece.get("message")))
            case "message":
                return self._message(piece)
            case "content_block_start":
                return self._start(_index(piece), as_dict(piece.get("content_block")))
            case "content_block_delta":
                return self._delta(_index(piece), as_dict(piece.get("delta")))
            case "message_delta":
                self._reason = as_text(as_dict(piece.get("delta")).get("stop_reason")) or self._reason
                self._count(piece)
            case _:
                pass
        return ""

    def _message(self, message: dict[str, Any]) -> str:
        self._model = as_text(message.get("model")) or self._model
        self._reason = as_text(message.get("stop_reason"))
        self._count(message)
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        return "".join(self._start(number, as_dict(block)) for number, block in enumerate(blocks))

    def _count(self, piece: dict[str, Any]) -> None:
        self._usage |= {name: value for name, value in as_dict(piece.get("usage")).items() if value is not None}

    def _start(self, index: int, block: dict[str, Any]) -> str:
        kind = as_text(block.get("type"))
        if index not in self._blocks:
            self._blocks[index] = _Block(kind, as_text(block.get("id")), as_text(block.get("name")))
            self.size += 64
        if kind == "text":
            return self._grow(index, as_text(block.get("text")))
        if kind == "thinking":
            return self._think(as_text(block.get("thinking")))
        given = block.get("input")
        return self._grow(index, json.dumps(given, ensure_ascii=False)) if given and isinstance(given, dict) else ""

    def _delta(self, index: int, delta: dict[str, Any]) -> str:
        if index not in self._blocks:
            self._blocks[index] = _Block("text" if delta.get("type") == "text_delta" else "unknown")
        match delta.get("type"):
            case "text_delta":
                return self._grow(index, as_text(delta.get("text")))
            case "thinking_delta":
                return self._think(as_text(delta.get("thinking")))
            case "input_json_delta":
                return self._grow(index, as_text(delta.get("partial_json")))
            case _:
                return ""

    def _think(self, text: str) -> str:
        self.thoughts += bool(text)
        self.size += len(text)
        return ""

    def _grow(self, index: int, text: str) -> str:
        block = self._blocks[index]
        if text:
            block.pieces.append(text)
            self.size += len(text)
        return text if block.kind == "text" or (self._schema and block.name == SCHEMA_TOOL) else ""

    def answer(self, duration_s: float) -> ModelAnswer:
        """All of it as one answer. Raises as collect.checked does."""
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        asked = [block for block in blocks if self._schema and block.name == SCHEMA_TOOL]
        calls = tuple(
            {
                "id": block.id or f"call_{number}",
                "type": "function",
                "function": {"name": block.name, "arguments": block.whole or "{}"},
            }
            for number, block in enumerate(blocks, 1)
            if block.kind == "tool_use" and block not in asked
        )
        reason = _REASONS.get(self._reason, self._reason or "stop")
        content = "".join(block.whole for block in blocks if block.kind == "text" or block in asked)
        answer = ModelAnswer(
            content=content, tool_calls=calls,
            finish_reason="stop" if reason == "tool_calls" and not calls else reason,
            usage=self._counted(), duration_s=duration_s, model=self._model,
        )  # fmt: skip
        return checked(answer, self.thoughts)

    def _counted(self) -> Usage:
        """`input_tokens` of theirs are those after the last place in the cache: ours are all of them."""
        cached = as_count(self._usage.get("cache_read_input_tokens"))
        written = as_count(self._usage.get("cache_creation_input_tokens"))
        usage = Usage(
            prompt_tokens=as_count(self._usage.get("input_tokens")) + cached + written,
            cached_tokens=cached,
            completion_tokens=as_count(self._usage.get("output_tokens")),
        )
        return usage.model_copy(update={"cost": self._price.cost(usage, written)})


def _index(piece: dict[str, Any]) -> int:
    index = piece.get("index")
    return index if isinstance(index, int) else 0
