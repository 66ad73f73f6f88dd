"""Tools of ours by name, made for a run: which folder, which sealed places, which way out."""

import hashlib
import re
from functools import partial
from pathlib import Path

from stockade.core.errors import UsageError
from stockade.core.ports import OnNetwork, SearchEngine, Toolbox
from stockade.core.tool_plan import ToolContext
from stockade.tools.documents import DocumentToolbox
from stockade.tools.fetch import ThroughProxy, tls_context
from stockade.tools.memory import MemoryToolbox
from stockade.tools.program import PythonTool
from stockade.tools.search import DuckDuckGo, SearchToolbox, SearXNG
from stockade.tools.web import PageToolbox
from stockade_sandbox.egress.proxy import Egress
from stockade_sandbox.reading import ReadingRoom

DUCKDUCKGO = "duckduckgo"


def memory(context: ToolContext) -> Toolbox:
    """One memory a bot, in the state folder."""
    return MemoryToolbox(context.state / "memory" / memory_name(context.bot), _room(context))


def memory_name(bot: str) -> str:
    """A bot's name; of one that is a file, its name and which file that is."""
    path = Path(bot)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem if path.suffix else bot).strip("-")[:60] or "bot"
    return f"{name}-{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:8]}" if path.suffix else name


def documents(context: ToolContext) -> Toolbox:
    return DocumentToolbox(context.sandbox, _room(context))


def pages(context: ToolContext) -> Toolbox:
    """By the rules of the run's --net, through a proxy of its own."""
    egress, tls = Egress.of(context.policy, context.on_network), partial(tls_context, context.policy.authorities)
    return PageToolbox(ThroughProxy(egress, tls), _room(context))


def search(context: ToolContext) -> Toolbox:
    return SearchToolbox(lambda: engine(context.search, _room(context), context.on_network))


def engine(wanted: str | None, room: ReadingRoom, on_network: OnNetwork) -> SearchEngine:
    """Of `--search`. Naming one is the permission to ask it, and nobody else, whatever --net says."""
    if not wanted:
        raise UsageError("web_search has no engine", "--search http://HOST:PORT of a SearXNG, or --search duckduckgo")
    return DuckDuckGo.installed(room, on_network) if wanted == DUCKDUCKGO else SearXNG.at(wanted, on_network)


def python(context: ToolContext) -> Toolbox:
    return PythonTool(context.sandbox)


def _room(context: ToolContext) -> ReadingRoom:
    return ReadingRoom(context.state / "reading")
