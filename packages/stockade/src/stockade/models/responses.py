"""A model behind OpenAI's /v1/responses: the body of a request, its stream of events, and the adapter.

https://developers.openai.com/api/docs/guides/reasoning. Nothing is kept at the provider (`store` false): the items of
an answer with reasoning, encrypted by them, are on our record and go back with the next question exactly as they came.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from stockade.core.messages import Message, ModelRequest, Reasoning, Usage
from stockade.models.answer_builder import AnswerBuilder
from stockade.models.openai import OpenAIModel, Question
from stockade.models.openai import open_served as open_chat
from stockade.models.openai_request import Dialect, cache_fields
from stockade.models.pricing import Price
from stockade.models.providers import address_of
from stockade.models.replies import as_count, as_dict, as_items, as_text
from stockade.models.settings import ModelContext

_ENCRYPTED = "reasoning.encrypted_content"


def body(request: ModelRequest, model: str, dialect: Dialect, *, stream: bool = True) -> bytes:
    """The whole request, without the parameters that this model does not take."""
    sampling, refused = request.sampling, dialect.refused
    fields: dict[str, Any] = {"model": model, "input": items(request.messages)}
    reasoning: dict[str, Any] = {"effort": sampling.effort} if sampling.effort is not None else {}
    if dialect.responses and "summary" not in refused:
        reasoning["summary"] = "auto"
    if reasoning:
        fields["reasoning"] = reasoning
    if request.schema_ is not None:
        form = {"type": "json_schema", "name": "answer", "strict": True, "schema": request.schema_}
        fields["text"] = {"format": form}
    if request.tools:
        fields["tools"] = [_tool(tool) for tool in request.tools]
    if stream:
        more = {"temperature": sampling.temperature, "top_p": sampling.top_p, "max_output_tokens": sampling.max_tokens}
        fields |= {name: value for name, value in more.items() if value is not None}
        fields |= {"stream": True, "store": False, "include": [_ENCRYPTED]}
        fields |= cache_fields(request.messages, dialect.cache)
    left_out = refused | ({"text"} if "response_format" in refused else set())
    fields = {name: value for name, value in fields.items() if name not in left_out}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Not strict: that would make every parameter a required one."""
    function = tool.get("function", tool)
    return {"type": "function", "name": function.get("name"), "description": function.get("description", ""),
            "parameters": function.get("parameters") or {"type": "object", "properties": {}},
            "strict": False}  # fmt: skip


def items(conversation: Sequence[Message]) -> list[dict[str, Any]]:
    """The conversation as input items."""
    result: list[dict[str, Any]] = []
    ids: dict[str, str] = {}
    for number, message in enumerate(conversation):
        calls = message.tool_calls or ()
        if message.role == "tool":
            if (known := ids.get(message.tool_call_id or "")) is None:
                result.append({"role": "user", "content": message.content})
            else:
                result.append({"type": "function_call_output", "call_id": known, "output": message.content})
            continue
        came = _as_they_came(message)
        made = [item for item in came if item.get("type") == "function_call"]
        if came and len(made) == len(calls):
            ids |= {str(call.get("id")): as_text(item.get("call_id")) for call, item in zip(calls, made, strict=True)}
            result += came
            continue
        if message.images:
            shown = [{"type": "input_image", "image_url": one.url, "detail": "auto"} for one in message.images]
            text = {"type": "input_text", "text": message.content}
            result.append({"role": message.role, "content": [text, *shown]})
        elif message.content.strip() or not calls:
            result.append({"role": message.role, "content": message.content})
        for position, call in enumerate(calls):
            # Ours repeat when an action does, theirs must not.
            ids[str(call.get("id"))] = f"call_{call.get('id')}_{number}_{position}"[:64]
            function = as_dict(call.get("function"))
            result.append({"type": "function_call", "call_id": ids[str(call.get("id"))], "name": function.get("name"),
                           "arguments": function.get("arguments") or "{}"})  # fmt: skip
    return result


def _as_they_came(message: Message) -> list[dict[str, Any]]:
    """Its items; without reasoning at the end, which is refused where nothing follows it."""
    came = list(message.reasoning.items) if message.reasoning and message.reasoning.form == "responses" else []
    while came and came[-1].get("type") == "reasoning":
        came.pop()
    return came


