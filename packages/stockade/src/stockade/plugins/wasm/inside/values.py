"""Component types as JSON schemas, JSON to component values and back. What cannot cross (resources, streams, futures)
has a reason instead. Values are checked here: wasmtime's Python side cuts integers in silence.
"""

import base64
import binascii
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from wasmtime import component as wc

INTEGERS: dict[type, tuple[int, int]] = {
    wc.U8: (0, 2**8 - 1),
    wc.U16: (0, 2**16 - 1),
    wc.U32: (0, 2**32 - 1),
    wc.U64: (0, 2**64 - 1),
    wc.S8: (-(2**7), 2**7 - 1),
    wc.S16: (-(2**15), 2**15 - 1),
    wc.S32: (-(2**31), 2**31 - 1),
    wc.S64: (-(2**63), 2**63 - 1),
}
_FOREIGN = {
    wc.OwnType: "a resource",
    wc.BorrowType: "a resource",
    wc.StreamType: "a stream",
    wc.FutureType: "a future",
    wc.ErrorContext: "an error context",
}
MAX_DEPTH = 32
MAX_TYPES = 2000
Schema = dict[str, Any]


class Foreign(Exception):
    """A type that has no JSON; the message says which."""


def cases(kind: wc.VariantType | wc.ResultType) -> dict[str, wc.ValType | None]:
    """The cases of a variant, or of a result, which is one of two."""
    return dict(kind.cases) if isinstance(kind, wc.VariantType) else {"ok": kind.ok, "err": kind.err}


def is_bytes(kind: wc.ListType) -> bool:
    return isinstance(kind.element, wc.U8)


def of_function(function: wc.FuncType) -> Schema:
    """The schema of a function's arguments as one object. Foreign when an argument cannot be spelled."""
    return _object(list(function.params), Walk())


def of_result(kind: wc.ValType | None) -> Schema | None:
    """The schema of what a function gives."""
    return None if kind is None else of_type(kind, Walk())


@dataclass(frozen=True, slots=True)
class Walk:
    """How deep it is, and how many types were seen: few names can unfold to millions of types."""

    depth: int = 0
    seen: list[None] = field(default_factory=list)

    def down(self) -> "Walk":
        return Walk(self.depth + 1, self.seen)

    def step(self) -> None:
        self.seen.append(None)
        if self.depth > MAX_DEPTH or len(self.seen) > MAX_TYPES:
            raise Foreign(f"types nested deeper than {MAX_DEPTH}, or more than {MAX_TYPES} of them")


def of_type(kind: wc.ValType, walk: Walk) -> Schema:
    """The JSON schema of a value of this type."""
    walk.step()
    if bounds := INTEGERS.get(type(kind)):
        return {"type": "integer", "minimum": bounds[0], "maximum": bounds[1]}
    match kind:
        case wc.Bool():
            return {"type": "boolean"}
        case wc.F32() | wc.F64():
            return {"type": "number"}
        case wc.Char():
            return {"type": "string", "minLength": 1, "maxLength": 1}
        case wc.String():
            return {"type": "string"}
        case wc.EnumType():
            return {"type": "string", "enum": list(kind.names)}
        case wc.FlagsType():
            return {"type": "array", "items": {"type": "string", "enum": list(kind.names)}, "uniqueItems": True}
    return _schema_of_compound(kind, walk.down())


def _schema_of_compound(kind: wc.ValType, walk: Walk) -> Schema:
    match kind:
        case wc.ListType() if is_bytes(kind):
            return {"type": "string", "contentEncoding": "base64"}
        case wc.ListType():
            return {"type": "array", "items": of_type(kind.element, walk)}
        case wc.RecordType():
            return _object(list(kind.fields), walk)
        case wc.TupleType():
            items = [of_type(element, walk) for element in kind.elements]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        case wc.OptionType():
            return _schema_of_option(kind, walk)
        case wc.VariantType() | wc.ResultType():
            return {"oneOf": [_case(name, payload, walk) for name, payload in cases(kind).items()]}
    raise Foreign(_FOREIGN.get(type(kind), f"a {type(kind).__name__}"))


def _schema_of_option(kind: wc.OptionType, walk: Walk) -> Schema:
    """`null` is none; an option in an option is told apart by a wrapping."""
    inner = of_type(kind.payload, walk)
    if isinstance(kind.payload, wc.OptionType):
        inner = {"type": "object", "properties": {"some": inner}, "required": ["some"], "additionalProperties": False}
    return {"anyOf": [inner, {"type": "null"}]}


