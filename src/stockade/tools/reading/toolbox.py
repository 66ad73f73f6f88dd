"""`read_document`: the text of a PDF, DOCX or HTML file, a notebook or text in another encoding, from the sandbox."""

import re
from collections.abc import Mapping
from typing import Any, Self

import anyio
import anyio.to_thread

from stockade.core.errors import ActionFailed
from stockade.core.ports import Sandbox
from stockade.core.tools import ToolSpec
from stockade.tools.arguments import Arguments, is_text, read
from stockade.tools.one import Telling
from stockade.tools.reading.reader import MAX_BYTES, Document, Reader, Room, Wanted, one_line

NAME = "read_document"
SHOWN_CHARS = 6000
"""Of one call, a little more where a page is long."""
_FETCH_S = 30.0
MAX_PAGES_CHARS = 40
_PAGES = re.compile(r"\s*(\d{1,6})\s*(?:(?:-|to|\.\.)\s*(\d{1,6})?)?\s*")
_PROBLEMS = {44: "File not found", 45: "Is a directory", 46: "Permission denied", 47: "Not a regular file"}
_FETCH = """
if [ -d "$1" ]; then exit 45; elif [ ! -e "$1" ]; then exit 44
elif [ ! -f "$1" ]; then exit 47; elif [ ! -r "$1" ]; then exit 46; fi
cat -- "$1"
"""
SPEC = ToolSpec(
    name=NAME,
    description="The text of a PDF, DOCX, HTML file or notebook, with its number of pages.",
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "pages": {"type": "string", "description": "like 3 or 2-5; without it from the first one on"},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
)


class _Wanted(Arguments):
    path: str
    pages: str | int | None = None


class DocumentToolbox(Telling):
    """Implements core.ports.Toolbox: bytes come from the run's sandbox, text from a sealed place of `room`."""

    spec = SPEC

    def __init__(self, sandbox: Sandbox, room: Room, shown_chars: int = SHOWN_CHARS) -> None:
        self._sandbox = sandbox
        self._reader = Reader(room)
        self._shown_chars = shown_chars

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(self._reader.room.check)
        return self

    def late(self, seconds: float) -> str:
        return f"reading it takes longer than {seconds:g} s"

    async def tell(self, arguments: Mapping[str, Any]) -> str:
        return await self._read(read(_Wanted, arguments))

    async def _read(self, wanted: _Wanted) -> str:
        first, last = page_range(wanted.pages)
        data = await self._bytes(wanted.path)
        name = wanted.path.rpartition("/")[2]
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


def page_range(pages: str | int | None) -> tuple[int, int]:
    """`3`, `2-5` or `2-`, as first and last; the last is 0 for the end. ActionFailed for anything else."""
    if pages is None or pages == "":
        return 1, 0
    written = str(pages)
    found = _PAGES.fullmatch(written) if len(written) <= MAX_PAGES_CHARS else None
    if not found or int(found[1]) < 1:
        raise ActionFailed(f"pages {one_line(str(pages), 40)!r} is not understood: write 3 or 2-5")
    first = int(found[1])
    last = int(found[2]) if found[2] else 0 if re.search(r"-|to|\.", str(pages)) else first
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
