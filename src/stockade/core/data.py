"""The base of every value that is recorded or sent."""

from pydantic import BaseModel, ConfigDict


class Data(BaseModel):
    """An immutable value; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