def _case(name: str, payload: wc.ValType | None, walk: Walk) -> Schema:
    properties: Schema = {"tag": {"const": name}}
    if payload is not None:
        properties["value"] = of_type(payload, walk)
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _object(fields: list[tuple[str, wc.ValType]], walk: Walk) -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": {name: of_type(kind, walk) for name, kind in fields},
        "additionalProperties": False,
    }
    if required := [name for name, kind in fields if not isinstance(kind, wc.OptionType)]:
        schema["required"] = required
    return schema


_DIGITS = re.compile(r"-?[0-9]{1,20}")
_DECIMAL = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?")


class Wrong(Exception):
    """An argument that does not fit its type; the message names the place and is written for the model."""


def lower_arguments(function: wc.FuncType, arguments: dict[str, Any]) -> list[Any]:
    """In the function's order. Wrong names what is missing, unknown or of the wrong type."""
    return list(_fields(list(function.params), arguments, "").values())


def lower(kind: wc.ValType, value: Any, place: str) -> Any:
    """The value as wasmtime wants it."""
    if bounds := INTEGERS.get(type(kind)):
        return _integer(value, bounds, place)
    match kind:
        case wc.Bool():
            return _is({"true": True, "false": False}.get(value, value) if isinstance(value, str) else value, bool,
                       "true or false", place)  # fmt: skip
        case wc.F32() | wc.F64():
            return _number(value, place)
        case wc.Char():
            if len(text := _text(value, place)) != 1:
                raise Wrong(f"{place} must be one character")
            return text
        case wc.String():
            return _text(value, place)
        case wc.EnumType():
            return _one_of(value, kind.names, place)
        case wc.FlagsType():
            return {_one_of(item, kind.names, place) for item in _is(value, list, "a list", place)}
    return _compound(kind, value, place)


def _compound(kind: wc.ValType, value: Any, place: str) -> Any:
    match kind:
        case wc.ListType() if is_bytes(kind):
            return _bytes(value, place)
        case wc.ListType():
            items = _is(value, list, "a list", place)
            return [lower(kind.element, item, f"{place}[{number}]") for number, item in enumerate(items)]
        case wc.RecordType():
            record = wc.Record()
            fields = _fields(list(kind.fields), _is(value, dict, "an object", place), f"{place}.")
            for name, item in fields.items():
                setattr(record, name, item)
            return record
        case wc.TupleType():
            elements, items = kind.elements, _is(value, list, "a list", place)
            if len(items) != len(elements):
                raise Wrong(f"{place} must be a list of {len(elements)}")
            return tuple(
                lower(one, item, f"{place}[{n}]") for n, (one, item) in enumerate(zip(elements, items, strict=True))
            )
        case wc.OptionType():
            return _option(kind, value, place)
        case wc.VariantType() | wc.ResultType():
            return _variant(kind, cases(kind), value, place)
    raise Wrong(f"{place} is of a type that has no JSON")


def _fields(kinds: list[tuple[str, wc.ValType]], given: dict[str, Any], place: str) -> dict[str, Any]:
    names = [name for name, _ in kinds]
    if unknown := [name for name in given if name not in names]:
        known = ", ".join(names) or "none"
        raise Wrong(f"there is no argument {place}{_short(unknown[0])}; the arguments are: {known}")
    missing = [f"{place}{name}" for name, kind in kinds if name not in given and not isinstance(kind, wc.OptionType)]
    if missing:
        raise Wrong(f"missing: {', '.join(missing)}")
    return {name: lower(kind, given.get(name), f"{place}{name}") for name, kind in kinds}


def _option(kind: wc.OptionType, value: Any, place: str) -> Any:
    nested = isinstance(kind.payload, wc.OptionType)
    if value is None:
        return wc.Variant("none") if kind._tagged() else None
    if nested:
        if not isinstance(value, dict) or set(value) != {"some"}:
            raise Wrong(f'{place} must be null or {{"some": ...}}')
        value = value["some"]
    inner = lower(kind.payload, value, place)
    return wc.Variant("some", inner) if kind._tagged() else inner


