"""The arguments of a call against the schema of its tool: the one place, whatever the protocol.

Nothing is fetched for a schema. One that is no schema, or refers to what is not in it, is left to the tool to judge.
"""

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from stockade.core.errors import UnreadableAnswer

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
    shown = "".join(char if char.isprintable() else "?" for char in message[:MAX_MESSAGE_CHARS])
    return UnreadableAnswer(shown if len(message) <= MAX_MESSAGE_CHARS else f"{shown}...")


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
