"""The port of search engines."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from stockade.core.data import Data


class Found(Data):
    """One result of a search, as the engine gave it: nobody has looked at it."""

    title: str
    url: str
    snippet: str = ""


@runtime_checkable
class SearchEngine(Protocol):
    """Searches the web, or what it knows of it."""

    @property
    def name(self) -> str: ...

    async def search(self, query: str, count: int) -> Sequence[Found]:
        """At most `count`, best first. ActionFailed, for the model, when the engine cannot be asked."""
        ...
