"""`read_document`: the text of a PDF, DOCX or HTML file, a notebook or text in another encoding, from the sandbox.

What nobody trusts is taken apart in a sealed place (documents_worker.py); so are pages of the web.
"""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

import anyio
import anyio.to_thread
from pydantic import BeforeValidator, Field, ValidationError

from stockade.core.data import Data
from stockade.core.errors import ActionFailed, SandboxDied, to_install
from stockade.core.ports import OnNetwork, Sandbox
from stockade.core.text import is_text, one_line
from stockade.tools.function import Functions
from stockade_sandbox.policy import Network
from stockade_sandbox.reading import ReadingRoom

READ_S = 30.0
MAX_BYTES = 32 << 20
MAX_CHARS = 200_000
_OUTPUT_BYTES = 4 << 20
SHOWN_CHARS = 6000
"""Of one call, a little more where a page is long."""
_FETCH_S = 30.0
_PAGES = re.compile(r"\s*(\d{1,6})\s*(-\s*(\d{1,6})?)?\s*")
_PROBLEMS = {44: "File not found", 45: "Is a directory", 46: "Permission denied", 47: "Not a regular file"}
_FETCH = """
if [ -d "$1" ]; then exit 45; elif [ ! -e "$1" ]; then exit 44
elif [ ! -f "$1" ]; then exit 47; elif [ ! -r "$1" ]; then exit 46; fi
cat -- "$1"
"""


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
    return Path(__file__).with_name("documents_worker.py").read_text()


@dataclass(frozen=True, slots=True)
class Sealed:
    """A Python program of ours, in a sealed sandbox of its own each time. What is said of a failure begins with
    `trouble`.
    """

    program: str
    trouble: str
    limit_s: float
    network: Network | None = None
    on_network: OnNetwork | None = None

    async def ask(self, room: ReadingRoom, options: str, data: bytes = b"") -> Any:
        """What it says as JSON. ActionFailed for what the data, or the web, does to it; SandboxFailed for our own."""
        argv = [room.python, "-I", "-B", "-c", self.program, options, *room.packages]
        async with room.open(self.network, self.on_network) as place:
            try:
                done = await place.exec(argv, data, self.limit_s, _OUTPUT_BYTES)
            except SandboxDied as error:
                raise ActionFailed(f"{self.trouble}: {error.message}") from None
        last = one_line(done.stderr.decode(errors="replace").strip().rpartition("\n")[2], 200)
        if done.timed_out:
            last = f"it takes longer than {self.limit_s:g} s"
        elif "MemoryError" in last or done.exit_code in (137, -9):
            last = "it takes more memory than there is for that"
        elif not done.exit_code:
            try:
                return json.loads(done.stdout)
            except (ValueError, RecursionError):
                last = "nothing came that can be used"
        raise ActionFailed(f"{self.trouble}: {last or f'exit status {done.exit_code}'}")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads files that nobody trusts. Raises ActionFailed for what they do, SandboxFailed for our own."""

    room: ReadingRoom
    read_s: float = READ_S

    async def read(self, data: bytes, wanted: Wanted) -> Document:
        if len(data) > MAX_BYTES:
            raise ActionFailed(f"it is larger than {MAX_BYTES >> 20} MiB")
        said = await Sealed(_worker(), "it cannot be read", self.read_s).ask(self.room, wanted.model_dump_json(), data)
        if isinstance(said, dict) and "error" in said:
            way_out = f": {to_install('documents')}" if said.get("extra") == "documents" else ""
            raise ActionFailed(one_line(str(said["error"]), 300) + way_out)
        try:
            return Document.model_validate(said)
        except ValidationError:
            raise ActionFailed("it cannot be read: nothing came that can be used") from None


Pages = Annotated[
    str, BeforeValidator(str), Field(description="like 3 or 2-5; without it from the first one on", max_length=40)
]


class DocumentToolbox(Functions):
    """Implements core.ports.Toolbox: bytes come from the run's sandbox, text from a sealed place of `room`."""

    def __init__(self, sandbox: Sandbox, room: ReadingRoom, shown_chars: int = SHOWN_CHARS) -> None:
        super().__init__(self.read_document)
        self._sandbox = sandbox
        self._reader = Reader(room)
        self._shown_chars = shown_chars

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(self._reader.room.check)
        return self

    async def read_document(self, path: str, pages: Pages = "") -> str:
        """The text of a PDF, DOCX, HTML file or notebook, with its number of pages."""
        first, last = page_range(pages)
        data = await self._bytes(path)
        name = path.rpartition("/")[2]
        try:
            found = await self._reader.read(
                data, Wanted(name=name, first=first, last=last, max_chars=self._shown_chars)
            )
        except ActionFailed as error:
            raise ActionFailed(f"{one_line(name, 80)}: {error.message}") from None
        return written(found, one_line(name, 80), last)

    async def _bytes(self, path: str) -> bytes:
        if not path or not is_text(path) or len(path) > 4096:
            raise ActionFailed("the path is empty or has characters that no path has")
        done = await self._sandbox.exec(["sh", "-c", _FETCH, "sh", path], b"", _FETCH_S, MAX_BYTES)
        if done.truncated_bytes:
            raise ActionFailed(f"{path} is larger than {MAX_BYTES >> 20} MiB")
        if done.exit_code or done.timed_out:
            last = one_line(done.stderr.decode(errors="replace"), 200) or f"exit status {done.exit_code}"
            raise ActionFailed(f"{path}: {_PROBLEMS.get(done.exit_code, last)}")
        return done.stdout


def page_range(pages: str) -> tuple[int, int]:
    """`3`, `2-5` or `2-`, as first and last; the last is 0 for the end. ActionFailed for anything else."""
    if not pages:
        return 1, 0
    found = _PAGES.fullmatch(pages)
    if not found or int(found[1]) < 1:
        raise ActionFailed(f"pages {one_line(pages, 40)!r} is not understood: write 3 or 2-5")
    first = int(found[1])
    last = int(found[3] or 0) if found[2] else first
    if last and last < first:
        raise ActionFailed(f"pages {first}-{last} end before they begin")
    return first, last


def written(found: Document, name: str, asked_last: int = 0) -> str:
    """With a first line that counts, and a last one that says how to go on."""
    last = found.first + len(found.pages) - 1
    known = [(found.total, found.unit), (found.lines, "line"), (found.characters, "character")]
    counts = ", ".join(f"{count} {unit}{'' if count == 1 else 's'}" for count, unit in known if count)
    title = f" {one_line(found.title, 120)!r}," if found.title else ""
    rows = [f"{name}:{title} {found.kind}, {counts}."]
    for number, page in enumerate(found.pages, found.first):
        rows += [f"--- {found.unit} {number} ---", page.strip("\n")] if found.total > 1 else [page.strip("\n")]
    if last < (min(asked_last, found.total) or found.total):
        rows.append(f"--- There is more: pages={last + 1}-{found.total} ---")
    return "\n".join(rows)
