"""A tool's arguments as its code wants them, or a line for the model on what is wrong with them."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from stockade.core.errors import ActionFailed

MAX_WRONG = 3


class Arguments(BaseModel):
    """Base of a tool's arguments. What is not asked for is passed over: small models add things."""

    model_config = ConfigDict(frozen=True, extra="ignore")


T = TypeVar("T", bound=Arguments)


def read(kind: type[T], arguments: Mapping[str, Any]) -> T:
    """ActionFailed naming each argument that is missing or wrong. One that is null counts as not given."""
    try:
        return kind.model_validate({name: value for name, value in arguments.items() if value is not None})
    except ValidationError as error:
        raise ActionFailed(wrong_words(error)) from None


def wrong_words(error: ValidationError) -> str:
    """The first arguments that are missing or wrong, each with what is wrong with it, in a line for the model."""
    errors = [(".".join(map(str, one["loc"])), one["msg"].removeprefix("Value error, ")) for one in error.errors()]
    wrong = [f"{field}: {message}" if field else message for field, message in errors]
    more = f" (and {len(wrong) - MAX_WRONG} more)" if len(wrong) > MAX_WRONG else ""
    return "; ".join(dict.fromkeys(wrong[:MAX_WRONG])) + more
