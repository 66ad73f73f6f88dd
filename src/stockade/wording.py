"""What a setting may be, in words, for whoever gave something else."""

import types
import typing
from typing import Any

from pydantic.fields import FieldInfo

_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}
_MAX_SHOWN = 40


def refused(value: object, field: FieldInfo) -> str | None:
    """Such as `'many' is not a whole number from 1 to 1024`; None where there is no better word than the library's."""
    wanted = may_be(field)
    if wanted is None:
        return None
    # What should be a list of texts may be a secret.
    if not isinstance(value, str | int | float) or _kind(field) is tuple:
        return f"it has to be {wanted}"
    return f"{repr(value)[:_MAX_SHOWN]} is not {wanted}"


def may_be(field: FieldInfo) -> str | None:
    """Such as `a number above 0, at most 1`."""
    kind = _kind(field)
    if field.description:
        return field.description
    if kind is typing.Literal:
        return f"one of {', '.join(str(value) for value in _values(field.annotation))}"
    if kind is tuple:
        return "a list of texts"
    words = _KINDS.get(kind)
    return words and " ".join([words, *_bounds(field)])


def _bounds(field: FieldInfo) -> list[str]:
    found = {name: getattr(one, name) for one in field.metadata for name in ("ge", "gt", "le") if hasattr(one, name)}
    if "ge" in found and "le" in found:
        return [f"from {found['ge']} to {found['le']}"]
    if "ge" in found:
        return [f"of at least {found['ge']}"]
    above = [f"above {found['gt']}"] if "gt" in found else []
    most = [f"at most {found['le']}"] if "le" in found else []
    return [", ".join(above + most)] if above or most else []


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """Those of a union, without None."""
    union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    parts = typing.get_args(annotation) if union else (annotation,)
    return tuple(part for part in parts if part is not type(None))


def _kind(field: FieldInfo) -> Any:
    (first, *_) = _kinds(field.annotation)
    return typing.get_origin(first) or first


def _values(annotation: Any) -> tuple[Any, ...]:
    (first, *_) = _kinds(annotation)
    return typing.get_args(first)
