"""`read_page`: a web page as text, or what of it is nearest to a question; by the rules of --net, in a sealed place.

What comes back is a stranger's: it is fenced, and cannot end the fence. A bot that may ask for any host can carry data
out in the address; which hosts it may ask is the person's --net, for this as for its commands.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Self

import anyio
import anyio.to_thread
from pydantic import Field

from stockade.core.errors import ActionFailed
from stockade.core.tools import ToolSpec
from stockade.tools.arguments import Arguments, read
from stockade.tools.one import Telling
from stockade.tools.reading.reader import Document, Reader, Room, Wanted, one_line
from stockade.tools.web.address import Address, parse
from stockade.tools.web.connecting import Connecting
from stockade.tools.web.fence import fenced
from stockade.tools.web.fetch import BOUNDS, Bounds, fetch
from stockade.tools.web.passages import nearest

NAME = "read_page"
SHOWN_CHARS = 6000
PASSAGE_CHARS = 3000
MAX_LINKS = 12
NO_TEXT = "(no text: it may be a page that only scripts fill)"
_KEPT = 4
"""Pages whose further parts need no second look at the web."""
SPEC = ToolSpec(
    name=NAME,
    description=(
        "The text of a web page. With a question or topics only the passages nearest to them; part=2 and so on for "
        "more of a long page."
    ),
    parameters={
        "type": "object",
        "properties": {
            "url": {"type": "string"},
            "question": {"type": "string"},
            "topics": {"type": "array", "items": {"type": "string"}},
            "part": {"type": "integer"},
        },
        "required": ["url"],
        "additionalProperties": False,
    },
)


class _Wanted(Arguments):
    url: str
    question: str | None = Field(default=None, max_length=2000)
    topics: list[str] | str | None = Field(default=None, max_length=200)
    part: int = Field(default=1, ge=1, le=100_000)

    @property
    def words(self) -> str:
        topics = [self.topics] if isinstance(self.topics, str) else self.topics or []
        return " ".join(filter(None, [self.question, *topics]))[:4000].strip()


class PageToolbox(Telling):
    """Implements core.ports.Toolbox. `connecting` is the way out, with its rules."""

    spec = SPEC

    def __init__(
        self, connecting: Connecting, room: Room, bounds: Bounds = BOUNDS, shown_chars: int = SHOWN_CHARS
    ) -> None:
        self._connecting = connecting
        self._reader = Reader(room)
        self._bounds = bounds
        self._shown_chars = shown_chars
        self._pages: OrderedDict[str, tuple[Address, Document]] = OrderedDict()

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(self._reader.room.check)
        return self

    def late(self, seconds: float) -> str:
        return f"reading the page takes longer than {seconds:g} s"

    async def tell(self, arguments: Mapping[str, Any]) -> str:
        return await self._read(read(_Wanted, arguments))

    async def _read(self, wanted: _Wanted) -> str:
        address = parse(wanted.url)
        asked = str(address)
        if wanted.part == 1 or asked not in self._pages:
            self._pages[asked] = await self._load(address)
            self._pages.move_to_end(asked)
            while len(self._pages) > _KEPT:
                self._pages.popitem(last=False)
        found = self._pages[asked]
        return self._passages(*found, wanted.words) if wanted.words else self._part(*found, wanted.part)

    async def _load(self, address: Address) -> tuple[Address, Document]:
        fetched = await fetch(self._connecting, address, self._bounds)
        is_html = fetched.type in ("text/html", "application/xhtml+xml")
        document = await self._reader.read(
            fetched.data,
            Wanted(
                name="" if is_html else fetched.address.target.partition("?")[0].rpartition("/")[2][-100:],
                type="html" if is_html else fetched.type,
                charset=fetched.charset,
                url=str(fetched.address),
                main=True,
            ),
        )
        return fetched.address, document

    def _part(self, address: Address, document: Document, part: int) -> str:
        """From that part on, as many as fit."""
        if part > document.total:
            raise ActionFailed(f"the page has no part {part}: the last one is {document.total}")
        shown, last = "", part - 1
        for text in document.pages[part - 1 :]:
            if shown and len(shown) + len(text) > self._shown_chars:
                break
            shown += text if document.unit == "part" else f"\n--- {document.unit} {last + 1} ---\n{text}"
            last += 1
        if not shown.strip():
            shown = NO_TEXT
        if part == 1 and document.links:
            shown += "\n\nLinks:\n" + "\n".join(f"- {words}: {url}" for url, words in document.links[:MAX_LINKS])
        lines = [_head(address, document), fenced(shown[: 2 * self._shown_chars], "this page")]
        if last < document.total:
            lines.append(f"This was part {part} to {last} of {document.total}. For more: part={last + 1}")
        return "\n".join(lines)

    def _passages(self, address: Address, document: Document, words: str) -> str:
        kept, found = nearest("\n\n".join(document.pages), words, PASSAGE_CHARS)
        text = "\n...\n".join(f"[{one.heading}]\n{one.text}" if one.heading else one.text for one in kept)
        how = "The passages nearest to it" if found else "No passage has any of these words; the page begins"
        return f"{_head(address, document)} {how}:\n{fenced(text or NO_TEXT, 'this page')}"


def _head(address: Address, document: Document) -> str:
    counts = f"{document.characters} characters" if document.characters else f"{document.total} {document.unit}s"
    title = f"{one_line(document.title, 120)!r}, " if document.title else ""
    return f"{one_line(str(address), 300)}: {title}{document.kind}, {counts}."
