"""The memory as a tool: notes that last from one run to the next, in a folder of the host that no sandbox sees.

One tool with a `command`, not seven tools: the listing in the prompt is shorter, a small model picks among fewer names,
and larger ones were trained on exactly this tool. What a command lacks is said by name.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import anyio
import anyio.to_thread
from pydantic import Field

from stockade.core.actions import ToolResult
from stockade.core.errors import ActionFailed, UsageError
from stockade.core.tools import ToolSpec
from stockade.tools.arguments import Arguments, read
from stockade.tools.memory import commands
from stockade.tools.memory.folder import Bounds, MemoryFolder
from stockade.tools.memory.paths import ROOT, parse

NAME = "memory"
_COMMANDS = ("view", "create", "str_replace", "insert", "delete", "rename", "clear")
_NEEDS: dict[str, tuple[str, ...]] = {
    "view": ("path",),
    "create": ("path", "file_text"),
    "str_replace": ("path", "old_str", "new_str"),
    "insert": ("path", "insert_line", "insert_text"),
    "delete": ("path",),
    "rename": ("old_path", "new_path"),
    "clear": (),
}
_TEXT = {"type": "string"}
SPEC = ToolSpec(
    name=NAME,
    description=(
        f"Your notes from earlier runs, files under {ROOT}. View {ROOT} before you begin; save what will help next "
        "time before you finish. Commands: view (path), create (path, file_text), "
        "str_replace (path, old_str, new_str), "
        "insert (path, insert_line, insert_text), delete (path), rename (old_path, new_path), clear."
    ),
    parameters={
        "type": "object",
        "properties": {
            "command": {"type": "string", "enum": list(_COMMANDS)},
            "path": {"type": "string", "description": f"{ROOT} or {ROOT}/NAME"},
            "file_text": _TEXT,
            "old_str": _TEXT,
            "new_str": _TEXT,
            "insert_line": {"type": "integer", "description": "insert after this line; 0 is the beginning"},
            "insert_text": _TEXT,
            "old_path": _TEXT,
            "new_path": _TEXT,
            "view_range": {"type": "array", "items": {"type": "integer"}, "description": "[first, last] line"},
        },
        "required": ["command"],
        "additionalProperties": False,
    },
)


class _Wanted(Arguments):
    command: Literal["view", "create", "str_replace", "insert", "delete", "rename", "clear"]
    path: str | None = None
    file_text: str | None = None
    old_str: str | None = Field(default=None, min_length=1)
    new_str: str | None = None
    insert_line: int | None = None
    insert_text: str | None = None
    old_path: str | None = None
    new_path: str | None = None
    view_range: tuple[int, int] | None = None


@dataclass(slots=True)
class _Turn:
    """Whoever takes it first decides: the thread that it does its work, the one who waits that it does not."""

    over: threading.Event = field(default_factory=threading.Event)
    said: str = ""
    wrong: ActionFailed | OSError | None = None
    _taken: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> bool:
        return self._taken.acquire(blocking=False)


class MemoryToolbox:
    """Implements core.ports.Toolbox on a folder of the host, made when it is not there."""

    specs: tuple[ToolSpec, ...] = (SPEC,)

    def __init__(self, root: Path, bounds: Bounds | None = None) -> None:
        self._folder = MemoryFolder(root, bounds or Bounds())

    async def __aenter__(self) -> Self:
        try:
            await anyio.to_thread.run_sync(self._folder.make)
        except OSError as error:
            raise UsageError(
                f"the memory {self._folder.root} cannot be used: {error.strerror}", "make it a folder of your own"
            ) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        if name != NAME:
            raise KeyError(name)
        try:
            wanted = read(_Wanted, arguments)
            _check(wanted)
            return ToolResult(status="success", text=await self._in_time(wanted, timeout_s))
        except ActionFailed as error:
            return ToolResult(status="error", text=error.message)
        except OSError as error:
            return ToolResult(status="error", text=f"the memory cannot be used: {error.strerror or error}")

    async def _in_time(self, wanted: _Wanted, timeout_s: float | None) -> str:
        """In a thread, which another run that holds the lock may keep waiting; given up, it changes nothing more."""
        turn = _Turn()

        def work() -> None:
            try:
                turn.said = self._do(wanted, turn)
            except (ActionFailed, OSError) as error:
                turn.wrong = error
            finally:
                turn.over.set()

        given_up = False
        try:
            with anyio.move_on_after(timeout_s if timeout_s is not None else math.inf):
                await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        finally:
            if not turn.over.is_set() and not (given_up := turn.take()):
                with anyio.CancelScope(shield=True):  # it is being done right now, which takes milliseconds
                    await anyio.to_thread.run_sync(turn.over.wait)
        if given_up:
            raise ActionFailed(f"another run has kept the memory for {timeout_s:g} s: nothing was changed")
        if turn.wrong is not None:
            raise turn.wrong
        return turn.said

    def _do(self, wanted: _Wanted, turn: "_Turn") -> str:
        command, path = wanted.command, wanted.path or ""
        if command == "view":
            return commands.view(self._folder, parse(path), wanted.view_range)
        changes: dict[str, Callable[[], str]] = {
            "create": lambda: commands.create(self._folder, parse(path), wanted.file_text or ""),
            "str_replace": lambda: commands.str_replace(
                self._folder, parse(path), wanted.old_str or "", wanted.new_str or ""
            ),
            "insert": lambda: commands.insert(
                self._folder, parse(path), wanted.insert_line or 0, wanted.insert_text or ""
            ),
            "delete": lambda: commands.delete(self._folder, parse(path)),
            "rename": lambda: commands.rename(self._folder, parse(wanted.old_path or ""), parse(wanted.new_path or "")),
            "clear": lambda: commands.clear(self._folder),
        }
        with self._folder.changing():
            return changes[command]() if turn.take() else ""


def _check(wanted: _Wanted) -> None:
    missing = [name for name in _NEEDS[wanted.command] if getattr(wanted, name) is None]
    if missing:
        raise ActionFailed(
            f"{wanted.command} needs {' and '.join(missing)}: it takes {', '.join(_NEEDS[wanted.command])}"
        )
