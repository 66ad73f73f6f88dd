"""Component types as codecs: the JSON schema of a type, JSON to its values, and back. What cannot cross (resources,
streams, futures) has a reason instead. Values are checked here: wasmtime's Python side cuts integers in silence.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
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
_DIGITS = re.compile(r"-?[0-9]{1,20}")
_DECIMAL = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?")
Schema = dict[str, Any]


class Foreign(Exception):
    """A type that has no JSON; the message says which."""


class Wrong(Exception):
    """An argument that does not fit its type; the message names the place and is written for the model."""


@dataclass(frozen=True, slots=True)
class Codec:
    """One type. `lower`: the value that wasmtime wants of a JSON value and of where that stands; raises Wrong. `lift`:
    the JSON of a value; numbers that JSON has not (NaN, infinities) are text. `optional`: it may be left out.
    """

    schema: Schema
    lower: Callable[[Any, str], Any]
    lift: Callable[[Any], Any] = lambda value: value
    optional: bool = False


Fields = Mapping[str, Codec]


def arguments(function: wc.FuncType) -> Fields:
    """The codecs of a function's arguments, in its order. Foreign when one has no JSON."""
    return _Types().fields(function.params)


def result(kind: wc.ValType | None) -> Codec | None:
    """Of what a function gives. Foreign when it has no JSON."""
    return None if kind is None else _Types().codec(kind)


class _Types:
    """Counts the types that were seen: few names can unfold to millions."""

    def __init__(self) -> None:
        self._seen = 0

    def fields(self, kinds: Iterable[tuple[str, wc.ValType]], depth: int = 0) -> Fields:
        return {name: self.codec(kind, depth) for name, kind in kinds}

    def codec(self, kind: wc.ValType, depth: int = 0) -> Codec:
        self._seen += 1
        if depth > MAX_DEPTH or self._seen > MAX_TYPES:
            raise Foreign(f"types nested deeper than {MAX_DEPTH}, or more than {MAX_TYPES} of them")
        if bounds := INTEGERS.get(type(kind)):
            return Codec({"type": "integer", "minimum": bounds[0], "maximum": bounds[1]}, partial(_integer, bounds))
        if (plain := _PLAIN.get(type(kind))) is not None:
            return plain
        inner = partial(self.codec, depth=depth + 1)
        match kind:
            case wc.EnumType():
                return _enum(kind.names)
            case wc.FlagsType():
                return _flags(kind.names)
            case wc.ListType():
                return _BYTES if isinstance(kind.element, wc.U8) else _list(inner(kind.element))
            case wc.RecordType():
                return _record(self.fields(kind.fields, depth + 1))
            case wc.TupleType():
                return _tuple([inner(element) for element in kind.elements])
            case wc.OptionType():
                return _option(kind, inner(kind.payload))
            case wc.VariantType() | wc.ResultType():
                return _variant(kind, {n: None if one is None else inner(one) for n, one in _cases(kind).items()})
        raise Foreign(_FOREIGN.get(type(kind), f"a {type(kind).__name__}"))


def object_schema(fields: Fields) -> Schema:
    properties = {name: one.schema for name, one in fields.items()}
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required := [name for name, one in fields.items() if not one.optional]:
        schema["required"] = required
    return schema


def lower_fields(fields: Fields, given: dict[str, Any], place: str = "") -> dict[str, Any]:
    """In the order of `fields`. Wrong names what is missing, unknown or of the wrong type."""
    if unknown := [name for name in given if name not in fields]:
        known = ", ".join(fields) or "none"
        raise Wrong(f"there is no argument {place}{unknown[0][:40]!r}; the arguments are: {known}")
    missing = [f"{place}{name}" for name, one in fields.items() if name not in given and not one.optional]
    if missing:
        raise Wrong(f"missing: {', '.join(missing)}")
    return {name: one.lower(given.get(name), f"{place}{name}") for name, one in fields.items()}