def _variant(kind: Any, known: dict[str, wc.ValType | None], value: Any, place: str) -> Any:
    if not isinstance(value, dict) or set(value) - {"tag", "value"} or value.get("tag") not in known:
        raise Wrong(f'{place} must be {{"tag": ..., "value": ...}} with a tag of: {", ".join(known)}')
    payload = known[value["tag"]]
    if payload is None and value.get("value") is not None:
        raise Wrong(f"{place}: {value['tag']} has no value")
    inner = None if payload is None else lower(payload, value.get("value"), f"{place}.value")
    if kind._tagged():
        return wc.Variant(value["tag"], inner)
    return _sure(known, value["tag"], inner, place)


def _sure(known: dict[str, wc.ValType | None], tag: str, inner: Any, place: str) -> Any:
    """wasmtime finds the case by `isinstance`, for which a boolean is a number too: never the wrong case."""
    for name, payload in known.items():
        classes: set[type] = set()
        if payload is not None:
            payload.add_classes(classes)
        if isinstance(inner, tuple(classes)) if payload is not None else inner is None:
            if name != tag:
                raise Wrong(f"{place}: {tag} cannot be told from {name} here")
            return inner
    return inner


def _integer(value: Any, bounds: tuple[int, int], place: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)  # spellings of calls without types give all as text
    if isinstance(value, bool) or not isinstance(value, int) or not bounds[0] <= value <= bounds[1]:
        raise Wrong(f"{place} must be a whole number from {bounds[0]} to {bounds[1]}")
    return value


def _number(value: Any, place: str) -> float:
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong(f"{place} must be a number")
    try:
        return float(value)
    except OverflowError:
        raise Wrong(f"{place} is too large a number") from None


def _text(value: Any, place: str) -> str:
    text: str = _is(value, str, "text", place)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Wrong(f"{place} holds half a surrogate pair, which is no text") from None
    return text


def _bytes(value: Any, place: str) -> bytes:
    try:
        return base64.b64decode(_text(value, place), validate=True)
    except (binascii.Error, ValueError):
        raise Wrong(f"{place} must be base64") from None


def _is(value: Any, wanted: type, words: str, place: str) -> Any:
    if not isinstance(value, wanted):
        raise Wrong(f"{place} must be {words}")
    return value


def _one_of(value: Any, names: list[str], place: str) -> str:
    if value not in names:
        raise Wrong(f"{place} must be one of: {', '.join(names)}")
    return str(value)


def _short(text: str) -> str:
    return repr(text[:40])


def lift(kind: wc.ValType, value: Any) -> Any:
    """A value of the component as JSON; numbers that JSON has not (NaN, infinities) as text."""
    match kind:
        case wc.F32() | wc.F64():
            return value if math.isfinite(value) else str(value)
        case wc.FlagsType():
            return [name for name in kind.names if name in value]
        case wc.ListType() if is_bytes(kind):
            return base64.b64encode(value).decode()
        case wc.ListType():
            return [lift(kind.element, item) for item in value]
        case wc.RecordType():
            return {name: lift(field, getattr(value, name)) for name, field in kind.fields}
        case wc.TupleType():
            return [lift(one, item) for one, item in zip(kind.elements, value, strict=True)]
        case wc.OptionType():
            return _lift_option(kind, value)
        case wc.VariantType() | wc.ResultType():
            name, inner = tagged(kind, value)
            payload = cases(kind)[name]
            return {"tag": name} if payload is None else {"tag": name, "value": lift(payload, inner)}
    return value


def _lift_option(kind: wc.OptionType, value: Any) -> Any:
    if kind._tagged():
        if value.tag == "none":
            return None
        value = value.payload
    elif value is None:
        return None
    inner = lift(kind.payload, value)
    return {"some": inner} if isinstance(kind.payload, wc.OptionType) else inner


def tagged(kind: Any, value: Any) -> tuple[str, Any]:
    """The case of a variant and its value: wasmtime leaves the tag out where the Python classes tell them apart."""
    if kind._tagged():
        return value.tag, value.payload
    for name, payload in cases(kind).items():
        if payload is None:
            if value is None:
                return name, None
            continue
        classes: set[type] = set()
        payload.add_classes(classes)
        if type(value) in classes or (value is None and object in classes):
            return name, value
    raise Wrong("the tool returned a case that its type does not have")


def spelled(kind: wc.ValType | None, value: Any) -> str:
    """What the model reads of a result: text as it is, all else as JSON, nothing as nothing."""
    if kind is None:
        return ""
    found = lift(kind, value)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
