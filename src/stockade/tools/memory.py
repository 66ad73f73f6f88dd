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
from pydantic import Field

from stockade.core.actions import ToolResult
from stockade.core.changes import FolderLayer
from stockade.core.data import Data
from stockade.core.errors import ActionFailed, SandboxDied, UsageError
from stockade.core.policy import KIB, MIB
from stockade.core.text import is_text, one_line
from stockade.core.toolbox import Arguments, read
from stockade.core.tools import ToolSpec
from stockade.tools.documents import Room
from stockade.tools.memory_worker import MAX_DEPTH, ROOT

MAX_NAME_BYTES = 120
_PREFIX = "memory_"
_GRACE_S = 5.0
"""For a change that has begun when the time is over."""
_TEXT = {"type": "string"}
_PATH = {"type": "string", "description": f"{ROOT} or {ROOT}/NAME"}
_KINDS: dict[str, dict[str, Any]] = {
    "path": _PATH,
    "old_path": _PATH,
    "new_path": _PATH,
    "insert_line": {"type": "integer", "description": "0 is the beginning"},
    "view_range": {"type": "array", "items": {"type": "integer"}, "description": "[first, last] line"},
}
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
_ROOT_CANNOT = {"create": "be created", "delete": "be deleted (use clear to forget everything)", "rename": "be renamed"}


def _spec(command: str) -> ToolSpec:
    about, needs, may_have = _COMMANDS[command]
    return ToolSpec(
        name=_PREFIX + command,
        description=about,
        parameters={
            "type": "object",
            "properties": {name: _KINDS.get(name, _TEXT) for name in (*needs, *may_have)},
            "required": list(needs),
            "additionalProperties": False,
        },
    )


class Bounds(Data):
    """Of one memory, in bytes and files (folders count as files)."""

    file_bytes: int = 64 * KIB
    total_bytes: int = MIB
    files: int = 200


class _Requested(Arguments):
    path: str | None = None
    file_text: str | None = None
    old_str: str | None = Field(default=None, min_length=1)
    new_str: str | None = None
    insert_line: int | None = None
    insert_text: str | None = None
    old_path: str | None = None
    new_path: str | None = None
    view_range: tuple[int, int] | None = None


class MemoryToolbox:
    """Implements core.ports.Toolbox on a folder of the host, made when it is not there; its owner's only."""

    specs: tuple[ToolSpec, ...] = tuple(map(_spec, _COMMANDS))

    def __init__(self, root: Path, room: Room, bounds: Bounds | None = None) -> None:
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
        command = name.removeprefix(_PREFIX)
        if name != _PREFIX + command:
            raise KeyError(name)
        try:
            asked = {"command": command, "arguments": _checked(command, arguments), "wait_s": timeout_s}
            status, text = await self._done(asked | {"bounds": self._bounds.model_dump()}, timeout_s)
        except ActionFailed as error:
            status, text = "error", error.message
        return ToolResult(status="success" if status == "success" else "error", text=text)

    async def _done(self, asked: dict[str, Any], timeout_s: float | None) -> tuple[str, str]:
        """In a sandbox that sees the folder, which another run that holds the lock may keep waiting."""
        argv = [self._room.python, "-I", "-S", "-B", "-c", _worker()]
        limit_s = None if timeout_s is None else timeout_s + _GRACE_S
        try:
            async with self._room.open(folders=(self._layer,)) as sandbox:
                done = await sandbox.exec(argv, json.dumps(asked).encode(), limit_s)
            status, text = json.loads(done.stdout)
        except (SandboxDied, ValueError, TypeError) as error:
            raise ActionFailed(f"the memory cannot be used: {one_line(str(error), 200)}") from None
        return status, text


@cache
def _worker() -> str:
    return Path(__file__).with_name("memory_worker.py").read_text()


def _checked(command: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The command's own arguments, paths in full. ActionFailed for what is missing or wrong in them."""
    _, needs, may_have = _COMMANDS[command]
    asked = read(_Requested, arguments).model_dump(exclude_none=True)
    if missing := [name for name in needs if name not in asked]:
        raise ActionFailed(f"{_PREFIX}{command} needs {' and '.join(missing)}: it takes {', '.join(needs)}")
    asked = {name: asked[name] for name in (*needs, *may_have) if name in asked}
    for name, value in asked.items():
        if name.endswith("path"):
            asked[name] = path = full_path(value)
            if path == ROOT and command in _ROOT_CANNOT:
                raise ActionFailed(f"{ROOT} itself cannot {_ROOT_CANNOT[command]}; write {ROOT}/NAME")
            if path != ROOT and command == "clear":
                raise ActionFailed(f"clear forgets everything: its path is {ROOT}; to forget {path}, delete it")
        elif isinstance(value, str) and not is_text(value):
            raise ActionFailed("the text holds a NUL byte or half a surrogate pair, which is no text")
    return asked


def full_path(path: str) -> str:
    """`/memories/...` of a path as a model writes it. ActionFailed for all that is not plainly inside.

    `notes.md`, `memories/notes.md` and `/memories/notes.md` are the same: small models write all three.
    """
    if not is_text(path) or not path.strip() or not path.isprintable():
        raise ActionFailed(f"the path is empty or has characters that no name has; write {ROOT}/NAME")
    names = [name for name in path.strip().split("/") if name not in ("", ".")]
    if names and f"/{names[0]}" == ROOT:
        names = names[1:]
    elif path.strip().startswith("/") and names:
        raise ActionFailed(f"{path.strip()[:200]} is not in the memory: paths begin with {ROOT}/")
    if ".." in names:
        raise ActionFailed(f"'..' leads out of the memory: write {ROOT}/NAME")
    if len(names) > MAX_DEPTH:
        raise ActionFailed(f"more than {MAX_DEPTH} folders deep")
    for name in names:
        if name.startswith("."):
            raise ActionFailed(f"{name[:80]!r}: names in the memory do not begin with a dot")
        if len(name.encode()) > MAX_NAME_BYTES:
            raise ActionFailed(f"a name longer than {MAX_NAME_BYTES} bytes: {name[:40]}...")
    return "/".join((ROOT, *names))
