"""Tools that are none of the built-in actions, as every protocol declares, spells, reads and checks them.

Their arguments stand under `arguments`: an argument may bear any name, `tool` among them. A prompt shows every
parameter as the schema says it, in words. Nothing is fetched for a schema; one that is no schema, or refers to what is
not in it, is left to the tool to judge.
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from stockade.answers.lenient import first_value
from stockade.core.actions import Action, InvalidCall, ToolCall
from stockade.core.errors import UnreadableAnswer
from stockade.core.text import one_line
from stockade.core.tools import Offered, ToolSpec, name_of

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator


MAX_SCHEMA_DEPTH = 6
MAX_GOT_CHARS = 60
MAX_WRONG = 3
MAX_MESSAGE_CHARS = 450
_READ_FROM_TEXT: dict[str, tuple[type, ...]] = {
    "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,), "object": (dict,),
    "null": (type(None),),
}  # fmt: skip
_ARTICLES = {
    "string": "a text", "integer": "an integer", "number": "a number", "boolean": "true or false", "array": "a list",
    "object": "an object", "null": "null",
}  # fmt: skip


def validated(tool: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the schema has them. UnreadableAnswer that names parameter, what is wanted and what was got.

    Spelling is read as it was meant: `"3"` where only an integer fits is 3, and a null that does not fit is an optional
    parameter that was not given. A text is never changed.
    """
    properties, required = schema.get("properties"), schema.get("required")
    found = properties if isinstance(properties, dict) else {}
    known = {name: followed(part, schema) for name, part in found.items()}
    needed = required if isinstance(required, list | tuple) else ()
    result = {
        name: _spelled(value, known.get(name))
        for name, value in arguments.items()
        if value is not None or name in needed or _takes_null(known.get(name))
    }
    if wrong := _wrong(schema, result):
        more = f" (and {len(wrong) - MAX_WRONG} more)" if len(wrong) > MAX_WRONG else ""
        raise refused(f"{tool}: {'; '.join(wrong[:MAX_WRONG])}{more}")
    return result


def followed(schema: Any, root: Mapping[str, Any], depth: int = MAX_SCHEMA_DEPTH) -> dict[str, Any]:
    """A schema, with what it refers to within `root` in it; empty where it is none."""
    if not isinstance(schema, dict) or depth <= 0:
        return {}
    if not isinstance(place := schema.get("$ref"), str) or not place.startswith("#/"):
        return schema
    found: Any = root
    for key in place.removeprefix("#/").split("/"):
        found = found.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return {**followed(found, root, depth - 1), **{key: value for key, value in schema.items() if key != "$ref"}}


def refused(message: str) -> UnreadableAnswer:
    """With a message that is bounded and holds nothing that a terminal obeys."""
    return UnreadableAnswer(one_line(message, MAX_MESSAGE_CHARS))


def got(value: Any) -> str:
    """A value for a message: short and printable."""
    text = json.dumps(value, default=str)
    return text if len(text) <= MAX_GOT_CHARS else f"{text[:MAX_GOT_CHARS]}..."


def _spelled(value: Any, schema: Any) -> Any:
    kinds = _kinds(schema)
    if not isinstance(value, str) or not kinds or not kinds <= _READ_FROM_TEXT.keys():
        return value
    try:
        meant = json.loads(value)
    except (ValueError, RecursionError):
        return value
    if isinstance(meant, float) and not math.isfinite(meant):
        return value
    fits = (
        isinstance(meant, _READ_FROM_TEXT[kind]) and (kind == "boolean") == isinstance(meant, bool) for kind in kinds
    )
    return meant if any(fits) else value


def _kinds(schema: Any) -> set[str]:
    """The types that a value may have, `any` for one that says none."""
    if not isinstance(schema, dict):
        return {"any"}
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list):
            return set().union(*map(_kinds, choices))
    kind = schema.get("type", "any")
    return {str(one) for one in kind} if isinstance(kind, list | tuple) else {str(kind)}


def _takes_null(schema: Any) -> bool:
    if not isinstance(schema, dict) or not schema.keys() & {"type", "enum", "const"}:
        return True  # Any value, or one that only the validator can judge.
    kind = schema.get("type", "null")
    return "null" in kind if isinstance(kind, list | tuple) else kind == "null"


def _wrong(schema: Mapping[str, Any], arguments: dict[str, Any]) -> list[str]:
    """What is wrong, a problem each; nothing where the schema itself is no schema."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    validator = _validator(json.dumps(schema, default=list))
    try:
        errors = list(validator.iter_errors(arguments)) if validator is not None else []
        deepest = [best_match([error]) or error for error in errors]
    except (Unresolvable, RecursionError):
        return []
    return list(dict.fromkeys(_in_words(error) for error in deepest))


def _in_words(error: "ValidationError") -> str:
    place = ".".join(str(part) for part in error.absolute_path)
    value, wanted = error.instance, error.validator_value
    match error.validator:
        case "required":
            missing = next((name for name in wanted if name not in value), "")
            return f"{place}.{missing}: missing".lstrip(".")
        case "additionalProperties":
            known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
            name = next((name for name in value if name not in known), "")
            takes = ", ".join(map(str, known)) or "none"
            return f"there is no parameter {got(name)}; the parameters{f' of {place}' if place else ''} are {takes}"
        case "type":
            kinds = wanted if isinstance(wanted, list | tuple) else (wanted,)
            what = " or ".join(_ARTICLES.get(kind, str(kind)) for kind in kinds)
        case "enum":
            what = f"one of {', '.join(map(got, wanted))}"[:200]
        case "const":
            what = got(wanted)
        case name:
            what = f"{name} {got(wanted)}"
    return f"{place}: wanted {what}, got {got(value)}".removeprefix(": ")


@lru_cache(maxsize=256)
def _validator(schema: str) -> "Validator | None":
    """None where the schema is no schema. jsonschema takes 50 ms to import: only runs with tools need it."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry

    made = json.loads(schema)
    kind = validator_for(made, Draft202012Validator)
    try:
        kind.check_schema(made)
    except (SchemaError, RecursionError):
        return None
    validator: Validator = kind(made, registry=Registry())
    return validator


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
    return one_line(spec.description, MAX_DESCRIPTION_CHARS)


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
    return f"{name} ({one_line(_kind(schema, root), MAX_KIND_CHARS)}{_about(schema, root)})"


def _about(schema: Any, root: Mapping[str, Any]) -> str:
    about = followed(schema, root).get("description")
    return f": {one_line(about, MAX_DESCRIPTION_CHARS)}" if isinstance(about, str) and about.strip() else ""


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
