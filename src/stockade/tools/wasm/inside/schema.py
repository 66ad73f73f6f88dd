"""Component types to JSON schema. What cannot cross (resources, streams, futures) has a reason instead."""

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
    return _compound(kind, walk.down())


def _compound(kind: wc.ValType, walk: Walk) -> Schema:
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
            return _option(kind, walk)
        case wc.VariantType():
            return {"oneOf": [_case(name, payload, walk) for name, payload in kind.cases]}
        case wc.ResultType():
            return {"oneOf": [_case("ok", kind.ok, walk), _case("err", kind.err, walk)]}
    raise Foreign(_FOREIGN.get(type(kind), f"a {type(kind).__name__}"))


def _option(kind: wc.OptionType, walk: Walk) -> Schema:
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
