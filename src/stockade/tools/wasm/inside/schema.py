"""Component types to JSON schema. What cannot cross (resources, streams, futures) has a reason instead."""

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
Schema = dict[str, Any]


class Foreign(Exception):
    """A type that has no JSON; the message says which."""


def is_bytes(kind: wc.ListType) -> bool:
    return isinstance(kind.element, wc.U8)


def of_function(function: wc.FuncType) -> Schema:
    """The schema of a function's arguments as one object. Foreign when an argument cannot be spelled."""
    return _object(list(function.params), 0)


def of_type(kind: wc.ValType, depth: int = 0) -> Schema:
    """The JSON schema of a value of this type."""
    if depth > MAX_DEPTH:
        raise Foreign(f"types nested deeper than {MAX_DEPTH}")
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
    return _compound(kind, depth + 1)


def _compound(kind: wc.ValType, depth: int) -> Schema:
    match kind:
        case wc.ListType() if is_bytes(kind):
            return {"type": "string", "contentEncoding": "base64"}
        case wc.ListType():
            return {"type": "array", "items": of_type(kind.element, depth)}
        case wc.RecordType():
            return _object(list(kind.fields), depth)
        case wc.TupleType():
            items = [of_type(element, depth) for element in kind.elements]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        case wc.OptionType():
            return _option(kind, depth)
        case wc.VariantType():
            return {"oneOf": [_case(name, payload, depth) for name, payload in kind.cases]}
        case wc.ResultType():
            return {"oneOf": [_case("ok", kind.ok, depth), _case("err", kind.err, depth)]}
    raise Foreign(_FOREIGN.get(type(kind), f"a {type(kind).__name__}"))


def _option(kind: wc.OptionType, depth: int) -> Schema:
    """`null` is none; an option in an option is told apart by a wrapping."""
    inner = of_type(kind.payload, depth)
    if isinstance(kind.payload, wc.OptionType):
        inner = {"type": "object", "properties": {"some": inner}, "required": ["some"], "additionalProperties": False}
    return {"anyOf": [inner, {"type": "null"}]}


def _case(name: str, payload: wc.ValType | None, depth: int) -> Schema:
    properties: Schema = {"tag": {"const": name}}
    if payload is not None:
        properties["value"] = of_type(payload, depth)
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _object(fields: list[tuple[str, wc.ValType]], depth: int) -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": {name: of_type(kind, depth) for name, kind in fields},
        "additionalProperties": False,
    }
    if required := [name for name, kind in fields if not isinstance(kind, wc.OptionType)]:
        schema["required"] = required
    return schema
