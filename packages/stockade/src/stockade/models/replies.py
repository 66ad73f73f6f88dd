"""What servers of models say: values of the type that they should have, and a no to what they do not support."""

import json
import re
from collections.abc import Sequence
from typing import Any

from stockade.core.errors import ModelUnavailable
from stockade.core.settings import Effort

MAX_COUNT = 2**53
"""Above it JSON's numbers are not exact, and nobody's tokens reach it."""


_SIZE_LABEL = re.compile(r"(?:(\d{1,4})x)?(\d{1,6}(?:\.\d{1,6})?)\s*([KMBT])(?![a-z])", re.IGNORECASE)
_SCALES = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def parsed(text: str | bytes) -> Any:
    """The JSON value that a text is; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def as_dict(value: object) -> dict[str, Any]:
    """The object that it is, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_text(value: object) -> str:
    """A text that can be stored: JSON can spell half of a surrogate pair, UTF-8 cannot."""
    if not isinstance(value, str):
        return ""
    if value.isascii():
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def as_count(value: object) -> int:
    """The count that it is; 0 for what is negative, no integer, or above what any server counts."""
    return value if type(value) is int and 0 < value <= MAX_COUNT else 0


def as_amount(value: object) -> float | None:
    """The amount of money that it is; None for what is negative or no number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return float(value)
    return None


MAX_NESTED = 24
"""How deep what goes on record may be nested: the record's reader and writer have their own bound far above it."""


def as_items(value: Sequence[object]) -> tuple[dict[str, Any], ...]:
    """The objects that these are, fit to be recorded and sent again unchanged; none where one of them is not."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):  # half of a surrogate pair, a number that is none
        return ()
    items = tuple(item for item in value if isinstance(item, dict))
    return items if len(items) == len(value) and not any(_nested(item, MAX_NESTED) for item in items) else ()


def _nested(value: object, left: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return left == 0 or any(_nested(one, left - 1) for one in inner)


def parse_size_label(label: str) -> int | None:
    """The parameters that a size like `1.5B`, `8x7B` or `30B-A3B` stands for, all experts counted; None for no size.

    The form is that of `general.size_label` in the GGUF specification.
    """
    match = _SIZE_LABEL.match(label.strip())
    if match is None:
        return None
    experts, number, scale = match.groups()
    return round(int(experts or 1) * float(number) * _SCALES[scale.upper()])


class Refused(ModelUnavailable):
    """The server does not take this request; a plainer one it may."""


OWN_THINKING = "its own thinking"


class NoSuchModel(ModelUnavailable):
    """The server does not have the model that was asked for, or has it for others only."""


class NotSupported(Refused):
    """The server would answer without `feature`: a parameter by its name, `system` for the role of that name, or
    OWN_THINKING, what it had said before and takes back no more. `efforts` are those that it names.
    """

    def __init__(self, message: str, feature: str, efforts: Sequence[Effort] = ()) -> None:
        super().__init__(message)
        self.feature, self.efforts = feature, tuple(efforts)
