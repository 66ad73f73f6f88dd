"""The memory as tools: notes that last from one run to the next, in a folder of the host that no sandbox sees.

Seven tools, not one with a `command`: a grammar can force what each of them needs. With one tool, where all but the
command is optional, the default model wrote `{"command": "view"}` without a path each of the four times it tried.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

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

_PREFIX = "memory_"
_TEXT = {"type": "string"}
_PATH = {"type": "string", "description": f"{ROOT} or {ROOT}/NAME"}
_KINDS: dict[str, dict[str, Any]] = {
    "path": _PATH,
    "old_path": _PATH,
    "new_path": _PATH,
    "insert_line": {"type": "integer", "description": "0 is the beginning"},
    "view_range": {"type": "array", "items": {"type": "integer"}, "description": "[first, last] line"},
}
_NEEDS: dict[str, tuple[str, ...]] = {
    "view": ("path",),
    "create": ("path", "file_text"),
    "str_replace": ("path", "old_str", "new_str"),
    "insert": ("path", "insert_line", "insert_text"),
    "delete": ("path",),
    "rename": ("old_path", "new_path"),
    "clear": ("path",),
}
_MAY_HAVE: dict[str, tuple[str, ...]] = {"view": ("view_range",)}
_SAYS = {
    "view": f"Your notes from earlier runs: the list of {ROOT}, or one file. Look here before you begin.",
    "create": "Save a new note, for later runs.",
    "str_replace": "Replace text that stands once in a note.",
    "insert": "Insert lines into a note after a line.",
    "delete": "Delete a note.",
    "rename": "Rename a note.",
    "clear": f"Forget all notes; the path must be {ROOT}.",
}


def _spec(command: str) -> ToolSpec:
    needs = _NEEDS[command]
    return ToolSpec(
        name=_PREFIX + command,
        description=_SAYS[command],
        parameters={
            "type": "object",
            "properties": {name: _KINDS.get(name, _TEXT) for name in (*needs, *_MAY_HAVE.get(command, ()))},
            "required": list(needs),
            "additionalProperties": False,
        },
    )


SPECS = tuple(_spec(command) for command in _NEEDS)


class _Wanted(Arguments):
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

    specs: tuple[ToolSpec, ...] = SPECS

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
        command = name.removeprefix(_PREFIX)
        if name != _PREFIX + command:
            raise KeyError(name)
        needs = _NEEDS[command]
        try:
            wanted = read(_Wanted, arguments)
            if missing := [one for one in needs if getattr(wanted, one) is None]:
                raise ActionFailed(f"{name} needs {' and '.join(missing)}: it takes {', '.join(needs)}")
            return ToolResult(status="success", text=await self._in_time(command, wanted, timeout_s))
        except ActionFailed as error:
            return ToolResult(status="error", text=error.message)
        except OSError as error:
            return ToolResult(status="error", text=f"the memory cannot be used: {error.strerror or error}")

    async def _in_time(self, command: str, wanted: _Wanted, timeout_s: float | None) -> str:
        """In a thread, which another run that holds the lock may keep waiting; given up, it changes nothing more."""
        turn = _Turn()

        def work() -> None:
            try:
                turn.said = self._do(command, wanted, turn)
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

    def _do(self, command: str, wanted: _Wanted, turn: "_Turn") -> str:
        path = wanted.path or ""
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
            "clear": lambda: commands.clear(self._folder, parse(path)),
        }
        with self._folder.changing():
            return changes[command]() if turn.take() else ""
