"""Bytes of a file that nobody trusts to text that can be shown, taken apart in a sealed place (worker.py)."""

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, Protocol

from pydantic import Field, ValidationError

from stockade.core.changes import FolderLayer
from stockade.core.data import Data
from stockade.core.errors import ActionFailed, SandboxDied, to_install
from stockade.core.policy import Network
from stockade.core.ports import OnNetwork, Sandbox

READ_S = 30.0
MAX_BYTES = 32 << 20
MAX_CHARS = 200_000
_OUTPUT_BYTES = 4 << 20


class Room(Protocol):
    """Where sealed sandboxes with this Python in them come from; sandboxes.reading.ReadingRoom is one."""

    @property
    def python(self) -> str: ...

    @property
    def packages(self) -> tuple[str, ...]: ...

    def check(self) -> None:
        """UsageError when there can be none. Blocks."""
        ...

    def open(
        self,
        network: Network | None = None,
        on_network: OnNetwork | None = None,
        folders: Sequence[FolderLayer] = (),
    ) -> AbstractAsyncContextManager[Sandbox]: ...


class Document(Data):
    """`pages` are those from `first` on, of `total`; lines and characters are of all of it, 0 where that is unknown."""

    kind: str = Field(max_length=40)
    unit: str = Field(max_length=10)
    title: str = ""
    total: int = Field(ge=0)
    first: int = Field(ge=1)
    pages: tuple[str, ...]
    lines: int = 0
    characters: int = 0
    links: tuple[tuple[str, str], ...] = ()
    """Address and words of each."""


class _Failed(Data):
    """`extra`: the optional part of ours that brings what is missing."""

    error: str
    extra: Literal["documents"] | None = None


class Wanted(Data):
    """What to read of a file, and what is known of it. `main`: of a web page the main text only. 0 is the last page."""

    name: str = ""
    type: str = ""
    charset: str = ""
    url: str = ""
    main: bool = False
    first: int = Field(default=1, ge=1, le=1_000_000)
    last: int = Field(default=0, ge=0, le=1_000_000)
    max_chars: int = MAX_CHARS


@cache
def _worker() -> str:
    return Path(__file__).with_name("worker.py").read_text()


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads in a place of its own each time. Raises ActionFailed for what the file does, SandboxFailed for our own."""

    room: Room
    read_s: float = READ_S

    async def read(self, data: bytes, wanted: Wanted) -> Document:
        if len(data) > MAX_BYTES:
            raise ActionFailed(f"it is larger than {MAX_BYTES >> 20} MiB")
        argv = [self.room.python, "-I", "-B", "-c", _worker(), wanted.model_dump_json(), *self.room.packages]
        async with self.room.open() as place:
            try:
                done = await place.exec(argv, data, self.read_s, _OUTPUT_BYTES)
            except SandboxDied as error:
                raise ActionFailed(f"reading it broke the place where it was read: {error.message}") from None
        if done.timed_out:
            raise ActionFailed(f"reading it takes longer than {self.read_s:g} s")
        if done.exit_code:
            raise ActionFailed(_why(done.exit_code, done.stderr))
        try:
            said = json.loads(done.stdout)
            if "error" in said:
                failed = _Failed.model_validate(said)
                way_out = f": {to_install(failed.extra)}" if failed.extra else ""
                raise ActionFailed(one_line(failed.error, 300) + way_out)
            return Document.model_validate_json(done.stdout)
        except (ValidationError, ValueError, TypeError) as error:
            raise ActionFailed(f"reading it gave nothing that can be used ({type(error).__name__})") from None


def one_line(text: str, limit: int) -> str:
    """For a message: printable, in one line, short."""
    plain = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


def _why(status: int, stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else ""
    if "MemoryError" in last or status in (137, -9):
        return "reading it takes more memory than there is for that"
    return f"it cannot be read: {one_line(last, 200) or f'exit status {status}'}"
