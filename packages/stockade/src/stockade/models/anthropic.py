"""A model behind Anthropic's own API: the body of a request, its stream of events, and the adapter.

https://docs.anthropic.com/en/api/messages and .../build-with-claude/streaming. An answer with thinking goes back with
the very blocks that it came in, signatures among them: .../build-with-claude/extended-thinking.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stockade.core.data import Data
from stockade.core.messages import Message, ModelAnswer, ModelInfo, ModelRequest, Reasoning, Usage
from stockade.core.ports import OnText
from stockade.core.settings import Effort, nearest_effort
from stockade.models.answer_builder import AnswerBuilder
from stockade.models.pricing import FREE, Price
from stockade.models.providers import is_near, is_own
from stockade.models.replies import NotSupported, as_count, as_dict, as_items, as_text, parsed
from stockade.models.settings import ModelContext
from stockade.models.special_tokens import SpecialTokenGuard
from stockade.models.transport import ServedModel, Transport, reached

DEFAULT_MAX_TOKENS = 8192
"""Of an answer that nobody bounds, where the server does not say how much it gives."""
SCHEMA_TOOL = "answer"
SCHEMA = "response_format"
"""The feature that a schema is, as http_errors.NotSupported names it."""
_CACHED = {"cache_control": {"type": "ephemeral"}}
LONG_TOKENS = 32_768
"""What an answer has where nobody bounds it and its server gives as much; one of a model that thinks has it also where
the server does not say: a file of a thousand lines is longer than the default.
"""
_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 8192, "high": 16_384, "xhigh": 24_576, "max": 31_744}
"""Tokens to think in, of models that know no effort: https://docs.anthropic.com/en/docs/build-with-claude/effort."""
_LEVELS: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
_THOUGHTS = ("thinking", "redacted_thinking")
_NO_ID = re.compile(r"[^a-zA-Z0-9_-]")
_NOTHING = "(nothing)"


class Abilities(Data):
    """What Anthropic tells of a model's thinking; None where it was not asked, or did not say. `shown`: False where it
    was seen to refuse a summary of it.
    """

    shown: bool | None = None
    adaptive: bool | None = None
    budget: bool | None = None
    off: bool | None = None
    levels: tuple[Effort, ...] | None = None
    max_tokens: int | None = None

    @classmethod
    def told(cls, about: Mapping[str, Any]) -> "Abilities":
        """By `capabilities` of /v1/models/NAME."""
        can = as_dict(about.get("capabilities"))
        types, effort = as_dict(as_dict(can.get("thinking")).get("types")), as_dict(can.get("effort"))

        def has(table: dict[str, Any], name: str) -> bool | None:
            supported = as_dict(table.get(name)).get("supported")
            return supported if isinstance(supported, bool) else None

        levels = tuple(level for level in _LEVELS if has(effort, level))
        return cls(
            adaptive=has(types, "adaptive"), budget=has(types, "enabled"), off=has(types, "disabled"),
            levels=levels if effort else None, max_tokens=as_count(about.get("max_tokens")) or None,
        )  # fmt: skip


def thinking(request: ModelRequest, can: Abilities) -> dict[str, Any]:
    """How much it shall think, in fields of the request; `max_tokens` among them, which thinking counts towards."""
    effort, asked = request.sampling.effort, request.sampling.max_tokens
    levels = _LEVELS if can.levels is None else can.levels
    most = min(LONG_TOKENS, can.max_tokens or LONG_TOKENS)
    bound = asked or (most if can.max_tokens else DEFAULT_MAX_TOKENS)
    # What is said between calls may come as a summary in a block of thinking: without asking it is an empty one.
    shown = {"display": "summarized"} if can.adaptive and can.shown is not False else {}
    adaptive = {"thinking": {"type": "adaptive", **shown}}
    always = adaptive if can.adaptive and can.off is False else {}
    if effort is None:
        return {"max_tokens": bound, **always}
    if effort == "none":
        level = nearest_effort("low", levels) if can.off is False else None
        off = always if can.off is False else {"thinking": {"type": "disabled"}}
        return {"max_tokens": bound, **off, **({"output_config": {"effort": level}} if level else {})}
    fields: dict[str, Any] = {"max_tokens": asked or most}
    if level := nearest_effort(effort, levels):
        fields["output_config"] = {"effort": level}
    if can.adaptive is not False:
        return {**adaptive, **fields}
    budget = min(_BUDGETS[effort], fields["max_tokens"] - 1024)
    if can.budget is False or budget < 1024 or not _begins_with_thinking(request.messages):
        return fields
    return {"thinking": {"type": "enabled", "budget_tokens": budget}, **fields}


