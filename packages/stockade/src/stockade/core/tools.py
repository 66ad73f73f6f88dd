"""What a model is told of a tool that is none of the built-in actions."""

from typing import Any

from pydantic import Field

from stockade.core.data import Data

MAX_NAME_CHARS = 64
NAME = rf"^[A-Za-z][A-Za-z0-9_-]{{0,{MAX_NAME_CHARS - 1}}}$"
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


class ToolSpec(Data):
    """A tool's name, what it does in a sentence or two, and the JSON schema of its arguments (an object).

    `in_process`: a function of the program that began the run; it runs there, outside the sandbox.
    """

    name: str = Field(pattern=NAME)
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: dict(NO_PARAMETERS))
    in_process: bool = False

    @property
    def properties(self) -> dict[str, Any]:
        """The arguments' schemas by name; empty where the schema has none."""
        result = self.parameters.get("properties")
        return result if isinstance(result, dict) else {}

    @property
    def required(self) -> tuple[str, ...]:
        """The arguments that must be given."""
        result = self.parameters.get("required")
        return tuple(str(name) for name in result) if isinstance(result, list | tuple) else ()


Offered = str | ToolSpec
"""What a bot may use: a built-in action by its name (`shell`), or a tool."""


def name_of(tool: Offered) -> str:
    return tool if isinstance(tool, str) else tool.name
