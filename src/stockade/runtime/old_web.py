"""Tools of ours by name, made for a run: which folder, which sealed places, which way out."""

import hashlib
import re
from pathlib import Path

from stockade.core.errors import UsageError
from stockade.core.events import NetworkRequested
from stockade.core.ports import OnNetwork, Toolbox
from stockade.core.search import SearchEngine
from stockade.runtime.tools import ToolContext
from stockade.sandboxes.egress.proxy import Egress
from stockade.sandboxes.reading import ReadingRoom
from stockade.tools.documents import DocumentToolbox
from stockade.tools.fetch import ThroughProxy
from stockade.tools.memory import MemoryToolbox
from stockade.tools.search import DuckDuckGo, SearchToolbox, SearXNG
from stockade.tools.web import PageToolbox

DUCKDUCKGO = "duckduckgo"


def memory(place: ToolContext) -> Toolbox:
    """One memory a bot, in the state folder."""
    return MemoryToolbox(place.state / "memory" / memory_name(place.bot), _room(place))


def memory_name(bot: str) -> str:
    """A bot's name; of one that is a file, its name and which file that is."""
    path = Path(bot)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem if path.suffix else bot).strip("-")[:60] or "bot"
    return f"{name}-{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:8]}" if path.suffix else name


def documents(place: ToolContext) -> Toolbox:
    return DocumentToolbox(place.sandbox, _room(place))


def pages(place: ToolContext) -> Toolbox:
    """By the rules of the run's --net, through a proxy of its own."""
    return PageToolbox(ThroughProxy(Egress.of(place.policy, _hearer(place))), _room(place))


def search(place: ToolContext) -> Toolbox:
    return SearchToolbox(lambda: engine(place.search, _room(place), _hearer(place)))


def engine(wanted: str | None, room: ReadingRoom, on_network: OnNetwork) -> SearchEngine:
    """Of `--search`. Naming one is the permission to ask it, and nobody else, whatever --net says."""
    if not wanted:
        raise UsageError("web_search has no engine", "--search http://HOST:PORT of a SearXNG, or --search duckduckgo")
    return DuckDuckGo.installed(room, on_network) if wanted == DUCKDUCKGO else SearXNG.at(wanted, on_network)


def browser(place: ToolContext) -> Toolbox:
    """UsageError when the run has no network: a browser without one is of no use."""
    from stockade.plugins.browser.toolbox import BrowserToolbox

    if place.policy.network.mode == "none":
        raise UsageError("the browser has no network", "--net allow=HOST,... or --net open")
    return BrowserToolbox(place.sandbox)


def python(place: ToolContext) -> Toolbox:
    from stockade.tools.program import PythonTool

    return PythonTool(place.sandbox)


def _room(place: ToolContext) -> ReadingRoom:
    return ReadingRoom(place.state / "reading")


def _hearer(place: ToolContext) -> OnNetwork:
    """Of requests, which belong on record like those of the run's sandbox."""

    def heard(event: NetworkRequested) -> None:
        if (on_network := place.on_network) is not None:
            on_network(event)

    return heard
