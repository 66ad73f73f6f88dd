"""`read_page`: a web page as text, by the rules of --net, read in a sealed place.

What comes back is a stranger's: it is fenced, and cannot end the fence. A bot that may ask for any host can carry data
out in the address; which hosts it may ask is the user's --net, for this as for its commands.
"""

from collections import OrderedDict
from typing import Annotated, Self

import anyio
import anyio.to_thread
import httpx2
from pydantic import Field

from stockade.core.errors import ActionFailed
from stockade.core.text import fenced, one_line
from stockade.tools.documents import Document, Reader, Wanted
from stockade.tools.fetch import BOUNDS, Bounds, Direct, ThroughProxy, fetch, parse
from stockade.tools.function import Functions
from stockade_sandbox.reading import ReadingRoom

SHOWN_CHARS = 6000
MAX_LINKS = 12
NO_TEXT = "(no text: it may be a page that only scripts fill)"
_KEPT = 4
"""Pages whose further parts need no second look at the web."""


class PageToolbox(Functions):
    """Implements core.ports.Toolbox. `way_out` has the rules."""

    def __init__(
        self, way_out: ThroughProxy | Direct, room: ReadingRoom, bounds: Bounds = BOUNDS, shown_chars: int = SHOWN_CHARS
    ) -> None:
        super().__init__(self.read_page)
        self._way_out = way_out
        self._reader = Reader(room)
        self._bounds = bounds
        self._shown_chars = shown_chars
        self._pages: OrderedDict[str, tuple[httpx2.URL, Document]] = OrderedDict()

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(self._reader.room.check)
        return self

    async def read_page(self, url: str, part: Annotated[int, Field(ge=1)] = 1) -> str:
        """The text of a web page, and its first links; part=2 and so on for more of a long page."""
        address = parse(url)
        asked = str(address)
        if part == 1 or asked not in self._pages:
            self._pages[asked] = await self._load(address)
            self._pages.move_to_end(asked)
            while len(self._pages) > _KEPT:
                self._pages.popitem(last=False)
        return self._part(*self._pages[asked], part)

    async def _load(self, address: httpx2.URL) -> tuple[httpx2.URL, Document]:
        fetched = await fetch(self._way_out, address, self._bounds)
        is_html = fetched.type in ("text/html", "application/xhtml+xml")
        document = await self._reader.read(
            fetched.data,
            Wanted(
                name="" if is_html else fetched.address.path.rpartition("/")[2][-100:],
                type="html" if is_html else fetched.type,
                charset=fetched.charset,
                url=str(fetched.address),
                main=True,
            ),
        )
        return fetched.address, document

    def _part(self, address: httpx2.URL, document: Document, part: int) -> str:
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


def _head(address: httpx2.URL, document: Document) -> str:
    counts = f"{document.characters} characters" if document.characters else f"{document.total} {document.unit}s"
    title = f"{one_line(document.title, 120)!r}, " if document.title else ""
    return f"{one_line(str(address), 300)}: {title}{document.kind}, {counts}."
