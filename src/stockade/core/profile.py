"""Who a planning bot is in one run: a name, a role, and what it goes by. Made for a task, changed by the person."""

from pydantic import Field

from stockade.core.data import Data

MAX_DIRECTIVES = 12
MAX_DIRECTIVE_CHARS = 300
MAX_NAME_CHARS = 60
MAX_ROLE_CHARS = 400


class Profile(Data):
    """The directives are sentences; a profile of many is one that a small model talks about in place of working."""

    name: str = Field(min_length=1, max_length=MAX_NAME_CHARS)
    role: str = Field(min_length=1, max_length=MAX_ROLE_CHARS)
    constraints: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    best_practices: tuple[str, ...] = ()
