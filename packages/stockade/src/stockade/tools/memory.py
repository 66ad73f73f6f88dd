"""The memory as tools: notes that last from one run to the next, in a folder of the host that no bot's sandbox sees.

Each call is done in a sealed sandbox of its own where that folder, at ROOT, is all there is to write: the mount is the
jail, and what a link leads to is not there. The commands and their texts are those of Anthropic's memory tool
(docs.claude.com), on which models were trained, and `clear`, as in Microbots. Seven tools, not one with a `command`: a
grammar can force what each of them needs. With one tool, where all but the command is optional, the default model wrote
`{"command": "view"}` without a path each of the four times it tried.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import anyio
import anyio.to_thread
from pydantic import AfterValidator, Field

from stockade.core.data import Data
from stockade.core.errors import ActionFailed, SandboxDied, UsageError
from stockade.core.ports import Sandbox
from stockade.core.text import is_text, one_line
from stockade.tools.function import Functions
from stockade_sandbox.locks import try_lock
from stockade_sandbox.policy import KIB, MIB
from stockade_sandbox.reading import ReadingRoom
from stockade_sandbox.results import FolderLayer

ROOT = "/memories"
LISTED_LEVELS = 2
_LOCK, _PART = ".lock", f"{ROOT}/.part"
_LOOK_S, _PROGRAM_S = 0.02, 20.0
_AROUND = 2
"""Lines shown before and after an edit."""
_WRITE = '{ mkdir -p -- "${1%/*}" && cat >"$2" && sync -- "$2" && mv -T -- "$2" "$1"; } || { rm -f -- "$2"; exit 1; }'


class Bounds(Data):
    """Of one memory, in bytes and files (folders count as files)."""

    file_bytes: int = 64 * KIB
    total_bytes: int = MIB
    files: int = 200


def full_path(path: str) -> str:
    """`/memories/...` of a path as a model writes it: small ones write `n.md`, `memories/n.md` and `/memories/n.md`.

    ValueError for one that is outside, or of a hidden file.
    """
    names = [name for name in path.strip().split("/") if name not in ("", ".")]
    if not path.strip() or not path.isprintable() or not is_text(path):
        raise ValueError(f"the path is empty or has characters that no name has; write {ROOT}/NAME")
    if names and f"/{names[0]}" == ROOT:
        names = names[1:]
    elif names and path.strip().startswith("/"):
        raise ValueError(f"{path.strip()[:200]} is not in the memory: paths begin with {ROOT}/")
    if any(name.startswith(".") for name in names):
        raise ValueError(f"{path[:200]}: names in the memory do not begin with a dot, and '..' leads out of it")
    return "/".join((ROOT, *names))


def _note(path: str) -> str:
    if path == ROOT:
        raise ValueError(f"{ROOT} itself is no note: write {ROOT}/NAME (clear forgets everything)")
    return path


def _text(text: str) -> str:
    if not is_text(text):
        raise ValueError("the text holds a NUL byte or half a surrogate pair, which is no text")
    return text


Place = Annotated[str, AfterValidator(full_path), Field(description=f"{ROOT} or {ROOT}/NAME")]
Note = Annotated[Place, AfterValidator(_note)]
Text = Annotated[str, AfterValidator(_text)]
Line = Annotated[int, Field(description="0 is the beginning")]
Lines = Annotated[list[int], Field(min_length=2, max_length=2, description="[first, last] line")]


class MemoryToolbox(Functions):
    """Implements core.ports.Toolbox on a folder of the host, made when it is not there; its owner's only."""

    def __init__(self, root: Path, room: ReadingRoom, bounds: Bounds | None = None) -> None:
        self._layer = FolderLayer(host=str(root), inside=ROOT, mode="rw", strategy="direct")
        self._root, self._room, self._bounds = root, room, bounds or Bounds()
        commands = (self.view, self.create, self.str_replace, self.insert, self.delete, self.rename, self.clear)
        super().__init__(*commands, prefix="memory_", status="success")

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(self._prepare)
        return self

    def _prepare(self) -> None:
        self._room.check()
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
        except OSError as error:
            what = f"the memory {self._root} cannot be used: {error.strerror}"
            raise UsageError(what, "make it a folder of your own") from error

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator["_Notes"]:
        """For a change, which is not cut once it has begun: nobody else makes one meanwhile. The lock ends with the
        process that holds it.
        """
        try:
            lock = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ActionFailed(f"the memory cannot be used: {error.strerror}") from None
        try:
            while not try_lock(lock):  # noqa: ASYNC110 - another process lets go of it
                await anyio.sleep(_LOOK_S)
            with anyio.CancelScope(shield=True):
                async with self._opened() as notes:
                    yield notes
        finally:
            os.close(lock)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator["_Notes"]:
        try:
            async with self._room.open(folders=(self._layer,)) as box:
                yield await _Notes.of(box, self._bounds)
        except SandboxDied as error:
            raise ActionFailed(f"the memory cannot be used: {one_line(error.message, 200)}") from None

    async def view(self, path: Place, view_range: Lines | None = None) -> str:
        """Your notes from earlier runs: the list of /memories, or one file. Look here before you begin."""
        async with self._opened() as notes:
            if notes.existing(path) == "d":
                if view_range is not None:
                    raise ActionFailed(f"{path} is a folder: view_range is for files")
                return notes.listing(path)
            rows = _rows(await notes.read(path))
        first, last = view_range or (1, -1)
        last = len(rows) if last == -1 else min(last, len(rows))
        if view_range and not (1 <= first <= max(1, len(rows)) and first <= max(1, last)):
            lines = f"The file has {len(rows)} lines, [1, {len(rows)}]"
            raise ActionFailed(f"Invalid `view_range`: {list(view_range)}. {lines}")
        if not rows:
            return f"{path} is an empty file."
        return f"Here's the content of {path} with line numbers:\n" + _numbered(rows, first, last)

    async def create(self, path: Note, file_text: Text) -> str:
        """Save a new note, for later runs."""
        async with self._alone() as notes:
            if path in notes.entries:
                raise ActionFailed(
                    f"File {path} already exists: change it with str_replace or insert, or delete it first"
                )
            await notes.write(path, file_text)
        return f"File created successfully at: {path}"

    async def str_replace(self, path: Note, old_str: Text, new_str: Text) -> str:
        """Replace text that stands once in a note."""
        async with self._alone() as notes:
            text = await notes.read(path)
            places = [place for place in range(len(text)) if text.startswith(old_str, place)] if old_str else []
            lines = [text.count("\n", 0, place) for place in places]
            if not lines:
                why = f"old_str `{old_str[:200]}` did not appear verbatim in {path}. View the file, copy it exactly."
                raise ActionFailed(f"No replacement was performed. {why}")
            if len(lines) > 1:
                where = ", ".join(str(line + 1) for line in lines[:20])
                why = f"Multiple occurrences of old_str `{old_str[:200]}` in lines: {where}. Please ensure it is unique"
                raise ActionFailed(f"No replacement was performed. {why}")
            changed = text.replace(old_str, new_str, 1)
            await notes.write(path, changed)
        return f"The memory file has been edited.\n{_snippet(changed, lines[0], lines[0] + new_str.count(chr(10)))}"

    async def insert(self, path: Note, insert_line: Line, insert_text: Text) -> str:
        """Insert lines into a note after a line."""
        async with self._alone() as notes:
            lines = [f"{row}\n" for row in _rows(await notes.read(path))]
            if not 0 <= insert_line <= len(lines):
                allowed = f"It should be within the range of lines of the file: [0, {len(lines)}]"
                raise ActionFailed(f"Invalid `insert_line` parameter: {insert_line}. {allowed}")
            added = insert_text.removesuffix("\n") + "\n"
            changed = "".join([*lines[:insert_line], added, *lines[insert_line:]])
            await notes.write(path, changed)
        last = insert_line + added.count("\n") - 1
        return f"The file {path} has been edited.\n{_snippet(changed, insert_line, last)}"

    async def delete(self, path: Note) -> str:
        """Delete a note."""
        async with self._alone() as notes:
            notes.existing(path)
            await notes.run('rm -rf -- "$1"', path)
        return f"Successfully deleted {path}"

    async def rename(self, old_path: Note, new_path: Note) -> str:
        """Rename a note."""
        async with self._alone() as notes:
            notes.existing(old_path)
            if new_path in notes.entries:
                raise ActionFailed(f"The destination {new_path} already exists")
            if new_path.startswith(f"{old_path}/"):
                raise ActionFailed(f"{old_path} cannot be moved into itself")
            notes.check_count(len(notes.entries) - 1, new_path)
            await notes.run('mkdir -p -- "${2%/*}" && mv -nT -- "$1" "$2"', old_path, new_path)
        return f"Successfully renamed {old_path} to {new_path}"

    async def clear(self, path: Place) -> str:
        """Forget all notes; the path must be /memories."""
        if path != ROOT:
            raise ActionFailed(f"clear forgets everything: its path is {ROOT}; to forget {path}, delete it")
        async with self._alone() as notes:
            files = sum(kind == "f" for kind, _ in notes.entries.values())
            await notes.run('find "$1" -mindepth 1 ! -path "$1/$2" -delete', ROOT, _LOCK)
        return f"The memory has been cleared: {files} file{'' if files == 1 else 's'} deleted."


