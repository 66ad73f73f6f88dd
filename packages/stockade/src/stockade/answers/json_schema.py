"""Answers as one JSON object under a schema: `{"thought": "...", "action": {"tool": "shell", "command": "..."}}`.

The server is asked to enforce the schema, and the output is read leniently and validated all the same: servers are
known to answer 200 without enforcing anything.
"""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stockade.answers.action_codec import action_schema, usage_of
from stockade.answers.calls import action_in, native_answer
from stockade.answers.lenient import closed_object, cut_off, first_value, spoken
from stockade.answers.tool_specs import spelled
from stockade.core.actions import Answer, Finish, Step
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import REPEATS, Message, ModelAnswer, ModelRequest
from stockade.core.tools import Offered

MAX_THOUGHT_CHARS = 240


@dataclass(frozen=True, slots=True)
class JsonAnswers:
    """Implements core.ports.AnswerProtocol. One action an answer."""

    name: str = "json"

    def instructions(self, tools: Sequence[Offered]) -> str:
        return (
            'Answer with one JSON object and nothing else: {"thought": "one short sentence", "action": {...}}\n'
            f"Actions:\n{self.listing(tools)}"
        )

    def listing(self, tools: Sequence[Offered]) -> str:
        return "\n".join(f"- {usage_of(tool)}" for tool in tools)

    def constrain(self, request: ModelRequest, tools: Sequence[Offered]) -> ModelRequest:
        return request.model_copy(update={"schema_": schema(tools)})

    def read(self, answer: ModelAnswer, tools: Sequence[Offered]) -> Answer:
        text = spoken(answer.content)
        if answer.cut:
            return _cut_off(answer, tools)
        if (native := native_answer(answer, text, tools)) is not None:
            return native
        if not text.strip():
            raise UnreadableAnswer("the answer is empty: answer with one JSON object that holds an action")
        found = first_value(text, "{")
        thought = found.get("thought")
        action = action_in(found, tools)
        return Answer(
            thought=thought.strip()[:2000] if isinstance(thought, str) and thought.strip() else None,
            steps=(Step(action=action),),
        )

    def write(self, answer: Answer) -> Message:
        objects: list[dict[str, Any]] = [{"action": spelled(step.action)} for step in answer.steps]
        objects[0] = ({"thought": answer.thought} if answer.thought else {}) | objects[0]
        return Message(role="assistant", content="\n".join(json.dumps(one, ensure_ascii=False) for one in objects))

    def observed(self, step: Step, text: str) -> Message:
        return Message(role="user", content=text)


def _cut_off(answer: ModelAnswer, tools: Sequence[Offered]) -> Answer:
    """Of an answer that was cut only the end of the task counts, as it was said: in an object that was closed before,
    or in words that are said over and over, as small models end. Half a command, file or report is none.
    """
    text, action = spoken(answer.content), None
    found = [closed_object(text)]
    if answer.finish_reason == REPEATS:
        for closed in (text, f'{text}"'):
            with contextlib.suppress(UnreadableAnswer):
                found.append(first_value(closed, "{"))
    for one in found:
        with contextlib.suppress(UnreadableAnswer):
            action = action or (action_in(one, tools) if isinstance(one, dict) else None)
    if not isinstance(action, Finish):
        raise cut_off(answer)
    return Answer(steps=(Step(action=action),))


def schema(tools: Sequence[Offered]) -> dict[str, Any]:
    """The schema of one answer for the named tools."""
    return {
        "type": "object",
        "properties": {
            "thought": {"type": "string", "maxLength": MAX_THOUGHT_CHARS},
            "action": {"anyOf": [action_schema(tool) for tool in tools]},
        },
        "required": ["thought", "action"],
        "additionalProperties": False,
    }
