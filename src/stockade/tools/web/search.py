"""`web_search`: a list of titles, addresses and excerpts from a search engine (core.search)."""

from collections.abc import Callable, Mapping
from typing import Any, Self

from pydantic import Field

from stockade.core.errors import ActionFailed
from stockade.core.search import SearchEngine
from stockade.core.tools import ToolSpec
from stockade.tools.arguments import Arguments, is_text, read
from stockade.tools.one import Telling
from stockade.tools.reading.reader import one_line
from stockade.tools.web.fence import clean, fenced

NAME = "web_search"
RESULTS, MAX_RESULTS = 8, 20
_TITLE, _URL, _SNIPPET = 150, 500, 300
SPEC = ToolSpec(
    name=NAME,
    description="Search the web: titles, addresses and excerpts. Open what looks right with read_page.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["query"],
        "additionalProperties": False,
    },
)


class _Wanted(Arguments):
    query: str = Field(min_length=1, max_length=500)
    count: int = Field(default=RESULTS, ge=1)


class SearchToolbox(Telling):
    """Implements core.ports.Toolbox. `find` gives the engine on entering; UsageError when there is none."""

    spec = SPEC

    def __init__(self, find: Callable[[], SearchEngine]) -> None:
        self._find = find
        self._found: SearchEngine | None = None

    @property
    def _engine(self) -> SearchEngine:
        assert self._found is not None, "used before it was entered"
        return self._found

    async def __aenter__(self) -> Self:
        self._found = self._find()
        return self

    def late(self, seconds: float) -> str:
        return f"{self._engine.name} did not answer within {seconds:g} s"

    async def tell(self, arguments: Mapping[str, Any]) -> str:
        return await self._search(read(_Wanted, arguments))

    async def _search(self, wanted: _Wanted) -> str:
        query = wanted.query.strip()
        if not query or not is_text(query):
            raise ActionFailed("the query is empty or holds characters that are no text")
        found = (await self._engine.search(query, min(wanted.count, MAX_RESULTS)))[:MAX_RESULTS]
        if not found:
            return f"{self._engine.name} has found nothing: try other words."
        rows = []
        for number, one in enumerate(found, 1):
            rows.append(f"{number}. {one_line(clean(one.title), _TITLE)}\n   {one_line(clean(one.url), _URL)}")
            if snippet := one_line(clean(one.snippet), _SNIPPET):
                rows.append(f"   {snippet}")
        count = f"{len(found)} result{'' if len(found) == 1 else 's'} from {self._engine.name}"
        return f"{count}.\n" + fenced("\n".join(rows), "other people's pages")
