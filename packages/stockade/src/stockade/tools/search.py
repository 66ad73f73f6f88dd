"""`web_search`: a list of titles, addresses and excerpts from a search engine.

SearXNG is asked directly, at the address that the user gave, whatever --net says; DuckDuckGo by `ddgs`, which runs in a
sealed place whose only way out is that one host, through the egress proxy.
"""

import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import httpx2
from pydantic import Field, ValidationError

from stockade.core.errors import ActionFailed, UsageError, to_install
from stockade.core.ports import Found, OnNetwork, SearchEngine
from stockade.core.text import clean, fenced, is_text, one_line
from stockade.tools.documents import Sealed
from stockade.tools.fetch import Bounds, Direct, fetch, parse
from stockade.tools.function import Functions
from stockade_sandbox.policy import Network
from stockade_sandbox.reading import ReadingRoom
from stockade_sandbox.results import NetworkRequest

RESULTS, MAX_RESULTS = 8, 20
_TITLE, _URL, _SNIPPET = 150, 500, 300
BOUNDS = Bounds(total_s=20.0, body_bytes=4 << 20, redirects=0)
HOST = "html.duckduckgo.com"
SEARCH_S = 20.0
_PROGRAM = """
import json, sys
options = json.loads(sys.argv[1])
sys.path.extend(sys.argv[2:])
from ddgs import DDGS
from ddgs.exceptions import DDGSException
try:
    if trusted := options["certificates"]:
        with open("/tmp/ca.pem", "w") as file:
            file.write(trusted)
    searching = DDGS(proxy="http://127.0.0.1:3128", timeout=15, verify="/tmp/ca.pem" if trusted else True)
    found = searching.text(options["query"], max_results=options["count"], backend="duckduckgo")
except DDGSException as error:
    found = {"error": str(error)}
json.dump(found, sys.stdout)
"""


class SearchToolbox(Functions):
    """Implements core.ports.Toolbox. `find` gives the engine on entering; UsageError when there is none."""

    def __init__(self, find: Callable[[], SearchEngine]) -> None:
        super().__init__(self.web_search)
        self._find = find
        self._engine: SearchEngine | None = None

    async def __aenter__(self) -> Self:
        self._engine = self._find()
        return self

    async def web_search(
        self, query: Annotated[str, Field(max_length=500)], count: Annotated[int, Field(ge=1)] = RESULTS
    ) -> str:
        """Search the web: titles, addresses and excerpts. Open what looks right with read_page."""
        engine, query = self._engine, query.strip()
        assert engine is not None, "used before it was entered"
        if not query or not is_text(query):
            raise ActionFailed("the query is empty or holds characters that are no text")
        found = (await engine.search(query, min(count, MAX_RESULTS)))[:MAX_RESULTS]
        if not found:
            return f"{engine.name} has found nothing: try other words."
        rows = []
        for number, one in enumerate(found, 1):
            rows.append(f"{number}. {one_line(clean(one.title), _TITLE)}\n   {one_line(clean(one.url), _URL)}")
            if snippet := one_line(clean(one.snippet), _SNIPPET):
                rows.append(f"   {snippet}")
        head = f"{len(found)} result{'' if len(found) == 1 else 's'} from {engine.name}"
        return f"{head}.\n" + fenced("\n".join(rows), "other people's pages")


def _found(rows: Any, address: str, excerpt: str) -> list[Found]:
    """What an engine gave, by the names of its keys. ActionFailed when it is something else."""
    try:
        return [Found(title=one.get("title") or "", url=one[address], snippet=one.get(excerpt) or "") for one in rows]
    except (ValidationError, KeyError, TypeError, AttributeError):
        raise ActionFailed("its answer is none that can be used") from None


@dataclass(frozen=True)
class SearXNG:
    """Implements core.ports.SearchEngine on its JSON API (docs.searxng.org, Search API)."""

    base: httpx2.URL
    on_network: OnNetwork | None = None
    name: str = "SearXNG"

    @classmethod
    def at(cls, url: str, on_network: OnNetwork | None = None) -> "SearXNG":
        """UsageError when that is no address."""
        try:
            return cls(parse(url), on_network)
        except ActionFailed as error:
            raise UsageError(f"--search: {error.message}", "give the address of a SearXNG, or duckduckgo") from None

    async def search(self, query: str, count: int) -> Sequence[Found]:
        path = self.base.path.rstrip("/").removesuffix("/search")
        asked = self.base.copy_with(path=f"{path}/search", params={"q": query, "format": "json"})
        started, down, status, why = time.monotonic(), 0, 0, ""
        try:
            fetched = await fetch(Direct(), asked, BOUNDS)
            down, status = len(fetched.data), fetched.status
            return _found(json.loads(fetched.data)["results"], "url", "content")[:count]
        except (KeyError, TypeError, ValueError, RecursionError):
            why = "its answer is not the JSON of a SearXNG"
            raise ActionFailed(f"{self.name} cannot be used: {why}") from None
        except ActionFailed as error:
            why = error.message
            hint = ": its settings.yml has to list json under search.formats" if "HTTP 403" in why else ""
            raise ActionFailed(f"{self.name} cannot be used: {why}{hint}") from None
        finally:
            if self.on_network is not None:
                port = self.base.port or (443 if self.base.scheme == "https" else 80)
                self.on_network(
                    NetworkRequest(
                        at=time.time(), host=self.base.host, port=port, method="GET", verdict="allowed", reason=why,
                        status=status, bytes_down=down, duration_s=round(time.monotonic() - started, 6),
                    )
                )  # fmt: skip


@dataclass(frozen=True)
class DuckDuckGo:
    """Implements core.ports.SearchEngine. `certificates` is for tests, which are their own authority."""

    room: ReadingRoom
    on_network: OnNetwork | None = None
    certificates: str = ""
    name: str = "DuckDuckGo"

    @classmethod
    def installed(cls, room: ReadingRoom, on_network: OnNetwork | None = None) -> "DuckDuckGo":
        """UsageError when ddgs, or a place for it, is not there. May block for a moment."""
        if importlib.util.find_spec("ddgs") is None:
            raise UsageError("--search duckduckgo needs ddgs", to_install("web"))
        room.check()
        return cls(room, on_network)

    async def search(self, query: str, count: int) -> Sequence[Found]:
        options = json.dumps({"query": query, "count": count, "certificates": self.certificates})
        way_out = Network(mode="allow", hosts=(f"{HOST}:443",))
        sealed = Sealed(_PROGRAM, f"{self.name} cannot be asked", SEARCH_S, way_out, self.on_network)
        said = await sealed.ask(self.room, options)
        if isinstance(said, dict):
            why = str(said.get("error"))
            if "No results" in why:
                return []
            raise ActionFailed(f"{self.name} cannot be asked: {one_line(why, 200)}")
        return _found(said, "href", "body")[:count]
