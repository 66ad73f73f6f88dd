"""A search engine of a few texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stockade.core.ports import Found


@dataclass
class LocalEngine:
    """`pages` are texts by address; the first line of each is its title. Finds what shares words with the query."""

    pages: Mapping[str, str]
    name: str = "local"
    asked: list[str] = field(default_factory=list)

    async def search(self, query: str, count: int) -> Sequence[Found]:
        self.asked.append(query)
        requested = set(query.lower().split())
        scored = [(len(requested & set(text.lower().split())), url) for url, text in self.pages.items()]
        best = sorted((one for one in scored if one[0]), key=lambda one: -one[0])[:count]
        results = []
        for _, url in best:
            title, _, rest = self.pages[url].partition("\n")
            results.append(Found(title=title, url=url, snippet=rest.strip()[:300]))
        return results