def _begins_with_thinking(messages: Sequence[Message]) -> bool:
    """Whether the turn that goes on may have thinking: its answers so far had it, or there was none yet."""
    last = next((message for message in reversed(messages) if message.role in ("assistant", "user")), None)
    if last is None or last.role == "user" or not last.tool_calls:
        return True
    return last.reasoning is not None and as_text(last.reasoning.items[0].get("type")) in _THOUGHTS


def body(
    request: ModelRequest, model: str, refused: frozenset[str] = frozenset(), *, stream: bool = True,
    can: Abilities | None = None,
) -> bytes:  # fmt: skip
    """The whole request. `refused` are parameters that this model does not take; `can` is what it can."""
    thought = thinking(request, can or Abilities())
    fields: dict[str, Any] = {"model": model, "max_tokens": thought.pop("max_tokens")}
    fields |= {name: value for name, value in thought.items() if name not in refused}
    thinks = as_dict(fields.get("thinking")).get("type") in ("adaptive", "enabled")
    system = "\n\n".join(message.content for message in _leading_system(request.messages) if message.content.strip())
    if system:
        fields["system"] = [{"type": "text", "text": system, **_CACHED}]
    fields["messages"] = messages(request.messages[len(_leading_system(request.messages)) :])
    tools = [_tool(tool) for tool in request.tools or ()]
    if request.schema_ is not None and SCHEMA not in refused and (thinks or "tool_choice" in refused):
        # A call cannot be asked for while it thinks, and of models that always do never.
        form = {"type": "json_schema", "schema": request.schema_}
        fields["output_config"] = {**fields.get("output_config", {}), "format": form}
    elif request.schema_ is not None and SCHEMA not in refused:
        about = "Give your answer."
        tools.append({"name": SCHEMA_TOOL, "description": about, "input_schema": request.schema_})
        fields["tool_choice"] = {"type": "tool", "name": SCHEMA_TOOL}
    if tools:
        fields["tools"] = tools
    sampling = _sampling(request)
    if thinks:  # which is drawn as the model was made for
        sampling = {name: value for name, value in sampling.items() if name == "stop_sequences"}
    fields |= {name: value for name, value in sampling.items() if name not in refused}
    if stream:
        fields["stream"] = True
    else:
        fields = {name: fields[name] for name in ("model", "system", "messages", "tools", "tool_choice", "thinking")
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
    """The conversation in blocks, roles alternating; what is sent again is marked for the cache at its end, and where
    the question before ended: from a mark they look back over twenty blocks, which many calls in one turn are more than
    (https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching).
    """
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
    for turn in (*result[-3:-2], result[-1]):
        turn["content"][-1] |= _CACHED
    return result


def _blocks(message: Message, number: int, ids: dict[str, str]) -> list[dict[str, Any]]:
    """`ids` remembers under which id a call was sent: ours repeat when an action does, theirs must not."""
    if message.role == "tool":
        known = ids.get(message.tool_call_id or "")
        if known is None:
            return [{"type": "text", "text": message.content if message.content.strip() else _NOTHING}]
        return [{"type": "tool_result", "tool_use_id": known, "content": message.content}]
    came, calls = _as_it_came(message), message.tool_calls or ()
    uses = [block for block in came if block.get("type") == "tool_use"]
    if came and len(uses) == len(calls):
        ids |= {str(call.get("id")): as_text(use.get("id")) for call, use in zip(calls, uses, strict=True)}
        return came
    blocks = [block for block in came if block.get("type") in _THOUGHTS]
    blocks += [
        {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.base64}}
        for image in message.images
    ]
    blocks += [{"type": "text", "text": message.content}] if message.content.strip() else []
    for position, call in enumerate(calls):
        call_id = str(call.get("id"))
        ids[call_id] = f"{_NO_ID.sub('_', call_id)[:40]}_{number}_{position}"
        function = call.get("function") or {}
        blocks.append(
            {"type": "tool_use", "id": ids[call_id], "name": function.get("name"), "input": _input(function)}
        )  # fmt: skip
    return blocks or [{"type": "text", "text": _NOTHING}]


