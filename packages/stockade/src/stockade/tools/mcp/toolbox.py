"""The tools of the MCP servers of a run, as one toolbox."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import anyio

from stockade.core.actions import ToolResult
from stockade.core.errors import SandboxFailed, UsageError
from stockade.core.ports import Programs, Sandbox
from stockade.core.tools import ToolSpec
from stockade.tools.mcp.config import ServerConfig
from stockade.tools.mcp.content import clean, error, refusal, spec, tool_names
from stockade.tools.mcp.server import START_S, McpServer, Unusable

TIMEOUT_S = 60.0
Note = Callable[[str], None]
Listing = list[dict[str, Any]] | Unusable | SandboxFailed


@dataclass(frozen=True, slots=True)
class Rules:
    """`required`: one that cannot be used is the end of it (the user named it); else it is left out, with a note."""

    note: Note = lambda words: None
    required: bool = True
    timeout_s: float = TIMEOUT_S
    start_s: float = START_S


async def _list(server: McpServer, listed: dict[str, Listing]) -> None:
    try:
        listed[server.config.name] = await server.tools()
    except (Unusable, SandboxFailed) as failure:
        listed[server.config.name] = failure


@dataclass
class McpToolbox:
    """Left by the task that entered it, like the sandbox."""

    servers: Sequence[ServerConfig]
    sandbox: Sandbox
    rules: Rules
    _tools: dict[str, tuple[ToolSpec, McpServer, str]] = field(default_factory=dict)
    """By name here: what a model is told, whose it is, and the server's own name for it."""
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> Self:
        if not isinstance(self.sandbox, Programs):
            raise UsageError("MCP servers need a sandbox that can run them", "use --sandbox bubblewrap")
        group = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(group.cancel_scope.cancel)
        servers = [McpServer(config, self.sandbox, group, self.rules.start_s) for config in self.servers]
        try:
            listed: dict[str, Listing] = {}
            async with anyio.create_task_group() as starting:
                for server in servers:
                    starting.start_soon(_list, server, listed)
            self._offer([(server, tool) for server in servers for tool in self._usable(server, listed)])
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()  # not told of the error, which a group of tasks would wrap

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(told for told, _, _ in self._tools.values())

    def _usable(self, server: McpServer, listed: Mapping[str, Listing]) -> list[dict[str, Any]]:
        """The tools that it may offer; none when it is left out."""
        name, tools = server.config.name, listed[server.config.name]
        if isinstance(tools, SandboxFailed):
            raise tools
        if isinstance(tools, Unusable):
            if self.rules.required:
                raise UsageError(f"the MCP server {name} cannot be used: {tools}", "mend it, or leave it out")
            self.rules.note(f"the MCP server {name} was left out: {tools}")
            return []
        offered = []
        for tool in tools:
            if (reason := refusal(tool)) is None:
                offered.append(tool)
            else:
                self.rules.note(f"the tool {clean(tool['name'], 60)} of the MCP server {name} is not offered: {reason}")
        return offered

    def _offer(self, found: Sequence[tuple[McpServer, dict[str, Any]]]) -> None:
        names = tool_names((server.config.name, tool["name"]) for server, tool in found)
        for server, tool in found:
            name = names[(server.config.name, tool["name"])]
            self._tools[name] = (spec(name, server.config.name, tool), server, tool["name"])

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        told, server, tool = self._tools[name]
        if missing := [one for one in told.required if one not in arguments]:
            return error(f"{name}: missing: {', '.join(missing)}")
        limit = self.rules.timeout_s if timeout_s is None else min(timeout_s, self.rules.timeout_s)
        return await server.call(tool, arguments, limit)
