"""The Planner's answers: thoughts that a user can judge, then the one action that they lead to, as one JSON object.

{"thoughts": {"text", "reasoning", "plan", "criticism", "speak"}, "action": {"tool": "shell", "command": "..."}}
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stockade.core.actions import Answer, Thoughts
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Message, ModelAnswer, ModelRequest
from stockade.core.tools import Offered
from stockade.extend.answers import first_value, json_schema, spelled, spoken

MAX_PART_CHARS = 120
MAX_PLAN_STEPS = 4
MAX_STEP_CHARS = 80
_KEPT_CHARS = 2000
_PARTS = ("text", "reasoning", "criticism", "speak")
_FORM = (
    '{"thoughts": {"text": "what you think now", "reasoning": "why",'
    ' "plan": ["this step in words", "the one after it"],'
    ' "criticism": "what could be wrong", "speak": "one line for the user"}, "action": {...}}'
)


@dataclass(frozen=True, slots=True)
class PlanAnswers(json_schema.JsonAnswers):
    """Implements core.ports.AnswerProtocol. One action an answer."""

    name: str = "plan"

    def instructions(self, tools: Sequence[Offered]) -> str:
        listed = self.listing(tools)
        return f"Answer with one JSON object and nothing else: {_FORM}\nEach part is short.\nActions:\n{listed}"

    def constrain(self, request: ModelRequest, tools: Sequence[Offered]) -> ModelRequest:
        return request.model_copy(update={"schema_": schema(tools)})

    def read(self, answer: ModelAnswer, tools: Sequence[Offered]) -> Answer:
        read = json_schema.JsonAnswers.read(self, answer, tools)
        try:
            thoughts = _thoughts(first_value(spoken(answer.content), "{"))
        except UnreadableAnswer:  # a real call, without words
            thoughts = None
        return read.model_copy(update={"thought": thoughts.text or None if thoughts else None, "thoughts": thoughts})

    def write(self, answer: Answer) -> Message:
        thoughts = answer.thoughts or Thoughts(text=answer.thought or "")
        fields = {key: value for key, value in thoughts.model_dump(mode="json").items() if value}
        objects: list[dict[str, Any]] = [{"action": spelled(step.action)} for step in answer.steps]
        objects[0] = {"thoughts": fields} | objects[0]
        return Message(role="assistant", content="\n".join(json.dumps(one, ensure_ascii=False) for one in objects))


def schema(tools: Sequence[Offered]) -> dict[str, Any]:
    """The schema of one answer for the named tools."""
    part = {"type": "string", "maxLength": MAX_PART_CHARS}
    plan = {
        "type": "array",
        "items": {"type": "string", "maxLength": MAX_STEP_CHARS},
        "minItems": 1,
        "maxItems": MAX_PLAN_STEPS,
    }
    thoughts = {"text": part, "reasoning": part, "plan": plan, "criticism": part, "speak": part}
    whole = json_schema.schema(tools)
    return {
        **whole,
        "properties": {
            "thoughts": {
                "type": "object",
                "properties": thoughts,
                "required": list(thoughts),
                "additionalProperties": False,
            },
            "action": whole["properties"]["action"],
        },
        "required": ["thoughts", "action"],
    }


def _thoughts(found: dict[str, Any]) -> Thoughts | None:
    """Whatever of them is there; None when nothing is."""
    given = found.get("thoughts", found.get("thought"))
    if isinstance(given, str):
        given = {"text": given}
    if not isinstance(given, dict):
        return None
    fields: dict[str, Any] = {key: _text(given.get(key)) for key in _PARTS}
    steps = given["plan"] if isinstance(given.get("plan"), list) else ()
    plan = tuple(step for step in map(_text, steps) if step)[: 2 * MAX_PLAN_STEPS]
    thoughts = Thoughts(**fields, plan=plan)
    return thoughts if thoughts != Thoughts() else None


def _text(value: object) -> str:
    return value.strip()[:_KEPT_CHARS] if isinstance(value, str) else ""
