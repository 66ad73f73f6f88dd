"""A toolbox without a world: for tests of what calls one."""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from stockade.core.actions import ToolResult
from stockade.core.tools import ToolSpec


class MemoryToolbox:
    """Implements core.ports.Toolbox: each tool is a function of its arguments. `calls` is what was asked of it."""

    def __init__(self, *tools: tuple[ToolSpec, Callable[[Mapping[str, Any]], str]]) -> None:
        self._tools = {spec.name: (spec, work) for spec, work in tools}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.entered = self.left = 0

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(spec for spec, _ in self._tools.values())

    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.left += 1

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        spec, work = self._tools[name]
        self.calls.append((name, dict(arguments)))
        missing = [wanted for wanted in spec.required if wanted not in arguments]
        if missing:
            return ToolResult(status="error", text=f"missing: {', '.join(missing)}")
        return ToolResult(status="success", text=work(arguments))
