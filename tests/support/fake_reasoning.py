"""Anthropic's Messages and OpenAI's Responses of a model that reasons, as strict as theirs: what it once said has to
come back as it was, and each refusal has the words of the real one. For the server of fake_openai.py.

    claude = Claude()
    server = claude.server([claude.turn("I count.", calls=[("shell", {"command": "ls"})]), claude.turn("", text="3")])

The official SDKs read the streams of both (tests/integrations/suites/reasoning.py).
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from tests.support import fake_anthropic as theirs
from tests.support.fake_openai import Asked, FakeOpenAI, Reply, fails

_UNREADABLE = "Encrypted content could not be decrypted or parsed."
Calls = Sequence[tuple[str, dict[str, Any]]]
_CHANGED = ("`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks"
            " must remain as they were in the original response.")  # fmt: skip
_BEGINS = ("Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final"
           " `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and"
           " `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this"
           " requirement, disable `thinking`.")  # fmt: skip


def _sealed(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Claude:
    """`key` is what it signs with. `types` are the kinds of thinking that it takes; `told` whether it says so."""

    def __init__(self, key: str = "one", types: Sequence[str] = ("adaptive",), *, told: bool = True) -> None:
        self.key, self.types, self.told = key, types, told
        self.thoughts: dict[str, list[dict[str, Any]]] = {}
        """The thinking that stood before a call, by the call's id."""
        self._count = 0

    def turn(
        self, thinking: str, *, calls: Calls = (), text: str = "", redacted: str = "",
        usage: Sequence[int] = (10, 4, 2, 30), thought: int = 20, split: int = 0,
    ) -> Reply:  # fmt: skip
        """An answer with thinking, then text, then calls. `thought` of its tokens were thinking. `split`: see Reply."""
        blocks: list[dict[str, Any]] = []
        if thinking:
            blocks.append({"type": "thinking", "thinking": thinking, "signature": _sealed(self.key, thinking)})
        if redacted:
            blocks.append({"type": "redacted_thinking", "data": _sealed(self.key, redacted)})
        thoughts = list(blocks)
        blocks += [{"type": "text", "text": text}] if text else []
        for name, arguments in calls:
            self._count += 1
            call_id = f"toolu_{self._count:04}"
            blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
            self.thoughts[call_id] = thoughts
        pieces = [theirs.start(usage)]
        for index, block in enumerate(blocks):
            pieces += self._streamed(index, block)
        end = theirs.event(
            "message_delta", delta={"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None},
            usage={"output_tokens": usage[3], "output_tokens_details": {"thinking_tokens": thought}},
        )  # fmt: skip
        return Reply([*pieces, end, theirs.event("message_stop")], end="no_done", split=split)

    @staticmethod
    def _streamed(index: int, block: dict[str, Any]) -> list[bytes]:
        def delta(kind: str, **fields: str) -> bytes:
            return theirs.event("content_block_delta", index=index, delta={"type": kind, **fields})

        kind, empty = block["type"], dict(block)
        deltas: list[bytes] = []
        if kind == "thinking":
            half = len(block["thinking"]) // 2
            empty |= {"thinking": "", "signature": ""}
            deltas = [
                delta("thinking_delta", thinking=part) for part in (block["thinking"][:half], block["thinking"][half:])
            ]
            deltas.append(delta("signature_delta", signature=block["signature"]))
        elif kind == "text":
            empty["text"], deltas = "", [delta("text_delta", text=block["text"])]
        elif kind == "tool_use":
            spelled = json.dumps(block["input"])
            empty["input"] = {}
            deltas = [delta("input_json_delta", partial_json=part) for part in ("", spelled[:7], spelled[7:])]
        first = theirs.event("content_block_start", index=index, content_block=empty)
        return [first, *deltas, theirs.event("content_block_stop", index=index)]

    def server(self, replies: Sequence[Reply], **rest: Any) -> FakeOpenAI:
        """A server of this model, `claude-x`."""
        kinds = {kind: {"supported": kind in self.types} for kind in ("adaptive", "enabled", "disabled")}
        levels = {level: {"supported": True} for level in ("low", "medium", "high", "max")}
        can = {"thinking": {"supported": True, "types": kinds}, "effort": {"supported": True, **levels}}
        about = {"id": "claude-x", "max_input_tokens": 200_000, "max_tokens": 64_000}
        routes = {"/v1/models/claude-x": about | ({"capabilities": can} if self.told else {})}
        return FakeOpenAI(replies, routes=routes, refuses=self.refuses, **rest)

    def refuses(self, asked: Asked) -> Reply | None:
        """The refusal of a request that theirs would refuse."""
        said = None if asked.path.endswith("count_tokens") else self._wrong(asked.body)
        return None if said is None else theirs.fails(400, "invalid_request_error", said)

    def _wrong(self, body: dict[str, Any]) -> str | None:
        thinking = body.get("thinking", {"type": "disabled"})
        on = thinking["type"] in ("adaptive", "enabled")
        if on and thinking["type"] not in self.types:
            name = "adaptive thinking" if thinking["type"] == "adaptive" else '"thinking.type.enabled"'
            return f"{name} is not supported on this model"
        if on and body.get("temperature", 1) != 1:
            return "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode."
        if on and body.get("tool_choice", {}).get("type") in ("tool", "any"):
            return "Thinking may not be enabled when tool_choice forces tool use."
        if thinking.get("budget_tokens", 0) >= body["max_tokens"]:
            return "`max_tokens` must be greater than `thinking.budget_tokens`."
        messages = [message | {"content": _blocks(message["content"])} for message in body["messages"]]
        return self._wrong_in(messages, thinking["type"])

    def _wrong_in(self, messages: list[dict[str, Any]], kind: str) -> str | None:
        last = max((n for n, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
        for number, message in enumerate(messages):
            blocks = message["content"]
            for place, block in enumerate(blocks):
                where = f"messages.{number}.content.{place}"
                if block["type"] == "thinking" and block["signature"] != _sealed(self.key, block["thinking"]):
                    return f"{where}: Invalid `signature` in `thinking` block"
                if block["type"] == "text" and not block["text"].strip():
                    return f"{where}: text content blocks must contain non-whitespace text"
            if said := _calls_wrong(messages, number):
                return said
            uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if number != last or not uses:
                continue
            thoughts = [block for block in blocks if block["type"] in ("thinking", "redacted_thinking")]
            if thoughts and thoughts != self.thoughts.get(uses[0]):
                return f"messages.{number}.content.0: {_CHANGED}"
            if kind == "enabled" and blocks[0] not in thoughts:
                return f"messages.{number}.content.0.type: {_BEGINS}"
        return None


def _blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _calls_wrong(messages: list[dict[str, Any]], number: int) -> str | None:
    blocks = messages[number]["content"]
    before = messages[number - 1]["content"] if number else []
    uses = [block["id"] for block in before if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    for result in results:
        if result not in uses:
            return f"messages.{number}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {result}."
    if missing := [use for use in uses if use not in results]:
        return f"messages.{number - 1}: `tool_use` ids were found without `tool_result` blocks: {', '.join(missing)}."
    return None


class Gpt:
    """A reasoning model behind /v1/responses. `key` is what it encrypts with."""

    def __init__(self, key: str = "one") -> None:
        self.key = key
        self.reasons: dict[str, str] = {}
        """The reasoning that stood before an item, by their ids."""
        self._count = 0

    def turn(
        self, summary: str, *, calls: Calls = (), text: str = "", usage: Sequence[int] = (10, 4, 30), thought: int = 20,
        split: int = 0,
    ) -> Reply:  # fmt: skip
        """An answer: reasoning, then a message, then calls. `usage`: input, cached and output tokens."""
        output: list[dict[str, Any]] = []
        self._count += 1
        reason = f"rs_{self._count:04}"
        output.append({
            "id": reason, "type": "reasoning",
            "summary": [{"type": "summary_text", "text": summary}] if summary else [],
            "encrypted_content": _sealed(self.key, reason), "status": None,
        })  # fmt: skip
        if text:
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            output.append({"id": f"msg_{self._count:04}", "type": "message", "role": "assistant", "status": "completed",
                           "content": [part]})  # fmt: skip
        for number, (name, arguments) in enumerate(calls):
            output.append({"id": f"fc_{self._count:04}_{number}", "type": "function_call", "status": "completed",
                           "call_id": f"call_{self._count:04}_{number}", "name": name,
                           "arguments": json.dumps(arguments)})  # fmt: skip
        self.reasons |= {item["id"]: reason for item in output[1:2]}
        read = {"cached_tokens": usage[1], "cache_write_tokens": 0}
        counted = {"input_tokens": usage[0], "input_tokens_details": read,
                   "output_tokens": usage[2], "output_tokens_details": {"reasoning_tokens": thought},
                   "total_tokens": usage[0] + usage[2]}  # fmt: skip
        response = {"id": f"resp_{self._count}", "object": "response", "created_at": 1, "model": "fake", "error": None,
                    "status": "in_progress", "output": [], "parallel_tool_calls": True, "tools": [],
                    "tool_choice": "auto", "incomplete_details": None, "usage": None}  # fmt: skip
        events: list[dict[str, Any]] = [{"type": "response.created", "response": response}]
        for index, item in enumerate(output):
            events += _events_of(index, item)
        done = response | {"status": "completed", "output": output, "usage": counted}
        events.append({"type": "response.completed", "response": done})
        pieces = [_event(event | {"sequence_number": number}) for number, event in enumerate(events)]
        return Reply(pieces, end="no_done", split=split)

    def server(self, replies: Sequence[Reply], **rest: Any) -> FakeOpenAI:
        return FakeOpenAI(replies, refuses=self.refuses, **rest)

    def refuses(self, asked: Asked) -> Reply | None:
        """The refusal of a request that theirs would refuse."""
        if not asked.path.removeprefix("/openai").startswith("/v1/responses"):  # Azure has it there
            return fails(404, "Invalid URL (POST /v1/chat/completions)", type="invalid_request_error")
        body = asked.body
        for name in ("temperature", "top_p", "seed"):
            if name in body:
                said = f"Unsupported parameter: '{name}' is not supported with this model."
                return fails(400, said, type="invalid_request_error", param=name, code="unsupported_parameter")
        said, status, code = self._wrong(body["input"])
        return fails(status, said, type="invalid_request_error", param="input", code=code) if said else None

    def _wrong(self, items: list[dict[str, Any]]) -> tuple[str, int, str | None]:
        calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
        answered = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
        for number, item in enumerate(items):
            item_id, kind = item.get("id", ""), item.get("type", "message")
            before = items[number - 1].get("id") if number else None
            after = items[number + 1] if number + 1 < len(items) else {}
            if kind == "reasoning":
                if "summary" not in item:
                    return f"Missing required parameter: 'input[{number}].summary'.", 400, "missing_required_parameter"
                if not item.get("encrypted_content"):
                    words = f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false."
                    return words, 404, None
                if item["encrypted_content"] != _sealed(self.key, item_id):
                    words = f"The encrypted content for item {item_id} could not be verified. Reason: {_UNREADABLE}"
                    return words, 400, "invalid_encrypted_content"
                if self.reasons.get(after.get("id", "")) != item_id:
                    words = f"Item '{item_id}' of type 'reasoning' was provided without its required following item."
                    return words, 400, None
            elif (reason := self.reasons.get(item_id)) and before != reason:
                words = (
                    f"Item '{item_id}' of type '{kind}' was provided without its required 'reasoning' item: '{reason}'."
                )
                return words, 400, None
            if kind == "function_call_output" and item["call_id"] not in calls:
                return f"No tool call found for function call output with call_id {item['call_id']}.", 400, None
            if kind == "function_call" and item["call_id"] not in answered:
                return f"No tool output found for function call {item['call_id']}.", 400, None
        return "", 0, None


def _events_of(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    at = {"output_index": index, "item_id": item["id"]}
    empty: dict[str, Any] = {**item, "status": "in_progress"}
    deltas: list[dict[str, Any]] = []
    if item["type"] == "reasoning":
        empty |= {"summary": [], "encrypted_content": "half of"}
        for number, part in enumerate(item["summary"]):
            place = at | {"summary_index": number}
            kind = "response.reasoning_summary_part"
            deltas += [
                {"type": f"{kind}.added", "part": {"type": "summary_text", "text": ""}, **place},
                {"type": "response.reasoning_summary_text.delta", "delta": part["text"], **place},
                {"type": "response.reasoning_summary_text.done", "text": part["text"], **place},
                {"type": f"{kind}.done", "part": part, **place},
            ]
    elif item["type"] == "message":
        empty["content"], [part] = [], item["content"]
        place, text = at | {"content_index": 0}, part["text"]
        said = [{"type": "response.output_text.delta", "logprobs": [], "delta": half, **place}
                for half in (text[:3], text[3:])]  # fmt: skip
        deltas = [
            {"type": "response.content_part.added", "part": part | {"text": ""}, **place}, *said,
            {"type": "response.output_text.done", "logprobs": [], "text": text, **place},
            {"type": "response.content_part.done", "part": part, **place},
        ]  # fmt: skip
    else:
        empty["arguments"], spelled = "", item["arguments"]
        deltas = [{"type": "response.function_call_arguments.delta", "delta": half, **at}
                  for half in (spelled[:5], spelled[5:])]  # fmt: skip
        whole = {"type": "response.function_call_arguments.done", "name": item["name"], "arguments": spelled, **at}
        deltas.append(whole)
    begun = {"type": "response.output_item.added", "output_index": index, "item": empty}
    return [begun, *deltas, {"type": "response.output_item.done", "output_index": index, "item": item}]


def _event(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
