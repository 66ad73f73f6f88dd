"""SearXNG, at an address that the person gave: asked directly, whatever --net says, and nothing else is."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from pydantic import ValidationError

from stockade.core.data import Data
from stockade.core.errors import ActionFailed, UsageError
from stockade.core.events import NetworkRequested
from stockade.core.ports import OnNetwork
from stockade.core.search import Found
from stockade.tools.web.address import Address, parse
from stockade.tools.web.connecting import Direct
from stockade.tools.web.fetch import Bounds, fetch

BOUNDS = Bounds(total_s=20.0, body_bytes=4 << 20, redirects=0)


class _Result(Data):
    model_config = Data.model_config | {"extra": "ignore"}

    url: str
    title: str = ""
    content: str | None = None


class _Answer(Data):
    model_config = Data.model_config | {"extra": "ignore"}

    results: tuple[_Result, ...]


@dataclass(frozen=True)
class SearXNG:
    """Implements core.search.SearchEngine on its JSON API (docs.searxng.org, Search API)."""

    base: Address
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
        path = self.base.target.partition("?")[0].rstrip("/").removesuffix("/search")
        asked = Address(
            self.base.scheme, self.base.host, self.base.port,
            f"{path}/search?{urlencode({'q': query, 'format': 'json'})}",
        )  # fmt: skip
        started, down, status, why = time.monotonic(), 0, 0, ""
        try:
            fetched = await fetch(Direct(), asked, BOUNDS)
            down, status = len(fetched.data), fetched.status
            return _results(fetched.data)[:count]
        except ActionFailed as error:
            why = error.message
            hint = ": its settings.yml has to list json under search.formats" if "HTTP 403" in why else ""
            raise ActionFailed(f"{self.name} cannot be used: {why}{hint}") from None
        finally:
            if self.on_network is not None:
                port = self.base.port or (443 if self.base.scheme == "https" else 80)
                self.on_network(
                    NetworkRequested(
                        at=time.time(), host=self.base.host, port=port, method="GET", verdict="allowed", reason=why,
                        status=status, bytes_down=down, duration_s=round(time.monotonic() - started, 6),
                    )
                )  # fmt: skip


def _results(data: bytes) -> list[Found]:
    try:
        found = _Answer.model_validate(json.loads(data))
    except (ValidationError, ValueError, RecursionError):
        raise ActionFailed("its answer is not the JSON of a SearXNG") from None
    return [Found(title=one.title, url=one.url, snippet=one.content or "") for one in found.results]
