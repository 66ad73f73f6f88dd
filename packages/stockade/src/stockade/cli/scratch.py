"""What a run without a folder wrote, which goes with its sandbox: asked while the sandbox is up, said at the end."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any, Self

from stockade.core.actions import ToolResult
from stockade.core.errors import StockadeError
from stockade.core.policy import Policy
from stockade.core.ports import Sandbox
from stockade.core.tools import ToolSpec

_SHOWN = 5
_PATIENCE_S = 5.0
_MAX_BYTES = 64 << 10


@dataclass(slots=True)
class Scratch:
    """Implements core.ports.Toolbox without a tool: what it does is to look when it is left, while the sandbox is up.

    `names` are the files of the working folder, relative, where the run came to an end of its own and had no folder.
    """

    sandbox: Sandbox
    policy: Policy
    specs: tuple[ToolSpec, ...] = ()
    names: list[str] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self.policy.folders:
            with suppress(StockadeError):
                await self._look()

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        raise KeyError(name)

    async def _look(self) -> None:
        place = PurePosixPath(self.policy.workdir)
        listed = await self.sandbox.exec(
            ["find", str(place), "-type", "f", "-print0"], timeout_s=_PATIENCE_S, max_output_bytes=_MAX_BYTES
        )
        whole, _, _ = listed.stdout.rpartition(b"\0")
        paths = [PurePosixPath(path.decode(errors="backslashreplace")) for path in whole.split(b"\0") if path]
        copied = [PurePosixPath(rule.inside) for rule in self.policy.copies]
        self.names = sorted(
            str(path.relative_to(place))
            for path in paths
            if path.is_relative_to(place) and not any(path.is_relative_to(known) for known in copied)
        )

    def words(self) -> str | None:
        """A line for the person, with a few of the names; None when nothing is lost."""
        if not self.names:
            return None
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        return f"these files are gone with the sandbox: {', '.join(self.names[:_SHOWN])}{more}"
