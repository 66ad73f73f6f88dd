"""What is kept on disk or sent to another machine: typed, as JSON, without what is as by default, checked when read."""

from typing import TypeVar, dataclass_transform

import msgspec
from msgspec import field
from msgspec.structs import asdict, replace

__all__ = ["Record", "asdict", "field", "line_of", "read", "replace"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The base of each: immutable, by keyword; unknown fields are refused."""


def line_of(record: msgspec.Struct) -> bytes:
    """Without an end of line. UnicodeEncodeError for strings that are no text."""
    return msgspec.json.encode(record)


def read(kind: type[T], line: bytes) -> T:
    """ValueError for what is none of that kind: it may be damaged, or anybody's."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None
