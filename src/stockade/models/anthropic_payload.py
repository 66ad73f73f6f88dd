"""A request in the form of Anthropic's Messages API. https://docs.anthropic.com/en/api/messages

Where it differs: the system prompt stands apart, roles alternate, contents are blocks, `max_tokens` is demanded, calls
need ids of their own, and empty texts are refused. A schema is asked for as a tool that has to be called: every model
and every compatible server knows that.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from stockade.core.messages import Message, ModelRequest

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
    for place, call in enumerate(message.tool_calls or ()):
        given = str(call.get("id"))
        ids[given] = f"{_NO_ID.sub('_', given)[:40]}_{number}_{place}"
        function = call.get("function") or {}
        blocks.append(
            {"type": "tool_use", "id": ids[given], "name": function.get("name"), "input": _input(function)}
        )  # fmt: skip
    return blocks or [{"type": "text", "text": _NOTHING}]


def _input(function: dict[str, Any]) -> dict[str, Any]:
    arguments = function.get("arguments")
    try:
        found = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function", tool)
    return {
        "name": function.get("name"),
        "description": function.get("description", ""),
        "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
    }
