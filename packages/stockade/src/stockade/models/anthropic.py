"""A model behind Anthropic's own API: the body of a request, its stream of events, and the adapter.

https://docs.anthropic.com/en/api/messages and .../build-with-claude/streaming
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stockade.core.messages import Message, ModelAnswer, ModelInfo, ModelRequest, Usage
from stockade.core.ports import OnText
from stockade.models.answer_builder import AnswerBuilder
from stockade.models.pricing import FREE, Price
from stockade.models.providers import is_near, is_own
from stockade.models.replies import NotSupported, as_count, as_dict, as_text, parsed
from stockade.models.settings import ModelContext
from stockade.models.special_tokens import SpecialTokenGuard
from stockade.models.transport import ServedModel, Transport, reached

DEFAULT_MAX_TOKENS = 8192
SCHEMA_TOOL = "answer"
SCHEMA = "response_format"
"""The feature that a schema is, as http_errors.NotSupported names it."""
_CACHED = {"cache_control": {"type": "ephemeral"}}
_NO_ID = re.compile(r"[^a-zA-Z0-9_-]")
_NOTHING = "(nothing)"


def body(request: ModelRequest, model: str, refused: frozenset[str] = frozenset(), *, stream: bool = True) -> bytes:
    """The whole request. `refused` are parameters that this model does not take."""
    system = "\n\n".join(message.content for message in _leading_system(request.messages) if message.content.strip())
    fields: dict[str, Any] = {"model": model, "max_tokens": request.sampling.max_tokens or DEFAULT_MAX_TOKENS}
    if system:
        fields["system"] = [{"type": "text", "text": system, **_CACHED}]
    fields["messages"] = messages(request.messages[len(_leading_system(request.messages)) :])
    tools = [_tool(tool) for tool in request.tools or ()]
    if request.schema_ is not None and SCHEMA not in refused:
        about = "Give your answer."
        tools.append({"name": SCHEMA_TOOL, "description": about, "input_schema": request.schema_})
        fields["tool_choice"] = {"type": "tool", "name": SCHEMA_TOOL}
    if tools:
        fields["tools"] = tools
    fields |= {name: value for name, value in _sampling(request).items() if name not in refused}
    if stream:
        fields["stream"] = True
    else:
        fields = {name: fields[name] for name in ("model", "system", "messages", "tools", "tool_choice")
                  if name in fields}  # fmt: skip
    # A lone surrogate cannot be sent as UTF-8; "?" instead of a crash deep in the HTTP client.
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _sampling(request: ModelRequest) -> dict[str, Any]:
    sampling = request.sampling
    stop = [text for text in request.stop or () if text.strip()]
    temperature = None if sampling.temperature is None else min(1.0, sampling.temperature)
    fields = {
        "temperature": temperature,
        # Current models take one of the two.
        "top_p": sampling.top_p if temperature is None else None,
        "top_k": sampling.top_k or None,
        "stop_sequences": stop or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _leading_system(messages: Sequence[Message]) -> Sequence[Message]:
    count = 0
    while count < len(messages) and messages[count].role == "system":
        count += 1
    return messages[:count]


def messages(conversation: Sequence[Message]) -> list[dict[str, Any]]:
    """The conversation in blocks, roles alternating; what is sent again is marked for the cache at its end."""
    result: list[dict[str, Any]] = []
    ids: dict[str, str] = {}
    for number, message in enumerate(conversation):
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message, number, ids)
        if result and result[-1]["role"] == role:
            result[-1]["content"].extend(blocks)
        else:
            result.append({"role": role, "content": blocks})
    if not result or result[0]["role"] == "assistant":
        result.insert(0, {"role": "user", "content": [{"type": "text", "text": _NOTHING}]})
    for turn in result:
        if turn["role"] == "user":
            # Results of calls have to come first; texts beside them follow.
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    result[-1]["content"][-1] |= _CACHED
    return result


def _blocks(message: Message, number: int, ids: dict[str, str]) -> list[dict[str, Any]]:
    """`ids` remembers under which id a call was sent: ours repeat when an action does, theirs must not."""
    if message.role == "tool":
        known = ids.get(message.tool_call_id or "")
        if known is None:
            return [{"type": "text", "text": message.content if message.content.strip() else _NOTHING}]
        return [{"type": "tool_result", "tool_use_id": known, "content": message.content}]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": message.content}] if message.content.strip() else []
    for position, call in enumerate(message.tool_calls or ()):
        call_id = str(call.get("id"))
        ids[call_id] = f"{_NO_ID.sub('_', call_id)[:40]}_{number}_{position}"
        function = call.get("function") or {}
        blocks.append(
            {"type": "tool_use", "id": ids[call_id], "name": function.get("name"), "input": _input(function)}
        )  # fmt: skip
    return blocks or [{"type": "text", "text": _NOTHING}]


def _input(function: dict[str, Any]) -> dict[str, Any]:
    arguments = function.get("arguments")
    return as_dict(parsed(arguments) if isinstance(arguments, str) else arguments)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function", tool)
    return {
        "name": function.get("name"),
        "description": function.get("description", ""),
        "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
    }


_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}


class AnthropicBuilder(AnswerBuilder):
    """Events are taken as pieces of a completion. With `schema`, the input of the call that was asked for is the text.

    It is heard to its end: what it costs is told behind it.
    """

    def __init__(self, schema: bool = False, price: Price | None = None) -> None:
        super().__init__(price or FREE)
        self._repeats = None
        self._schema, self._spent = schema, price or FREE
        self._kinds: dict[int, str] = {}
        self._counts: dict[str, Any] = {}

    def add(self, piece: dict[str, Any]) -> str:
        """Take one event; gives the text that is new in it."""
        index, of_type = as_count(piece.get("index")), piece.get("type")
        if of_type in ("message", "message_start"):
            return self._message(piece if of_type == "message" else as_dict(piece.get("message")))
        if of_type == "content_block_start":
            return self._start(index, as_dict(piece.get("content_block")))
        if of_type == "content_block_delta":
            return self._grow(index, as_dict(piece.get("delta")))
        return self._told(piece, as_dict(piece.get("delta"))) if of_type == "message_delta" else ""

    def _message(self, message: dict[str, Any]) -> str:
        self._told(message, message)
        blocks = content if isinstance(content := message.get("content"), list) else []
        return "".join(self._start(number, as_dict(block)) for number, block in enumerate(blocks))

    def _told(self, piece: dict[str, Any], end: dict[str, Any]) -> str:
        """What is said beside the content."""
        self._counts |= {name: value for name, value in as_dict(piece.get("usage")).items() if value is not None}
        reason = as_text(end.get("stop_reason"))
        return self._piece({}, finish_reason=_REASONS.get(reason, reason), model=piece.get("model"))

    def _start(self, index: int, block: dict[str, Any]) -> str:
        kind, name, args = as_text(block.get("type")), as_text(block.get("name")), as_dict(block.get("input"))
        if kind == "tool_use" and self._schema and name == SCHEMA_TOOL:
            kind = "answer"
        self._kinds.setdefault(index, kind)
        if kind == "tool_use":
            function = {"name": name} | ({"arguments": json.dumps(args, ensure_ascii=False)} if args else {})
            return self._piece({"tool_calls": [{"index": index, "id": block.get("id"), "function": function}]})
        if kind == "answer":
            return self._piece({"content": json.dumps(args, ensure_ascii=False) if args else ""})
        return self._grow(index, block)

    def _grow(self, index: int, more: dict[str, Any]) -> str:
        if arguments := as_text(more.get("partial_json")):
            call = {"index": index, "function": {"arguments": arguments}}
            kinds: dict[str, dict[str, Any]] = {"answer": {"content": arguments}, "tool_use": {"tool_calls": [call]}}
            return self._piece(kinds.get(self._kinds.get(index, ""), {}))
        return self._piece({"content": more.get("text"), "reasoning_content": more.get("thinking")})

    def _piece(self, delta: dict[str, Any], finish_reason: str = "", model: object = None) -> str:
        return super().add({"model": model, "choices": [{"delta": delta, "finish_reason": finish_reason}]})

    def answer(self, duration_s: float) -> ModelAnswer:
        """See AnswerBuilder. The call that was asked for is none of the model's."""
        if self.finish_reason == "tool_calls" and not self._calls:
            self.finish_reason = "stop"
        return super().answer(duration_s)

    def _counted(self) -> Usage:
        """`input_tokens` of theirs are those after the last place in the cache: ours are all of them."""
        cached = as_count(self._counts.get("cache_read_input_tokens"))
        written = as_count(self._counts.get("cache_creation_input_tokens"))
        usage = Usage(
            prompt_tokens=as_count(self._counts.get("input_tokens")) + cached + written,
            cached_tokens=cached,
            completion_tokens=as_count(self._counts.get("output_tokens")),
        )
        return usage.model_copy(update={"cost": self._spent.cost(usage, written)})


