"""What toolboxes in Python have in common: arguments as their code wants them, or a line for the model on what is wrong
with them; and the toolbox of one tool, which holds nothing between calls and knows one name.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
from pydantic import BaseModel, ConfigDict, ValidationError

from stockade.core.actions import ToolResult
from stockade.core.errors import ActionFailed
from stockade.core.tools import ToolSpec

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
    found = [(".".join(map(str, one["loc"])), one["msg"].removeprefix("Value error, ")) for one in error.errors()]
    wrong = [f"{place}: {words}" if place else words for place, words in found]
    more = f" (and {len(wrong) - MAX_WRONG} more)" if len(wrong) > MAX_WRONG else ""
    return "; ".join(dict.fromkeys(wrong[:MAX_WRONG])) + more


class OneTool(ABC):
    """Implements core.ports.Toolbox with `spec` and `do`."""

    @property
    @abstractmethod
    def spec(self) -> ToolSpec: ...

    @abstractmethod
    async def do(self, arguments: Mapping[str, Any], timeout_s: float | None) -> ToolResult:
        """A call of the tool, as core.ports.Toolbox says."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return (self.spec,)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        if name != self.spec.name:
            raise KeyError(name)
        return await self.do(arguments, timeout_s)


class Telling(OneTool):
    """One whose result is a text. ActionFailed, and no answer in time, are results of status `error`."""

    @abstractmethod
    async def tell(self, arguments: Mapping[str, Any]) -> str: ...

    @abstractmethod
    def late(self, seconds: float) -> str:
        """What the model is told when there is no answer in time."""

    async def do(self, arguments: Mapping[str, Any], timeout_s: float | None) -> ToolResult:
        try:
            with anyio.fail_after(timeout_s):
                return ToolResult(status="data", text=await self.tell(arguments))
        except ActionFailed as error:
            return ToolResult(status="error", text=error.message)
        except TimeoutError:
            return ToolResult(status="error", text=self.late(timeout_s or 0.0))