def _as_it_came(message: Message) -> list[dict[str, Any]]:
    """Its blocks, but for texts that are empty: those are sent by Anthropic and not taken by it."""
    if message.reasoning is None or message.reasoning.form != "anthropic":
        return []
    return [dict(block) for block in message.reasoning.items
            if block.get("type") != "text" or as_text(block.get("text")).strip()]  # fmt: skip


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
        self._blocks: dict[int, dict[str, Any]] = {}
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
        reason, details = as_text(end.get("stop_reason")), as_dict(end.get("stop_details"))
        if reason == "refusal":
            self.why_not = ": ".join(filter(None, (as_text(details.get(name)) for name in ("category", "explanation"))))
        return self._piece({}, finish_reason=_REASONS.get(reason, reason), model=piece.get("model"))

    def _start(self, index: int, block: dict[str, Any]) -> str:
        kind, name, args = as_text(block.get("type")), as_text(block.get("name")), as_dict(block.get("input"))
        if kind == "tool_use" and self._schema and name == SCHEMA_TOOL:
            kind = "answer"
        self._kinds.setdefault(index, kind)
        self._blocks.setdefault(index, dict(block))
        if kind == "tool_use":
            function = {"name": name} | ({"arguments": json.dumps(args, ensure_ascii=False)} if args else {})
            return self._piece({"tool_calls": [{"index": index, "id": block.get("id"), "function": function}]})
        if kind == "answer":
            return self._piece({"content": json.dumps(args, ensure_ascii=False) if args else ""})
        return self._grow(index, block)

    def _grow(self, index: int, more: dict[str, Any]) -> str:
        block = self._blocks.setdefault(index, {})
        if as_text(more.get("type")).endswith("_delta"):
            for name in ("text", "thinking", "signature", "partial_json"):
                if isinstance(piece := more.get(name), str):
                    block[name] = f"{as_text(block.get(name))}{piece}"
        self.size += len(as_text(more.get("signature"))) + len(as_text(more.get("data")))
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

    def _reasoning(self) -> Reasoning | None:
        """All blocks of an answer with thinking, where calls are to be answered."""
        blocks = [_whole(self._blocks[index]) for index in sorted(self._blocks)]
        if self._schema or not self._calls or not any(block.get("type") in _THOUGHTS for block in blocks):
            return None
        items = as_items(blocks)
        return Reasoning(form="anthropic", items=items) if items else None

    def _counted(self) -> Usage:
        """`input_tokens` of theirs are those after the last place in the cache: ours are all of them."""
        cached = as_count(self._counts.get("cache_read_input_tokens"))
        written = as_count(self._counts.get("cache_creation_input_tokens"))
        completion = as_count(self._counts.get("output_tokens"))
        thought = as_count(as_dict(self._counts.get("output_tokens_details")).get("thinking_tokens"))
        usage = Usage(
            prompt_tokens=as_count(self._counts.get("input_tokens")) + cached + written,
            cached_tokens=cached,
            completion_tokens=completion,
            thinking_tokens=min(thought, completion),
        )
        return self._spent.priced(usage, written)


