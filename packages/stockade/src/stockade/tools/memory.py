"""The memory as tools: notes that last from one run to the next, in a folder of the host that no bot's sandbox sees.

Each call is done by memory_worker.py in a sealed sandbox of its own, where that folder is all there is to write. Seven
tools, not one with a `command`: a grammar can force what each of them needs. With one tool, where all but the command
is optional, the default model wrote `{"command": "view"}` without a path each of the four times it tried.
"""

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio.to_thread
from pydantic import create_model

from stockade.core.actions import ToolResult
from stockade.core.data import Data
from stockade.core.errors import ActionFailed, SandboxDied, UsageError
from stockade.core.text import is_text, one_line
from stockade.core.toolbox import Arguments, read
from stockade.core.tools import ToolSpec
from stockade.tools.memory_worker import ROOT
from stockade_sandbox.policy import KIB, MIB
from stockade_sandbox.reading import ReadingRoom
from stockade_sandbox.results import FolderLayer

_PREFIX = "memory_"
_GRACE_S = 5.0
"""For a change that has begun when the time is over."""
_TEXT = (str, {"type": "string"})
_PATH = (str, {"type": "string", "description": f"{ROOT} or {ROOT}/NAME"})
_KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "path": _PATH,
    "old_path": _PATH,
    "new_path": _PATH,
    "insert_line": (int, {"type": "integer", "description": "0 is the beginning"}),
    "view_range": (tuple[int, int], {"type": "array", "items": {"type": "integer"},
                                     "description": "[first, last] line"}),
}  # fmt: skip
"""Of the arguments that are no plain text: their type here and what a model is told of it."""
_COMMANDS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "view": (f"Your notes from earlier runs: the list of {ROOT}, or one file. Look here before you begin.",
             ("path",), ("view_range",)),
    "create": ("Save a new note, for later runs.", ("path", "file_text"), ()),
    "str_replace": ("Replace text that stands once in a note.", ("path", "old_str", "new_str"), ()),
    "insert": ("Insert lines into a note after a line.", ("path", "insert_line", "insert_text"), ()),
    "delete": ("Delete a note.", ("path",), ()),
    "rename": ("Rename a note.", ("old_path", "new_path"), ()),
    "clear": (f"Forget all notes; the path must be {ROOT}.", ("path",), ()),
}  # fmt: skip
"""What each is for, what it needs, and what it may have besides."""


def _spec(command: str) -> ToolSpec:
    about, needs, may_have = _COMMANDS[command]
    properties = {name: _KINDS.get(name, _TEXT)[1] for name in (*needs, *may_have)}
    schema = {"type": "object", "properties": properties, "required": list(needs), "additionalProperties": False}
    return ToolSpec(name=_PREFIX + command, description=about, parameters=schema)


@cache
def _arguments(command: str) -> type[Arguments]:
    _, needs, may_have = _COMMANDS[command]
    fields: dict[str, Any] = {name: (_KINDS.get(name, _TEXT)[0], ...) for name in needs}
    fields |= {name: (_KINDS.get(name, _TEXT)[0] | None, None) for name in may_have}
    return create_model(command, __base__=Arguments, **fields)


@cache
def _worker() -> str:
    return Path(__file__).with_name("memory_worker.py").read_text()


class Bounds(Data):
    """Of one memory, in bytes and files (folders count as files)."""

    file_bytes: int = 64 * KIB
    total_bytes: int = MIB
    files: int = 200


class MemoryToolbox:
    """Implements core.ports.Toolbox on a folder of the host, made when it is not there; its owner's only."""

    specs: tuple[ToolSpec, ...] = tuple(map(_spec, _COMMANDS))

    def __init__(self, root: Path, room: ReadingRoom, bounds: Bounds | None = None) -> None:
        self._layer = FolderLayer(host=str(root), inside=ROOT, mode="rw", strategy="direct")
        self._room, self._bounds = room, bounds or Bounds()

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(self._prepare)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def _prepare(self) -> None:
        self._room.check()
        root = Path(self._layer.host)
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
        except OSError as error:
            raise UsageError(
                f"the memory {root} cannot be used: {error.strerror}", "make it a folder of your own"
            ) from error

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        """In a sandbox that sees the folder, which another run that holds the lock may keep waiting."""
        command = name.removeprefix(_PREFIX)
        if name != _PREFIX + command or command not in _COMMANDS:
            raise KeyError(name)
        argv = [self._room.python, "-I", "-S", "-B", "-c", _worker()]
        limit_s = None if timeout_s is None else timeout_s + _GRACE_S
        try:
            given = read(_arguments(command), arguments).model_dump(exclude_none=True)
            if not all(is_text(value) for value in given.values() if isinstance(value, str)):
                raise ActionFailed("the text holds a NUL byte or half a surrogate pair, which is no text")
            asked = {"command": command, "arguments": given, "wait_s": timeout_s, "bounds": self._bounds.model_dump()}
            async with self._room.open(folders=(self._layer,)) as sandbox:
                done = await sandbox.exec(argv, json.dumps(asked).encode(), limit_s)
            status, text = json.loads(done.stdout)
        except ActionFailed as error:
            return ToolResult(status="error", text=error.message)
        except (SandboxDied, ValueError, TypeError) as error:
            return ToolResult(status="error", text=f"the memory cannot be used: {one_line(str(error), 200)}")
        return ToolResult(status="success" if status == "success" else "error", text=text)