Entries = dict[str, tuple[str, int]]
"""By path, a folder before what is in it: the kind, as find(1) says it (`f`, `d`, `l` ...), and bytes of a file."""


@dataclass(frozen=True, slots=True)
class _Notes:
    """The memory in the sandbox of one call, as it was at its beginning."""

    box: Sandbox
    bounds: Bounds
    entries: Entries

    @classmethod
    async def of(cls, box: Sandbox, bounds: Bounds) -> "_Notes":
        argv = ["find", ROOT, "-name", ".*", "-prune", "-o", "-printf", "%p\\0%y\\0%s\\0"]
        found = (await box.exec(argv, b"", _PROGRAM_S)).stdout.decode(errors="backslashreplace").split("\0")[:-1]
        rows = sorted(zip(found[::3], found[1::3], found[2::3], strict=True), key=lambda row: row[0].split("/"))
        entries = {path: (kind, int(size) if kind == "f" else 0) for path, kind, size in rows if path != ROOT}
        return cls(box, bounds, entries)

    def existing(self, path: str) -> str:
        """`f` or `d`. ActionFailed where nothing is, or a link, a pipe and the like."""
        kind = "d" if path == ROOT else self.entries.get(path, ("", 0))[0]
        if kind not in ("f", "d"):
            raise ActionFailed(f"The path {path} does not exist. Please provide a valid path.")
        return kind

    def listing(self, path: str) -> str:
        below = [one for one, (kind, _) in self.entries.items() if one.startswith(f"{path}/") and kind in "fd"]
        if not below:
            return f"{path} is empty."
        rows = [f"{self._size(path)}\t{path}"]
        for one in below:
            if one.count("/") - path.count("/") <= LISTED_LEVELS:
                name = one if one.isprintable() else repr(one)[1:-1]
                rows.append(f"{self._size(one)}\t{name}{'/' if self.entries[one][0] == 'd' else ''}")
        return f"Here're the files and directories up to {LISTED_LEVELS} levels deep in {path}:\n" + "\n".join(rows)

    def _size(self, path: str) -> str:
        """Of a file, or of all below a folder."""
        count = sum(size for one, (_, size) in self.entries.items() if one == path or one.startswith(f"{path}/"))
        return f"{count}B" if count < 1024 else f"{count / 1024:.1f}K"

    async def run(self, script: str, *args: str, stdin: bytes = b"", most: int = 1 << 16) -> bytes:
        done = await self.box.exec(["sh", "-c", f"umask 077; {script}", "sh", *args], stdin, _PROGRAM_S, most)
        if done.exit_code:
            said = one_line(done.stderr.decode(errors="replace").strip().rpartition(": ")[2], 200)
            raise ActionFailed(f"the memory cannot be used: {said or f'status {done.exit_code}'}")
        return done.stdout

    async def read(self, path: str) -> str:
        if self.existing(path) == "d":
            raise ActionFailed(f"{path} is a folder, not a file")
        data = await self.run('cat -- "$1"', path, most=self.bounds.file_bytes + 1)
        if len(data) > self.bounds.file_bytes:
            raise ActionFailed(f"{path} is larger than {self.bounds.file_bytes} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ActionFailed(f"{path} is not text") from None

    def check_count(self, others: int, path: str) -> None:
        if others + path.count("/") - 1 > self.bounds.files:
            what = f"the memory has no room for more than {self.bounds.files} files"
            raise ActionFailed(f"{what}; delete what is not needed")

    async def write(self, path: str, text: str) -> None:
        """Whole, on disk when this returns; what a killed one left half written is written over."""
        data = text.encode()
        if len(data) > (most := self.bounds.file_bytes):
            raise ActionFailed(f"{len(data)} bytes are too long for one file of the memory: {most} fit")
        others = [size for other, (_, size) in self.entries.items() if other != path]
        left = self.bounds.total_bytes - sum(others)
        if len(data) > left:
            raise ActionFailed(f"the memory is full: {max(0, left)} bytes are left; delete what is not needed any more")
        self.check_count(len(others), path)
        await self.run(_WRITE, path, _PART, stdin=data)


def _rows(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _numbered(rows: list[str], first: int, last: int) -> str:
    return "\n".join(f"{number:>6}\t{rows[number - 1]}" for number in range(first, last + 1))


def _snippet(text: str, first: int, last: int) -> str:
    """Lines around an edit of lines `first` to `last`, counted from 0."""
    rows = _rows(text)
    return _numbered(rows, max(1, first + 1 - _AROUND), min(len(rows), last + 1 + _AROUND))
