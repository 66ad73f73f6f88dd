"""`read_page`: a web page as text, or what of it is nearest to a question; by the rules of --net, in a sealed place.

What comes back is a stranger's: it is fenced, and cannot end the fence. A bot that may ask for any host can carry data
out in the address; which hosts it may ask is the user's --net, for this as for its commands.
"""

import math
import re
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import anyio
import anyio.to_thread
from pydantic import Field

from stockade.core.errors import ActionFailed
from stockade.core.text import fenced, one_line
from stockade.core.toolbox import Arguments, Telling, read
from stockade.core.tools import ToolSpec
from stockade.tools.documents import Document, Reader, Wanted
from stockade.tools.fetch import BOUNDS, Address, Bounds, Direct, ThroughProxy, fetch, parse
from stockade_sandbox.reading import ReadingRoom

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
_WORD = re.compile(r"\w+")
_K1, _B = 1.2, 0.75
LONGEST = 1200
"""Of a passage, in characters; a longer paragraph is several."""


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
    """Implements core.ports.Toolbox. `way_out` has the rules."""

    spec = SPEC

    def __init__(
        self, way_out: ThroughProxy | Direct, room: ReadingRoom, bounds: Bounds = BOUNDS, shown_chars: int = SHOWN_CHARS
    ) -> None:
        self._way_out = way_out
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
        fetched = await fetch(self._way_out, address, self._bounds)
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


@dataclass(frozen=True, slots=True)
class Passage:
    """`heading` is the nearest one above it; `place` its number in the text."""

    text: str
    heading: str
    place: int


def passages(text: str) -> list[Passage]:
    """Paragraphs, short neighbours together; what is a heading is said with those below it."""
    found, heading, held = list[Passage](), "", ""

    def flush() -> None:
        nonlocal held
        if held:
            found.append(Passage(held, heading, len(found)))
        held = ""

    for block in re.split(r"\n\s*\n", text):
        block = block.strip("\n")
        if re.match(r"#{1,6} ", block) and "\n" not in block:
            flush()
            heading = block.lstrip("# ")[:200]
            continue
        for piece in _pieces(block):
            if len(held) + len(piece) > LONGEST // 2:
                flush()
            held = f"{held}\n{piece}" if held else piece
    flush()
    return found


def nearest(text: str, query: str, limit: int) -> tuple[list[Passage], bool]:
    """The best that fit into `limit` characters, in the order of the text; whether any word was found at all."""
    every, wanted = passages(text), set(_WORD.findall(query.lower()))
    counts = [Counter(_WORD.findall(f"{one.heading} {one.text}".lower())) for one in every]
    lengths = [max(1, count.total()) for count in counts]
    mean = sum(lengths) / len(lengths) if lengths else 1.0
    shared = [wanted & count.keys() for count in counts]  # only these: a page of many passages costs no more
    within = Counter(word for words in shared for word in words)
    rarity = {word: math.log(1 + (len(every) - often + 0.5) / (often + 0.5)) for word, often in within.items()}
    scores = [
        sum(
            rarity[word] * count[word] * (_K1 + 1) / (count[word] + _K1 * (1 - _B + _B * length / mean))
            for word in sorted(words)
        )
        for words, count, length in zip(shared, counts, lengths, strict=True)
    ]
    ranked = sorted(every, key=lambda one: (-scores[one.place], one.place))
    kept, left = list[Passage](), limit
    for one in ranked:
        if kept and (not scores[one.place] or len(one.text) > left):
            break
        kept.append(one)
        left -= len(one.text)
    return sorted(kept, key=lambda one: one.place), any(scores)


def _pieces(block: str) -> list[str]:
    if len(block) <= LONGEST:
        return [block] if block.strip() else []
    pieces, held = list[str](), ""
    for sentence in re.split(r"(?<=[.!?])\s+|\n", block):
        for part in (sentence[at : at + LONGEST] for at in range(0, max(1, len(sentence)), LONGEST)):
            if held and len(held) + len(part) > LONGEST:
                pieces.append(held)
                held = ""
            held = f"{held} {part}" if held else part
    return [*pieces, held] if held else pieces
