"""Stockade runs LLM agents in sealed sandboxes; you review the diff before your files change.

`WritingBot(folder="demo").run("Write the number of lines of data.csv into count.txt")` gives a result with an answer, a
diff, and `apply()`; see docs/bots.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stockade.api.arguments import Folder
    from stockade.api.bots import (
        BossBot,
        Bot,
        BrowsingBot,
        CoderBot,
        LogAnalysisBot,
        PlannerBot,
        ReadingBot,
        ShellBot,
        WritingBot,
    )
    from stockade.api.results import Exchange, RunResult
    from stockade.client.blocking import Client
    from stockade.client.runs import AsyncClient
    from stockade.core.errors import StockadeError
    from stockade.fleet.batch import Batch
    from stockade.tools.function import tool
    from stockade.tools.tool_files import ToolDefinition
    from stockade_sandbox import Policy, Sandbox

__version__ = "0.1.0"
_WHERE = {
    "AsyncClient": "client.runs",
    "Batch": "fleet.batch",
    "Client": "client.blocking",
    "Bot": "api.bots",
    "BossBot": "api.bots",
    "BrowsingBot": "api.bots",
    "CoderBot": "api.bots",
    "ShellBot": "api.bots",
    "LogAnalysisBot": "api.bots",
    "PlannerBot": "api.bots",
    "ReadingBot": "api.bots",
    "WritingBot": "api.bots",
    "Folder": "api.arguments",
    "Sandbox": "stockade_sandbox",
    "Exchange": "api.results",
    "RunResult": "api.results",
    "Policy": "stockade_sandbox",
    "StockadeError": "core.errors",
    "ToolDefinition": "tools.tool_files",
    "tool": "tools.function",
}
__all__ = [
    "AsyncClient",
    "Batch",
    "BossBot",
    "Bot",
    "BrowsingBot",
    "Client",
    "CoderBot",
    "Exchange",
    "Folder",
    "LogAnalysisBot",
    "PlannerBot",
    "Policy",
    "ReadingBot",
    "RunResult",
    "Sandbox",
    "ShellBot",
    "StockadeError",
    "ToolDefinition",
    "WritingBot",
    "__version__",
    "tool",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The public names, imported when they are used: the command line does not wait for them."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    where = _WHERE[name] if _WHERE[name] == "stockade_sandbox" else f"{__name__}.{_WHERE[name]}"
    found = getattr(import_module(where), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
