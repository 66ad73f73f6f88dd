"""The base of every value that is recorded or sent."""

from pydantic import BaseModel, ConfigDict


class Data(BaseModel):
    """An immutable value; unknown fields are refused.

    What checks them is built when the first value of a class is made: most commands make few of many.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
