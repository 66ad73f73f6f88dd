"""What toolboxes of one tool have in common: they hold nothing between calls, and know one name."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import anyio

from stockade.core.actions import ToolResult
from stockade.core.errors import ActionFailed
from stockade.core.tools import ToolSpec


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
