"""A search engine that knows a few pages, for tests and demos without a network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stockade.core.search import Found


@dataclass
class LocalEngine:
    """`pages` are texts by address; the first line of each is its title. Finds what shares words with the query."""

    pages: Mapping[str, str]
    name: str = "local"
    asked: list[str] = field(default_factory=list)

    async def search(self, query: str, count: int) -> Sequence[Found]:
        self.asked.append(query)
        wanted = set(query.lower().split())
        scored = [(len(wanted & set(text.lower().split())), url) for url, text in self.pages.items()]
        best = sorted((one for one in scored if one[0]), key=lambda one: -one[0])[:count]
        found = []
        for _, url in best:
            title, _, rest = self.pages[url].partition("\n")
            found.append(Found(title=title, url=url, snippet=rest.strip()[:300]))
        return found