def spelled(value: Any) -> str:
    """What the model reads of lifted JSON: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is(value: Any, wanted: type, words: str, place: str) -> Any:
    if not isinstance(value, wanted):
        raise Wrong(f"{place} must be {words}")
    return value


def _integer(bounds: tuple[int, int], value: Any, place: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)  # spellings of calls without types give all as text
    if isinstance(value, bool) or not isinstance(value, int) or not bounds[0] <= value <= bounds[1]:
        raise Wrong(f"{place} must be a whole number from {bounds[0]} to {bounds[1]}")
    return value


def _bool(value: Any, place: str) -> Any:
    value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
    return _is(value, bool, "true or false", place)


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


def _char(value: Any, place: str) -> str:
    if len(text := _text(value, place)) != 1:
        raise Wrong(f"{place} must be one character")
    return text


def _bytes(value: Any, place: str) -> bytes:
    try:
        return base64.b64decode(_text(value, place), validate=True)
    except (binascii.Error, ValueError):
        raise Wrong(f"{place} must be base64") from None


_FLOAT = Codec({"type": "number"}, _number, lambda value: value if math.isfinite(value) else str(value))
_BYTES = Codec({"type": "string", "contentEncoding": "base64"}, _bytes, lambda value: base64.b64encode(value).decode())
_PLAIN: dict[type, Codec] = {
    wc.Bool: Codec({"type": "boolean"}, _bool),
    wc.F32: _FLOAT,
    wc.F64: _FLOAT,
    wc.Char: Codec({"type": "string", "minLength": 1, "maxLength": 1}, _char),
    wc.String: Codec({"type": "string"}, _text),
}


def _enum(names: list[str]) -> Codec:
    def lower(value: Any, place: str) -> str:
        if value not in names:
            raise Wrong(f"{place} must be one of: {', '.join(names)}")
        return str(value)

    return Codec({"type": "string", "enum": list(names)}, lower)


def _flags(names: list[str]) -> Codec:
    one = _enum(names)
    return Codec(
        {"type": "array", "items": one.schema, "uniqueItems": True},
        lambda value, place: {one.lower(item, place) for item in _is(value, list, "a list", place)},
        lambda value: [name for name in names if name in value],
    )


def _list(one: Codec) -> Codec:
    def lower(value: Any, place: str) -> list[Any]:
        return [one.lower(item, f"{place}[{n}]") for n, item in enumerate(_is(value, list, "a list", place))]

    return Codec({"type": "array", "items": one.schema}, lower, lambda value: [one.lift(item) for item in value])


def _record(fields: Fields) -> Codec:
    def lower(value: Any, place: str) -> wc.Record:
        record = wc.Record()
        for name, item in lower_fields(fields, _is(value, dict, "an object", place), f"{place}.").items():
            setattr(record, name, item)
        return record

    def lift(value: Any) -> Any:
        return {name: one.lift(getattr(value, name)) for name, one in fields.items()}

    return Codec(object_schema(fields), lower, lift)


def _tuple(parts: list[Codec]) -> Codec:
    def lower(value: Any, place: str) -> tuple[Any, ...]:
        if len(items := _is(value, list, "a list", place)) != len(parts):
            raise Wrong(f"{place} must be a list of {len(parts)}")
        return tuple(one.lower(item, f"{place}[{n}]") for n, (one, item) in enumerate(zip(parts, items, strict=True)))

    items = [one.schema for one in parts]
    return Codec(
        {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)},
        lower,
        lambda value: [one.lift(item) for one, item in zip(parts, value, strict=True)],
    )


def _option(kind: wc.OptionType, one: Codec) -> Codec:
    """`null` is none; an option in an option is told apart by a wrapping."""
    nested, has_tag = isinstance(kind.payload, wc.OptionType), kind._tagged()

    def lower(value: Any, place: str) -> Any:
        if value is None:
            return wc.Variant("none") if has_tag else None
        if nested and (not isinstance(value, dict) or set(value) != {"some"}):
            raise Wrong(f'{place} must be null or {{"some": ...}}')
        inner = one.lower(value["some"] if nested else value, place)
        return wc.Variant("some", inner) if has_tag else inner

    def lift(value: Any) -> Any:
        if value is None or (has_tag and value.tag == "none"):
            return None
        inner = one.lift(value.payload if has_tag else value)
        return {"some": inner} if nested else inner

    some = {"type": "object", "properties": {"some": one.schema}, "required": ["some"], "additionalProperties": False}
    return Codec({"anyOf": [some if nested else one.schema, {"type": "null"}]}, lower, lift, optional=True)


def _variant(kind: wc.VariantType | wc.ResultType, cases: Mapping[str, Codec | None]) -> Codec:
    """`{"tag", "value"}`, of a result too, which is one of two."""

    def lower(value: Any, place: str) -> Any:
        if not isinstance(value, dict) or set(value) - {"tag", "value"} or value.get("tag") not in cases:
            raise Wrong(f'{place} must be {{"tag": ..., "value": ...}} with a tag of: {", ".join(cases)}')
        tag, one = value["tag"], cases[value["tag"]]
        if one is None and value.get("value") is not None:
            raise Wrong(f"{place}: {tag} has no value")
        inner = None if one is None else one.lower(value.get("value"), f"{place}.value")
        if kind._tagged():
            return wc.Variant(tag, inner)
        if (seen_as := _case_of(kind, inner, isinstance)) not in (tag, None):
            raise Wrong(f"{place}: {tag} cannot be told from {seen_as} here")
        return inner

    def lift(value: Any) -> Any:
        tag, inner = (value.tag, value.payload) if kind._tagged() else (_case_of(kind, value, _is_exactly), value)
        if tag is None:
            raise Wrong("the tool returned a case that its type does not have")
        one = cases[tag]
        return {"tag": tag} if one is None else {"tag": tag, "value": one.lift(inner)}

    return Codec({"oneOf": [_case_schema(name, one) for name, one in cases.items()]}, lower, lift)


def _case_schema(name: str, one: Codec | None) -> Schema:
    properties = {"tag": {"const": name}, **({} if one is None else {"value": one.schema})}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _cases(kind: wc.VariantType | wc.ResultType) -> dict[str, wc.ValType | None]:
    return dict(kind.cases) if isinstance(kind, wc.VariantType) else {"ok": kind.ok, "err": kind.err}


def _case_of(kind: Any, value: Any, fits: Callable[[Any, tuple[type, ...]], bool]) -> str | None:
    """The case that a value without a tag is of: wasmtime leaves the tag out where Python's classes tell cases apart,
    by `isinstance` on the way in, for which a boolean is a number too.
    """
    for name, payload in _cases(kind).items():
        classes: set[type] = set()
        if payload is not None:
            payload.add_classes(classes)
        if value is None if payload is None else fits(value, tuple(classes)):
            return name
    return None


def _is_exactly(value: Any, classes: tuple[type, ...]) -> bool:
    return type(value) in classes or (value is None and object in classes)
