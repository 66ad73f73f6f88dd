"""Tools that are none of the built-in actions, as every protocol declares, spells and reads them.

Their arguments stand under `arguments`: an argument may bear any name, `tool` among them. They are read leniently; the
tool itself says what it cannot take.
"""

import json
from collections.abc import Sequence
from typing import Any

from stockade.core.actions import Action, ToolCall
from stockade.core.errors import UnreadableAnswer
from stockade.core.tools import Offered, ToolSpec, name_of

MAX_SCHEMA_DEPTH = 6
MAX_DESCRIPTION_CHARS = 300
_CONSTRAINING = ("type", "enum", "const")
_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_SAMPLES: dict[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


def names(tools: Sequence[Offered]) -> tuple[str, ...]:
    return tuple(name_of(tool) for tool in tools)


def spec_named(name: str, tools: Sequence[Offered]) -> ToolSpec | None:
    """The tool of that name; None for a built-in action."""
    return next((tool for tool in tools if isinstance(tool, ToolSpec) and tool.name == name), None)


def spelled(action: Action) -> dict[str, Any]:
    """An action as the object that models write: `{"tool": NAME, ...}`."""
    if isinstance(action, ToolCall):
        return {"tool": action.name, "arguments": action.arguments}
    return {"tool": action.tool, **action.model_dump(exclude_none=True, exclude_defaults=True)}


def call_schema(spec: ToolSpec) -> dict[str, Any]:
    """The JSON schema of one call, small and plain enough for a grammar."""
    return {
        "type": "object",
        "properties": {"tool": {"const": spec.name}, "arguments": plain_schema(spec.parameters)},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


def plain_schema(schema: Any, depth: int = MAX_SCHEMA_DEPTH) -> dict[str, Any]:
    """What of a JSON schema every server's grammar understands: types, properties, items, choices.

    What is left out (patterns, bounds, references) is for the tool to check. Any value where nothing is left.
    """
    if not isinstance(schema, dict) or depth <= 0:
        return {}
    plain = {key: schema[key] for key in _CONSTRAINING if key in schema}
    if isinstance(found := schema.get("properties"), dict):
        plain["properties"] = {str(name): plain_schema(part, depth - 1) for name, part in found.items()}
        wanted = schema.get("required")
        required = [name for name in wanted if name in plain["properties"]] if isinstance(wanted, list | tuple) else []
        plain |= {"type": "object", "required": required, "additionalProperties": False}
    elif plain.get("type") == "object" and depth == MAX_SCHEMA_DEPTH:
        plain |= {"properties": {}, "additionalProperties": False}
    if isinstance(items := schema.get("items"), dict):
        plain["items"] = plain_schema(items, depth - 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list):
            plain["anyOf"] = [plain_schema(choice, depth - 1) for choice in choices]
    return plain


def sample(spec: ToolSpec) -> dict[str, Any]:
    """Arguments as an example of their form: the required ones, all where none is required."""
    shown = spec.required or tuple(spec.properties)
    return {name: _sample_value(spec.properties.get(name)) for name in shown}


def _sample_value(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return "..."
    if isinstance(choices := schema.get("enum"), list) and choices:
        return "|".join(map(str, choices)) if all(isinstance(choice, str) for choice in choices) else choices[0]
    kind = schema.get("type")
    return _SAMPLES.get(kind, "...") if isinstance(kind, str) else "..."


def described(spec: ToolSpec) -> str:
    """Its description on one line, bounded."""
    words = " ".join(spec.description.split())
    return words if len(words) <= MAX_DESCRIPTION_CHARS else f"{words[:MAX_DESCRIPTION_CHARS]}..."


def usage(spec: ToolSpec) -> str:
    """The tool in one line of a prompt, and how a call is written as JSON."""
    call = json.dumps({"tool": spec.name, "arguments": sample(spec)}, ensure_ascii=False)
    return f"{spec.name}: {described(spec)}: {call}" if spec.description else f"{spec.name}: {call}"


def make_call(spec: ToolSpec, arguments: dict[str, Any]) -> ToolCall:
    """A call as it was meant: numbers that came as text are numbers. UnreadableAnswer when an argument is missing."""
    fields = {key: value for key, value in arguments.items() if key != "tool" or "tool" in spec.properties}
    missing = [name for name in spec.required if name not in fields]
    if missing:
        raise UnreadableAnswer(f"{spec.name}: {', '.join(missing)}: missing; write {json.dumps(sample(spec))}")
    return ToolCall(
        name=spec.name, arguments={name: _meant(value, spec.properties.get(name)) for name, value in fields.items()}
    )


def _meant(value: Any, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(value, str) or not isinstance(kind, str) or kind not in _TYPES:
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, _TYPES[kind]) and (kind == "boolean") == isinstance(found, bool) else value


def from_text(spec: ToolSpec, text: str) -> dict[str, Any]:
    """Arguments out of the body of a block: a JSON object, or the text itself where the tool takes one text only."""
    body = text.strip()
    if body.startswith("{"):
        try:
            found = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise UnreadableAnswer(f"{spec.name}: the arguments are not JSON: {error}") from None
        if isinstance(found, dict):
            return found
    wanted = spec.required or tuple(spec.properties)
    if len(wanted) == 1 and body:
        return {wanted[0]: text.strip("\n")}
    if not wanted and not body:
        return {}
    raise UnreadableAnswer(f"{spec.name}: write its arguments as JSON: {json.dumps(sample(spec))}")
