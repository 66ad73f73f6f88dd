"""The tools of the MCP servers of a run, as one toolbox, and which of them were accepted, by hash: a server must not
become another one behind the user's back.
"""

import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread

from stockade.core.actions import ToolResult
from stockade.core.errors import SandboxFailed, UsageError
from stockade.core.ports import Programs, Sandbox
from stockade.core.tools import ToolSpec
from stockade.paths import read_regular
from stockade.tools.mcp.config import ServerConfig
from stockade.tools.mcp.content import clean, error, fingerprint, refusal, spec, tool_names
from stockade.tools.mcp.server import START_S, McpServer, Unusable
from stockade_sandbox.locks import lock

MAX_FILE_BYTES = 8 << 20
VERSION = 1
TIMEOUT_S = 60.0
Confirm = Callable[[str], Awaitable[bool]]
"""Puts a yes-or-no question to the user; False when nobody is there."""
Note = Callable[[str], None]
Listed = tuple[McpServer, list[dict[str, Any]]]
_Listing = list[dict[str, Any]] | Unusable | SandboxFailed


@dataclass(frozen=True, slots=True)
class Differences:
    """What a server says now against what was accepted. `known`: something was."""

    known: bool
    changed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.changed or self.new)

    def __str__(self) -> str:
        parts = [
            f"{word}: {', '.join(names)}" for word, names in (("changed", self.changed), ("new", self.new)) if names
        ]
        return "; ".join(parts)


def identity_key(identity: Mapping[str, Any]) -> str:
    """The server's name, readable, and a digest of how it is reached."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return f"{identity['name']} {digest[:16]}"


@dataclass(frozen=True, slots=True)
class Pins:
    """The file `mcp-pins.json` in the state folder. Blocking. UsageError when it cannot be read or written."""

    path: Path

    def compare(self, server: str, tools: Mapping[str, str]) -> Differences:
        """`tools`: their hashes by name. One that is gone is no difference."""
        accepted = self._read().get(server)
        if accepted is None:
            return Differences(known=False)
        changed = tuple(name for name, digest in tools.items() if name in accepted and accepted[name] != digest)
        return Differences(True, changed, tuple(name for name in tools if name not in accepted))

    def accept(self, server: str, tools: Mapping[str, str]) -> None:
        """From now on these are the ones, beside those that were there."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_suffix(".lock").open("a") as file:
                lock(file.fileno())
                servers = self._read()
                servers[server] = {**servers.get(server, {}), **tools}
                self._write(servers)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}") from None

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            data = read_regular(self.path, MAX_FILE_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}") from None
        try:
            found = json.loads(data)
            servers = found["servers"]
            if found["version"] == VERSION and _well_formed(servers):
                return dict(servers)
        except (ValueError, RecursionError, KeyError, TypeError):
            pass
        raise UsageError(f"{self.path} is damaged", "remove it: MCP servers are then accepted as if they were new")

    def _write(self, servers: Mapping[str, Mapping[str, str]]) -> None:
        text = json.dumps({"version": VERSION, "servers": servers}, indent=1, sort_keys=True)
        new = self.path.with_suffix(".new")
        with new.open("w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)


def _well_formed(servers: Any) -> bool:
    return isinstance(servers, dict) and all(
        isinstance(tools, dict) and all(isinstance(digest, str) for digest in tools.values())
        for tools in servers.values()
    )


@dataclass(frozen=True, slots=True)
class Rules:
    """`required`: one that cannot be used is the end of it (the user named it); else it is left out, with a note.
    `accepted`: servers, by name, whose tools are taken as they are now."""

    pins: Pins
    confirm: Confirm | None = None
    note: Note | None = None
    required: bool = True
    accepted: tuple[str, ...] = ()
    timeout_s: float = TIMEOUT_S
    start_s: float = START_S


async def _list(server: McpServer, listed: dict[str, _Listing]) -> None:
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
    _specs: tuple[ToolSpec, ...] = ()
    _tools: dict[str, tuple[McpServer, str]] = field(default_factory=dict)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> Self:
        if not isinstance(self.sandbox, Programs):
            raise UsageError("MCP servers need a sandbox that can run them", "use --sandbox bubblewrap")
        await self._stack.enter_async_context(self.sandbox.carried())  # one server may end before the others begin
        group = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(group.cancel_scope.cancel)
        servers = [McpServer(config, self.sandbox, self.rules.start_s) for config in self.servers]
        for server in servers:
            group.start_soon(server.serve)
        try:
            listed: dict[str, _Listing] = {}
            async with anyio.create_task_group() as starting:
                for server in servers:
                    starting.start_soon(_list, server, listed)
            found = [await self._usable(server, listed[server.config.name]) for server in servers]
            self._offer([one for one in found if one is not None])
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()  # not told of the error, which a group of tasks would wrap

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    async def _usable(self, server: McpServer, tools: _Listing) -> Listed | None:
        """With the tools that it may offer; None when it is left out."""
        name = server.config.name
        try:
            if isinstance(tools, Exception):
                raise tools
            await self._pinned(server, tools)
        except Unusable as why:
            if self.rules.required:
                raise UsageError(f"the MCP server {name} cannot be used: {why}", "mend it, or leave it out") from None
            self._say(f"the MCP server {name} was left out: {why}")
            return None
        offered = []
        for tool in tools:
            if (reason := refusal(tool)) is None:
                offered.append(tool)
            else:
                self._say(f"the tool {clean(tool['name'], 60)} of the MCP server {name} is not offered: {reason}")
        return server, offered

    async def _pinned(self, server: McpServer, tools: list[dict[str, Any]]) -> None:
        """Unusable when it is not what was accepted, and is not accepted now."""
        name, key = server.config.name, identity_key(server.config.identity)
        hashes = {str(tool["name"]): fingerprint(tool) for tool in tools}
        found = await anyio.to_thread.run_sync(self.rules.pins.compare, key, hashes)
        if found.known and found.any and name not in self.rules.accepted and not await self._agreed(name, found):
            raise Unusable(
                f"its tools are not those that were accepted ({clean(str(found), 300)}); look at them, "
                f"then accept them with --mcp-accept {name}"
            )
        if not found.known:
            self._say(f"the MCP server {name} is new: {len(tools)} tools accepted as they are now")
        if found.any or not found.known:
            await anyio.to_thread.run_sync(self.rules.pins.accept, key, hashes)

    async def _agreed(self, name: str, found: Differences) -> bool:
        if self.rules.confirm is None:
            return False
        told = clean(str(found), 300)
        return await self.rules.confirm(
            f"The tools of the MCP server {name} are not those you accepted ({told}). Use them?"
        )

    def _say(self, words: str) -> None:
        if self.rules.note is not None:
            self.rules.note(words)

    def _offer(self, found: Sequence[Listed]) -> None:
        names = tool_names((server.config.name, tool["name"]) for server, tools in found for tool in tools)
        specs = []
        for server, tools in found:
            for tool in tools:
                name = names[(server.config.name, tool["name"])]
                specs.append(spec(name, server.config.name, tool))
                self._tools[name] = (server, tool["name"])
        self._specs = tuple(specs)

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        server, tool = self._tools[name]
        told = next(one for one in self._specs if one.name == name)
        if missing := [one for one in told.required if one not in arguments]:
            return error(f"{name}: missing: {', '.join(missing)}")
        limit = self.rules.timeout_s if timeout_s is None else min(timeout_s, self.rules.timeout_s)
        return await server.call(tool, arguments, limit)
