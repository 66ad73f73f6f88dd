"""The base of every value that is recorded or sent; and what is wrong with a value that a user set, in words."""

import types
import typing
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo


class Data(BaseModel):
    """An immutable value; unknown fields are refused.

    What checks them is built when the first value of a class is made: most commands make few of many.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_SHOWN = 40
_MAX_WRONG = 3


def wrong_words(error: ValidationError) -> str:
    """The first arguments that are missing or wrong, each with what is wrong with it, in a line for the model."""
    errors = [(".".join(map(str, one["loc"])), one["msg"].removeprefix("Value error, ")) for one in error.errors()]
    wrong = [f"{field}: {message}" if field else message for field, message in errors]
    more = f" (and {len(wrong) - _MAX_WRONG} more)" if len(wrong) > _MAX_WRONG else ""
    return "; ".join(dict.fromkeys(wrong[:_MAX_WRONG])) + more


def first_refused(error: ValidationError, model: type[BaseModel]) -> tuple[str, str]:
    """The first key that is wrong, as the user wrote it, and what follows it in a message."""
    first = error.errors(include_url=False)[0]
    key = str(first["loc"][0]) if first["loc"] else ""
    if isinstance(reason := first.get("ctx", {}).get("error"), ValueError):
        return key, f": {reason}"
    field = next((field for name, field in model.model_fields.items() if key in (name, field.alias)), None)
    if field is None:
        return key, " is no setting"
    return key, f": {_refused(first['input'], field)}"


def may_be(field: FieldInfo) -> str:
    """Such as `a number above 0, at most 1`."""
    if field.description:
        return field.description
    kind = _kind(field)
    if kind is typing.Literal:
        return f"one of {', '.join(map(str, typing.get_args(_without_none(field.annotation))))}"
    if kind is tuple:
        return "a list of texts"
    return " ".join([_KINDS.get(kind, "something else"), *_bounds(field)])


def _refused(value: object, field: FieldInfo) -> str:
    """Such as `'many' is not a whole number from 1 to 1024`. What should be a list of texts may be a secret."""
    if not isinstance(value, str | int | float) or _kind(field) is tuple:
        return f"it has to be {may_be(field)}"
    shown = repr(value)
    return f"{shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}...'} is not {may_be(field)}"


def _bounds(field: FieldInfo) -> list[str]:
    names = ("ge", "gt", "le", "lt")
    values = ((name, getattr(one, name, None)) for one in field.metadata for name in names)
    bounds_of = {name: value for name, value in values if value is not None}
    if "ge" in bounds_of and "le" in bounds_of:
        return [f"from {bounds_of['ge']} to {bounds_of['le']}"]
    phrases = {"ge": "of at least", "gt": "above", "le": "at most", "lt": "below"}
    bounds = ", ".join(f"{phrases[name]} {bounds_of[name]}" for name in names if name in bounds_of)
    return [bounds] if bounds else []


def _kind(field: FieldInfo) -> Any:
    kind = _without_none(field.annotation)
    return typing.get_origin(kind) or kind


def _without_none(annotation: Any) -> Any:
    union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    parts = typing.get_args(annotation) if union else (annotation,)
    return next(part for part in parts if part is not type(None))
