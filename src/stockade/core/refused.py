"""What is wrong with a value that a person set, in words: what it may be, and what it was."""

import types
import typing
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_BOUNDS = (("ge", "of at least"), ("gt", "above"), ("le", "of at most"), ("lt", "below"))
_SHOWN = 60


def first_refused(error: ValidationError, model: type[BaseModel]) -> tuple[str, str]:
    """The first key that is wrong, as the person wrote it, and what follows it in a message."""
    first = error.errors(include_url=False)[0]
    key = str(first["loc"][0]) if first["loc"] else ""
    if isinstance(reason := first.get("ctx", {}).get("error"), ValueError):
        return key, f": {reason}"
    value = repr(first["input"])
    value = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
    field = next((field for name, field in model.model_fields.items() if key in (name, field.alias)), None)
    if field is None:
        return key, " is no setting"
    return key, f" may be {_wanted(field)}, not {value}"


def _wanted(field: FieldInfo) -> str:
    """The kind of value, and its bounds."""
    kind: Any = field.annotation
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kind = next(one for one in typing.get_args(kind) if one is not type(None))
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(kind)))
    if typing.get_origin(kind) is tuple:
        return "a list of texts"
    words = [f"{words} {bound}" for one in field.metadata for name, words in _BOUNDS
             if (bound := getattr(one, name, None)) is not None]  # fmt: skip
    words += [f"like {one.pattern}" for one in field.metadata if getattr(one, "pattern", None)]
    return " ".join((_KINDS.get(kind, "something else"), " and ".join(words))).strip()
