"""JSON to component values and back, checked here: wasmtime's Python side cuts integers in silence."""

import base64
import binascii
import json
import math
import re
from typing import Any

from wasmtime import component as wc

from stockade.tools.wasm.inside.schema import INTEGERS, is_bytes

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
        case wc.VariantType():
            return _variant(kind, dict(kind.cases), value, place)
        case wc.ResultType():
            return _variant(kind, {"ok": kind.ok, "err": kind.err}, value, place)
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


def _variant(kind: Any, cases: dict[str, wc.ValType | None], value: Any, place: str) -> Any:
    if not isinstance(value, dict) or set(value) - {"tag", "value"} or value.get("tag") not in cases:
        raise Wrong(f'{place} must be {{"tag": ..., "value": ...}} with a tag of: {", ".join(cases)}')
    payload = cases[value["tag"]]
    if payload is None and value.get("value") is not None:
        raise Wrong(f"{place}: {value['tag']} has no value")
    inner = None if payload is None else lower(payload, value.get("value"), f"{place}.value")
    if kind._tagged():
        return wc.Variant(value["tag"], inner)
    return _sure(cases, value["tag"], inner, place)


def _sure(cases: dict[str, wc.ValType | None], tag: str, inner: Any, place: str) -> Any:
    """wasmtime finds the case by `isinstance`, for which a boolean is a number too: never the wrong case."""
    for name, payload in cases.items():
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
        case wc.VariantType():
            return _lift_variant(kind, dict(kind.cases), value)
        case wc.ResultType():
            return _lift_variant(kind, {"ok": kind.ok, "err": kind.err}, value)
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


def tagged(kind: Any, cases: dict[str, wc.ValType | None], value: Any) -> tuple[str, Any]:
    """The case of a variant and its value: wasmtime leaves the tag out where the Python classes tell them apart."""
    if kind._tagged():
        return value.tag, value.payload
    for name, payload in cases.items():
        if payload is None:
            if value is None:
                return name, None
            continue
        classes: set[type] = set()
        payload.add_classes(classes)
        if type(value) in classes or (value is None and object in classes):
            return name, value
    raise Wrong("the tool returned a case that its type does not have")


def _lift_variant(kind: Any, cases: dict[str, wc.ValType | None], value: Any) -> Any:
    name, inner = tagged(kind, cases, value)
    payload = cases[name]
    return {"tag": name} if payload is None else {"tag": name, "value": lift(payload, inner)}


def spelled(kind: wc.ValType | None, value: Any) -> str:
    """What the model reads of a result: text as it is, all else as JSON, nothing as nothing."""
    if kind is None:
        return ""
    found = lift(kind, value)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