VERSION = "2023-06-01"
DEFAULT_WINDOW = 200_000


def open_served(name: str, context: ModelContext) -> "AnthropicModel":
    """One of Anthropic's, or of who speaks its API. UsageError where an address or key is missing."""
    address, price = reached(name, context)
    return AnthropicModel(address.base_url, name, headers=address.headers, price=price)


class AnthropicModel(ServedModel):
    """Implements core.ports.Model and loop.window.CountsTokens. `base_url` has no version path.

    `headers` carry the key where it is a token. `price` None: nobody told what it costs. `rest` goes to the Transport.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        price: Price | None = None,
        **rest: Any,
    ) -> None:
        sent = {"anthropic-version": VERSION, **({"x-api-key": api_key} if api_key else {}), **(headers or {})}
        hint = "set ANTHROPIC_API_KEY to a valid key"
        transport = Transport(base_url, model, sent, key_hint=hint, **rest)
        self._model, self._price = model, price
        self._guard = SpecialTokenGuard() if is_near(transport.url) else None
        self._asked = f"{transport.url}/v1/messages"
        self._refused: frozenset[str] = frozenset()
        self._counts = True
        local = is_own(transport.url)
        window = price.window if price and price.window else DEFAULT_WINDOW
        info = ModelInfo(
            name=model, provider="anthropic", local=local, native_tools=not local, priced=local or price is not None,
            context_window=None if local else window,
        )  # fmt: skip
        super().__init__(transport, info)

    async def _learn(self) -> None:
        about = await self._transport.tell(f"{self._transport.url}/v1/models/{self._model}")
        if window := as_count(about.get("max_input_tokens")):
            self._info = self._info.model_copy(update={"context_window": window})

    async def _ask(self, request: ModelRequest, on_text: OnText | None) -> ModelAnswer:
        def builder() -> AnthropicBuilder:
            return AnthropicBuilder(request.schema_ is not None and SCHEMA not in self._refused, self._price)

        asked = self._guard.request(request) if self._guard else request
        while True:
            try:
                answer = await self._transport.ask(
                    self._asked, body(asked, self._model, self._refused), builder, on_text
                )
                return self._guard.answer(answer) if self._guard else answer
            except NotSupported as error:
                if error.feature in self._refused or (error.feature == SCHEMA and request.schema_ is None):
                    raise
                self._refused |= {error.feature}

    async def count(self, request: ModelRequest) -> int | None:
        """See loop.window.CountsTokens."""
        if not self._counts:
            return None
        asked = self._guard.request(request) if self._guard else request
        reported = await self._transport.tell(f"{self._asked}/count_tokens", body(asked, self._model, stream=False))
        tokens = as_count(reported.get("input_tokens"))
        self._counts = bool(tokens)
        return tokens or None
