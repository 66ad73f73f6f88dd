"""Tools that are none of the built-in actions, as every protocol declares, spells and reads them.

Their arguments stand under `arguments`: an argument may bear any name, `tool` among them. A prompt shows every
parameter as the schema says it, in words.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stockade.answers.arguments import MAX_SCHEMA_DEPTH, followed, validated
from stockade.answers.lenient import first_value
from stockade.core.actions import Action, InvalidCall, ToolCall
from stockade.core.errors import UnreadableAnswer
from stockade.core.tools import Offered, ToolSpec, name_of

MAX_DESCRIPTION_CHARS = 300
MAX_KIND_CHARS = 2000
"""Of one parameter's type in words, with all that is in it."""
_CONSTRAINING = ("type", "enum", "const")
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
NAMES = {"timeout_s": "timeout"}
"""Fields of the built-in actions that a model knows by another name."""
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
    if isinstance(action, InvalidCall):
        return {"tool": action.name, "arguments": action.written}
    fields = action.model_dump(exclude_none=True, exclude_defaults=True)
    return {"tool": action.tool, **{NAMES.get(name, name): value for name, value in fields.items()}}


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
    return _one_line(spec.description)


def _one_line(text: str, limit: int = MAX_DESCRIPTION_CHARS) -> str:
    words = " ".join(text.split())
    return words if len(words) <= limit else f"{words[:limit]}..."


def usage(spec: ToolSpec) -> str:
    """The tool in one line of a prompt, how a call is written as JSON, and its parameters."""
    call = json.dumps({"tool": spec.name, "arguments": sample(spec)}, ensure_ascii=False)
    told = f"{spec.name}: {described(spec)}: {call}" if spec.description else f"{spec.name}: {call}"
    return told + notes(spec.parameters)


def notes(schema: Mapping[str, Any], more: str = "optional") -> str:
    """What an example of a call leaves out: types and descriptions, and every parameter that may be left out (`more`).

    Empty where the example says it all.
    """
    found, wanted = schema.get("properties"), schema.get("required")
    properties = found if isinstance(found, dict) else {}
    required = [name for name in wanted if name in properties] if isinstance(wanted, list | tuple) else []
    needed = [told for name in required if (told := _parameter(name, properties[name], schema)) != f"{name} (text)"]
    others = [_parameter(name, part, schema) for name, part in properties.items() if name not in required]
    parts = [", ".join(needed), f"{more}: {', '.join(others)}" if others else ""]
    return "".join(f"; {part}" for part in parts if part)


def _parameter(name: str, schema: Any, root: Mapping[str, Any]) -> str:
    return f"{name} ({_one_line(_kind(schema, root), MAX_KIND_CHARS)}{_about(schema, root)})"


def _about(schema: Any, root: Mapping[str, Any]) -> str:
    about = followed(schema, root).get("description")
    return f": {_one_line(about)}" if isinstance(about, str) and about.strip() else ""


def _kind(schema: Any, root: Mapping[str, Any], depth: int = MAX_SCHEMA_DEPTH) -> str:
    """A type in words, with its bounds: `integer, 1 to 9`, and what is in it."""
    if depth <= 0 or not (schema := followed(schema, root)):
        return "any"
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list):
            return " or ".join(dict.fromkeys(_kind(choice, root, depth - 1) for choice in choices))
    if isinstance(choices := schema.get("enum"), list):
        return "one of " + ", ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    kind = schema.get("type", "any")
    kinds = [str(one) for one in kind] if isinstance(kind, list | tuple) else [str(kind)]
    told = " or ".join("text" if one == "string" else one for one in kinds)
    if "items" in schema and "array" in kinds:
        told = told.replace("array", f"array of {_kind(schema['items'], root, depth - 1)}")
    if isinstance(inner := schema.get("properties"), dict) and inner:
        wanted = schema.get("required")
        optional = {name: "" if isinstance(wanted, list | tuple) and name in wanted else "?" for name in inner}
        listed = ", ".join(
            f"{name}{optional[name]} ({_kind(part, root, depth - 1)}{_about(part, root)})"
            for name, part in inner.items()
        )
        told = told.replace("object", f"object {{{listed}}}")
    bounds = [f"{word} {schema[key]}" for key, word in _BOUNDS.items() if isinstance(schema.get(key), int | float)]
    usual = (
        [f"default {json.dumps(schema['default'], ensure_ascii=False)}"] if schema.get("default") is not None else []
    )
    return ", ".join([told, *bounds, *usual])


def make_call(spec: ToolSpec, arguments: dict[str, Any]) -> ToolCall:
    """A call as its schema wants it. UnreadableAnswer, naming the parameter, when it is not."""
    return ToolCall(name=spec.name, arguments=validated(spec.name, spec.parameters, arguments))


def from_text(spec: ToolSpec, text: str) -> dict[str, Any]:
    """Arguments out of the body of a block: a JSON object, or the text itself where the tool takes one text only."""
    body = text.strip()
    if body.startswith("{"):
        try:
            found = first_value(body, "{")
        except UnreadableAnswer as error:
            raise UnreadableAnswer(f"{spec.name}: {error.message}") from None
        if isinstance(found, dict):
            return found
    wanted = spec.required or tuple(spec.properties)
    if len(wanted) == 1 and body:
        return {wanted[0]: text}
    if not wanted and not body:
        return {}
    raise UnreadableAnswer(f"{spec.name}: write its arguments as JSON: {json.dumps(sample(spec))}")
