"""Text that names a model's special tokens, sent to servers that would take it for the tokens themselves.

A server that renders a chat template and tokenises the whole cannot tell `<|im_end|>` in a file from its own: whoever
writes the file writes a turn of the system. There one mark is put behind the first character of each such string, and
taken out of all that the model says. The two undo each other for every text, one that holds the mark included.

Hosted providers see to it themselves.
"""

import json
import re
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Generic, TypeVar

from stockade.core.messages import Message, ModelAnswer, ModelRequest
from stockade.models.replies import parsed

MARK = "\u2060"
"""WORD JOINER: nobody sees it, no tokeniser drops it, and hardly any text has it."""
SPECIAL = re.compile(
    rf"(?:(?<=[<\[\]])(?={MARK})|(?<=<)(?="
    r"\|[^<>\n]{1,64}>"  # ChatML, Llama 3, Phi, Harmony, Granite, GLM, Command R: <|im_start|>; Gemma 4: <|turn>
    r"|[^<>|\s]{1,64}\|>"  # Gemma 4: <turn|>
    r"|\uff5c[^<>\n]{1,64}>"  # DeepSeek: <｜User｜>
    r"|/?(?:s|bos|eos|pad|unk|mask|sop|eop|escape|start_of_turn|end_of_turn|(?:start_of|end_of|image_soft)_\w{1,20}"
    r"|(?:start|end)_function_\w{1,20}|fim_\w{1,20}|file_sep|repo_?name|gh_stars|filename|jupyter_\w{1,20}"
    r"|issue_\w{1,20}|commit_\w{1,20}|empty_output|think|thinking|tools?|tool_\w{1,20}|seed:[\w/]{1,32}"
    r"|(?:reserved|unused|dummy|SPECIAL|extra_id)_?\d{1,4})>"  # Llama 2: <s>; Gemma: <end_of_turn>; Qwen: <tool_call>
    r"|</?SYS>>"  # Llama 2: <<SYS>>
    r")|(?<=\[)(?="
    r"/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|MODEL_SETTINGS|TOOL_\w{1,20}|ARGS|CALL_ID|THINK|PREFIX|MIDDLE|SUFFIX"
    r"|IMG\w{0,20}|AUDIO|BEGIN_AUDIO|[gs]?MASK)\]"  # Mistral: [INST]; GLM: [gMASK]
    r"|\|[^\[\]\n]{1,64}\|\]"  # EXAONE: [|system|]
    r"|e~\[)"  # MiniMax: [e~[
    r"|(?<=\])(?=~!?b[\[\]]))"  # MiniMax: ]~b]
)
"""The place behind the first character of a special token, and of whatever looks marked already."""
_MARKED = re.compile(rf"(?<=[<\[\]]){MARK}")
T = TypeVar("T")
_Change = Callable[[str], str]
_Tools = tuple[dict[str, Any], ...] | None


def marked(text: str) -> str:
    """`text` without any string that is a special token in a family of models that we know."""
    return SPECIAL.sub(MARK, text)


def unmarked(text: str) -> str:
    """What `marked` was given; in other text, one mark less behind each character that opens a special token."""
    return _MARKED.sub("", text)


def mapped(value: Any, change: _Change) -> Any:
    """A JSON value with `change` made to its texts, keys among them."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): mapped(inner, change) for key, inner in value.items()}
    return [mapped(inner, change) for inner in value] if isinstance(value, (list, tuple)) else value


def _in_json(text: str, change: _Change) -> str:
    """JSON with `change` made to what its texts mean, however they are escaped; to the text itself where it is none."""
    if (value := parsed(text)) is None:
        return change(text)
    changed = mapped(value, change)
    return text if changed == value else json.dumps(changed, ensure_ascii=False)


def _calls(calls: Sequence[dict[str, Any]], change: _Change) -> tuple[dict[str, Any], ...]:
    """With `change` made to their arguments, which are JSON in a text."""

    def one(call: dict[str, Any]) -> dict[str, Any]:
        function = call.get("function")
        if not isinstance(function, dict) or not isinstance(arguments := function.get("arguments"), str):
            return call
        return {**call, "function": {**function, "arguments": _in_json(arguments, change)}}

    return tuple(map(one, calls))


class Derived(Generic[T]):
    """What was made of each message of a conversation that only grows, once for each: by identity, for messages are
    immutable.
    """

    def __init__(self, make: Callable[[Message], T]) -> None:
        self._make = make
        self._given: list[Message] = []
        self._made: list[T] = []

    def of(self, messages: tuple[Message, ...]) -> list[T]:
        """In the order of `messages`; the list is ours, and grows."""
        same = len(self._given)
        if self._given != list(messages[:same]):  # the same objects are compared at once
            pairs = zip(self._given, messages, strict=False)
            same = next((number for number, (old, new) in enumerate(pairs) if old is not new), min(same, len(messages)))
            del self._given[same:], self._made[same:]
        self._given.extend(messages[same:])
        self._made.extend(map(self._make, messages[same:]))
        return self._made


class SpecialTokenGuard:
    """Marks requests and unmarks answers. A message keeps its marked twin: a conversation that grows is read once."""

    def __init__(self) -> None:
        self._marked = Derived(_marked_message)
        self._tools: _Tools = None
        self._tools_sent: _Tools = None

    def request(self, request: ModelRequest) -> ModelRequest:
        """The very same where there is nothing to mark."""
        sent = self._marked.of(request.messages)
        if self._tools is not request.tools:
            changed = tuple(mapped(request.tools or (), marked))
            self._tools, self._tools_sent = request.tools, request.tools if changed == request.tools else changed
        if self._tools_sent is request.tools and all(map(is_, sent, request.messages)):
            return request
        return request.model_copy(update={"messages": tuple(sent), "tools": self._tools_sent})

    def answer(self, answer: ModelAnswer) -> ModelAnswer:
        """What the model meant. A call's name needs nothing: no tool is called like a special token."""
        content, calls = answer.content, answer.tool_calls
        if MARK in content or "\\u2060" in content:
            content = _in_json(content, unmarked) if content.lstrip().startswith("{") else unmarked(content)
        return answer.model_copy(update={"content": content, "tool_calls": _calls(calls, unmarked)})


def _marked_message(message: Message) -> Message:
    content = marked(message.content)
    calls = None if message.tool_calls is None else _calls(message.tool_calls, marked)
    if content == message.content and calls == message.tool_calls:
        return message
    return message.model_copy(update={"content": content, "tool_calls": calls})