def _whole(block: dict[str, Any]) -> dict[str, Any]:
    """A block that has come to its end, the input of its call read. Thinking that is not shown has an empty text, which
    is wanted back.
    """
    block = {"thinking": "", **block} if block.get("type") == "thinking" else block
    spelled = block.pop("partial_json", None)
    return block if spelled is None else {**block, "input": as_dict(parsed(spelled))}


VERSION = "2023-06-01"
DEFAULT_WINDOW = 200_000


def open_served(name: str, context: ModelContext) -> "AnthropicModel":
    """One of Anthropic's, or of who speaks its API. UsageError where an address or key is missing."""
    address, price = reached(name, context)
    return AnthropicModel(address.base_url, name, headers=address.headers, price=price, on_progress=context.on_progress)


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
        self._can = Abilities()
        self._counts = True
        local = is_own(transport.url)
        window = price.window if price and price.window else DEFAULT_WINDOW
        info = ModelInfo(
            name=model, provider="anthropic", local=local, native_tools=not local, priced=local or price is not None,
            context_window=None if local else window, sees=price.images if price and not local else None,
            sources=price.told if price and not local else {},
        )  # fmt: skip
        super().__init__(transport, info)
        self._listing = f"{transport.url}/v1/models?limit=1000"

    async def _learn(self) -> None:
        about = await self._transport.tell(f"{self._transport.url}/v1/models/{self._model}")
        if window := as_count(about.get("max_input_tokens")):
            self._info = self._info.model_copy(update={"context_window": window})
        sees = as_dict(as_dict(about.get("capabilities")).get("image_input")).get("supported")
        if isinstance(sees, bool):
            sources = {**self._info.sources, "sees": "the server's /v1/models"}
            self._info = self._info.model_copy(update={"sees": sees, "sources": sources})
        self._can = Abilities.told(about)

    def _without(self, feature: str, request: ModelRequest) -> bool:
        """Whether there is another way to ask, without `feature`."""
        if feature == "display" and self._can.shown is not False:
            self._can = self._can.model_copy(update={"shown": False})
            return True
        if feature == "thinking" and request.sampling.effort == "none" and self._can.off is not False:
            self._can = self._can.model_copy(update={"off": False})
            return True
        if feature == "thinking" and (self._can.adaptive, self._can.budget) != (False, False):
            older = self._can.adaptive is not False and self._can.budget is not False
            self._can = self._can.model_copy(update={"adaptive": False, **({} if older else {"budget": False})})
            return True
        feature = "output_config" if feature == "effort" else feature
        if feature in self._refused or (feature in (SCHEMA, "tool_choice") and request.schema_ is None):
            return False
        self._refused |= {feature}
        return True

    async def _ask(self, request: ModelRequest, on_text: OnText | None) -> ModelAnswer:
        def builder() -> AnthropicBuilder:
            return AnthropicBuilder(request.schema_ is not None and SCHEMA not in self._refused, self._price)

        asked = self._guard.request(request) if self._guard else request
        while True:
            sent = self._sent(asked)
            try:
                answer = await self._transport.ask(
                    self._asked, body(sent, self._model, self._refused, can=self._can), builder, on_text
                )
                return self._guard.answer(answer) if self._guard else answer
            except NotSupported as error:
                if not self._left_out(error, sent, self._without):
                    raise

    async def count(self, request: ModelRequest) -> int | None:
        """See loop.window.CountsTokens."""
        if not self._counts:
            return None
        asked = self._sent(self._guard.request(request) if self._guard else request)
        question = body(asked, self._model, self._refused, stream=False, can=self._can)
        reported = await self._transport.tell(f"{self._asked}/count_tokens", question)
        tokens = as_count(reported.get("input_tokens"))
        self._counts = bool(tokens)
        return tokens or None
