"""Answers as native tool calls, and calls written as text salvaged.

Many local models know the right call and wrap it wrongly: in a fence, as bare JSON. Such a call is done all the same
and goes into the history as a real one. `tool_choice` is never sent: "required" makes llama.cpp write newlines to the
limit.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from stockade.answers.action_codec import description_of, parameters, short_thought
from stockade.answers.calls import native_answer, salvaged, salvaged_row
from stockade.answers.lenient import whole
from stockade.answers.tool_specs import names, spelled
from stockade.core.actions import Answer, Finish, InvalidCall, Step, ToolCall
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Message, ModelAnswer, ModelRequest
from stockade.core.tools import MAX_NAME_CHARS, Offered, name_of

_NO_NAME = re.compile(r"[^\w-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class NativeAnswers:
    """Implements core.ports.AnswerProtocol. One or several actions an answer."""

    name: str = "native"

    def instructions(self, tools: Sequence[Offered]) -> str:
        return f"Act by calling a tool; say why in one short sentence. The tools: {', '.join(names(tools))}." + (
            " When the task is done, call finish, or answer in words without a call." if "finish" in tools else ""
        )

    def listing(self, tools: Sequence[Offered]) -> str:
        return f"More tools: {', '.join(names(tools))}."

    def constrain(self, request: ModelRequest, tools: Sequence[Offered]) -> ModelRequest:
        return request.model_copy(
            update={"tools": tuple(definition(tool) for tool in tools), "messages": answered(request.messages)}
        )

    def read(self, answer: ModelAnswer, tools: Sequence[Offered]) -> Answer:
        text = whole(answer)
        if (native := native_answer(answer, text, tools)) is not None:
            return native
        if not text.strip():
            raise UnreadableAnswer("the answer is empty: call one of the tools " + ", ".join(names(tools)))
        if (found := salvaged(text, tools)) is None:
            if answer.cut or "finish" not in tools:
                raise UnreadableAnswer("the answer calls no tool: call one of " + ", ".join(names(tools)))
            return Answer(spoken=True, steps=(Step(action=Finish(answer=text.strip("\n"))),))
        before, action = found
        return Answer(thought=short_thought(before), steps=salvaged_row(answer, text, tools) or (Step(action=action),))

    def write(self, answer: Answer) -> Message:
        action = answer.steps[0].action
        if answer.spoken and isinstance(action, Finish):
            return Message(role="assistant", content=action.answer)
        return Message(
            role="assistant", content=answer.thought or "", tool_calls=tuple(_call(step) for step in answer.steps)
        )

    def observed(self, step: Step, text: str) -> Message:
        return Message(role="tool", content=text, tool_call_id=call_id(step))


def definition(tool: Offered) -> dict[str, Any]:
    """One tool as OpenAI's API wants it declared."""
    function = {"name": name_of(tool), "description": description_of(tool), "parameters": parameters(tool)}
    return {"type": "function", "function": function}


def call_id(step: Step) -> str:
    """The same for a call and for what came of it, without any memory; nine letters and digits, as Mistral demands."""
    return hashlib.sha256(json.dumps(step.model_dump()).encode()).hexdigest()[:9]


def answered(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The conversation with a result for every call: servers refuse one without.

    A `finish`, and a call that the run never came to, have none. The messages given are kept as the same objects.
    """
    result: list[Message] = []
    waiting: dict[str, str] = {}
    for message in messages:
        if message.role != "tool":
            result.extend(_without(*call) for call in waiting.items())
            waiting = {}
        else:
            waiting.pop(message.tool_call_id or "", None)
        result.append(message)
        if message.tool_calls:
            waiting = {str(call.get("id")): str(call["function"]["name"]) for call in message.tool_calls}
    result.extend(_without(*call) for call in waiting.items())
    return tuple(result)


@lru_cache(maxsize=256)
def _without(call: str, tool: str) -> Message:
    words = "Your answer was read." if tool == "finish" else "This has not been done."
    return Message(role="tool", content=words, tool_call_id=call)


def _call(step: Step) -> dict[str, Any]:
    if isinstance(step.action, InvalidCall):
        name, text = _NO_NAME.sub("_", step.action.name)[:MAX_NAME_CHARS] or "unknown", _object(step.action.written)
    else:
        fields = spelled(step.action)
        name = fields.pop("tool")
        text = json.dumps(fields["arguments"] if isinstance(step.action, ToolCall) else fields, ensure_ascii=False)
    return {"id": call_id(step), "type": "function", "function": {"name": name, "arguments": text}}


def _object(written: str) -> str:
    """Arguments as servers want them in a history: the JSON of an object."""
    try:
        return written if isinstance(json.loads(written), dict) else json.dumps({"unreadable": written})
    except (ValueError, RecursionError):
        return json.dumps({"unreadable": written}, ensure_ascii=False)