class ResponsesBuilder(AnswerBuilder):
    """Events are taken as pieces of a completion. It is heard to its end: what it costs is told there."""

    def __init__(self, price: Price | None = None) -> None:
        super().__init__(price)
        self._items: dict[int, dict[str, Any]] = {}
        self._streamed: set[int] = set()

    def error_in(self, piece: dict[str, Any]) -> object:
        """See AnswerBuilder. Theirs lie in a failed response, or are an event by themselves."""
        if piece.get("type") == "response.failed":
            return as_dict(piece.get("response")).get("error") or "the response failed"
        return piece.get("error") or (piece if piece.get("type") == "error" else None)

    def add(self, piece: dict[str, Any]) -> str:
        """Take one event; gives the text that is new in it."""
        kind, index = as_text(piece.get("type")), piece.get("output_index")
        index, delta = index if type(index) is int else 0, as_text(piece.get("delta"))
        if piece.get("object") == "response":
            return self._whole(piece)
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self._streamed.add(index)
            return self._piece({"content" if kind == "response.output_text.delta" else "refusal": delta})
        if kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            return self._piece({"reasoning_content": delta})
        if kind == "response.function_call_arguments.delta":
            self._streamed.add(index)
            return self._piece({"tool_calls": [{"index": index, "function": {"arguments": delta}}]})
        if kind == "response.output_item.added":
            return self._begun(index, as_dict(piece.get("item")))
        if kind == "response.output_item.done":
            return self._done(index, as_dict(piece.get("item")))
        if kind in ("response.completed", "response.incomplete"):
            return self._ended(as_dict(piece.get("response")))
        return ""

    def _begun(self, index: int, item: dict[str, Any]) -> str:
        if item.get("type") != "function_call":
            return ""
        call = {"index": index, "id": item.get("call_id"), "function": {"name": item.get("name")}}
        return self._piece({"tool_calls": [call]})

    def _done(self, index: int, item: dict[str, Any]) -> str:
        """The item as it is whole; what of it was not told before is told now."""
        if index in self._items:
            return ""
        self._items[index] = item
        self.size += len(as_text(item.get("encrypted_content")))
        if index in self._streamed:
            return ""
        if item.get("type") == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            return self._piece({"tool_calls": [{"index": index, "id": item.get("call_id"), "function": function}]})
        content = item.get("content") if item.get("type") == "message" else None
        parts = [as_dict(part) for part in content] if isinstance(content, list) else []
        told = {name: "".join(as_text(part.get(key)) for part in parts)
                for name, key in (("content", "text"), ("refusal", "refusal"))}  # fmt: skip
        return self._piece(told)

    def _whole(self, response: dict[str, Any]) -> str:
        """An answer in one piece, from a server that does not stream."""
        output = response.get("output")
        text = "".join(
            self._done(n, as_dict(item)) for n, item in enumerate(output if isinstance(output, list) else ())
        )
        self._ended(response)
        return text

    def _ended(self, response: dict[str, Any]) -> str:
        """Some servers tell items nowhere else."""
        output = response.get("output")
        told = output if isinstance(output, list) else ()
        text = "".join(self._done(n, as_dict(item)) for n, item in enumerate(told) if n not in self._items)
        self._usage = as_dict(response.get("usage"))
        why = as_text(as_dict(response.get("incomplete_details")).get("reason"))
        reason = {"max_output_tokens": "length"}.get(why, why) or ("tool_calls" if self._calls else "stop")
        return text + self._piece({}, finish_reason=reason, model=response.get("model"))

    def _piece(self, delta: dict[str, Any], finish_reason: str = "", model: object = None) -> str:
        return super().add({"model": model, "choices": [{"delta": delta, "finish_reason": finish_reason}]})

    def _reasoning(self) -> Reasoning | None:
        """All items of an answer with reasoning, or with a phase (GPT-5.3-Codex and later want that back too)."""
        output = [self._items[index] for index in sorted(self._items)]
        if not any(item.get("type") == "reasoning" or item.get("phase") for item in output):
            return None
        kept = as_items(output)
        return Reasoning(form="responses", items=kept) if kept else None

    def _counted(self) -> Usage:
        details = as_dict(self._usage.get("input_tokens_details"))
        prompt, completion = as_count(self._usage.get("input_tokens")), as_count(self._usage.get("output_tokens"))
        thought = as_count(as_dict(self._usage.get("output_tokens_details")).get("reasoning_tokens"))
        cached = min(as_count(details.get("cached_tokens")), prompt)
        usage = Usage(
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=completion or (self._pieces if self.enough else 0),
            thinking_tokens=min(thought, completion),
        )
        written = min(as_count(details.get("cache_write_tokens")), prompt - cached)
        return self._price.priced(usage, written) if self._price else usage


def open_served(name: str, context: ModelContext) -> OpenAIModel:
    """A model of OpenAI, of Azure, or of a server that speaks as they do, by the API that the user said or that is best
    there. UsageError where its address or key is missing.
    """
    api = context.settings.api
    by_responses = address_of(context.provider, context.environment, name).dialect.responses
    chosen = by_responses if api == "auto" else api == "responses"
    return open_chat(name, context, ResponsesModel if chosen else None)


class ResponsesModel(OpenAIModel):
    """OpenAIModel that asks by /v1/responses."""

    path = "responses"

    async def _learn(self) -> None:
        await super()._learn()
        self._counts = True

    def _in_text(self, request: ModelRequest, afresh: bool) -> Question:
        asked = self._guard.request(request) if self._guard else request
        return self._asked, body(asked, self._model, self._dialect), partial(ResponsesBuilder, self._price)

    async def _in_tokens_of(self, request: ModelRequest, afresh: bool) -> Question | None:
        return None

    async def count(self, request: ModelRequest) -> int | None:
        """See loop.window.CountsTokens."""
        if not self._counts:
            return None
        asked = self._sent(self._guard.request(request) if self._guard else request)
        question = body(asked, self._model, self._dialect, stream=False)
        url, _, query = self._asked.partition("?")
        reported = await self._transport.tell(f"{url}/input_tokens{'?' if query else ''}{query}", question)
        self._counts = bool(tokens := as_count(reported.get("input_tokens")))
        return tokens or None
