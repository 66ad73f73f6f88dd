"""The MCP servers of a run, their tools as one toolbox: each started when it is wanted, and again after its end.

A task of its own holds the connection, because what was entered must be left by the same task, whoever calls. What it
writes passes a Channel first, with a hostile peer in mind: it is read only while an answer is wanted, so a server that
writes without end is stopped by its full pipe. Only answers and a few requests get through; schemas of results are
taken out, because the library would try their patterns here.
"""

import json
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup, TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    Implementation,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from stockade.core.actions import ToolResult
from stockade.core.errors import ActionFailed, SandboxFailed, UsageError
from stockade.core.ports import Program, Programs, Sandbox
from stockade.core.tools import ToolSpec
from stockade.tools.mcp.config import ServerConfig
from stockade.tools.mcp.content import clean, error, refusal, spec, to_result, tool_names
from stockade.tools.mcp.http import client_inside

MAX_MESSAGE_BYTES = 16 << 20
MAX_EXCHANGE_BYTES = 64 << 20
"""What a server may write before it has answered all that it was asked."""
MAX_REQUESTS = 100
"""What it may ask for itself meanwhile; only a ping is answered with more than that this is not had here."""
MAX_TOOLS = 256
_CANCELLED = "notifications/cancelled"
_KEPT = ("name", "title", "description", "inputSchema")

Item = SessionMessage | Exception
Send = Callable[[SessionMessage], Awaitable[None]]
Streams = tuple[MemoryObjectReceiveStream[Item], MemoryObjectSendStream[SessionMessage]]
START_S = 60.0
"""Until it has told its tools: one that is fetched first takes long."""
MAX_ARGUMENT_BYTES = 4 << 20
MAX_PAGES = 20
MAX_STARTS = 5
"""In a run; one that needs more is broken."""
MAX_SILENT = 2
"""Calls one after the other that ran out of time; then it is started again."""
_WORDS_CHARS = 300
_TOO_MUCH = f"it wrote more than {MAX_MESSAGE_BYTES >> 20} MiB at once"
logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("mcp").propagate = False  # it would print what a server wrote


class Channel:
    """One conversation. `trouble` is what was wrong with what the server wrote, for who has to tell."""

    def __init__(self) -> None:
        self._pending: set[str] = set()
        self._asked = anyio.Event()
        self._exchanged = self._requests = 0
        self.trouble: str | None = None

    @asynccontextmanager
    async def streams(self, source: AsyncIterable[bytes | Item], send: Send) -> AsyncIterator[Streams]:
        """What the library reads and writes: of `source`, lines or messages, what gets through; all of it to `send`."""
        incoming, received = anyio.create_memory_object_stream[Item](0)
        sent, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as group:
            group.start_soon(self._read, aiter(source), incoming)
            group.start_soon(self._write, outgoing, send, incoming)
            try:
                yield received, sent
            finally:
                for end in (received, sent, incoming, outgoing):
                    end.close()
                group.cancel_scope.cancel()

    async def lines(self, program: Program) -> AsyncIterator[bytes]:
        """Of a program, until one is too long."""
        buffer = bytearray()
        while len(buffer) <= MAX_MESSAGE_BYTES:
            data = await program.receive()
            buffer += data
            *lines, rest = buffer.split(b"\n") if b"\n" in data else (buffer,)
            buffer = rest
            for line in lines:
                yield bytes(line)
        self.trouble = _TOO_MUCH

    async def _write(
        self, outgoing: MemoryObjectReceiveStream[SessionMessage], send: Send, incoming: MemoryObjectSendStream[Item]
    ) -> None:
        try:
            async for item in outgoing:
                self._note_sent(item.message)
                await send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            incoming.close()  # whoever waits for an answer hears of the end

    def _note_sent(self, message: Any) -> None:
        if isinstance(message, JSONRPCRequest):
            if not self._pending:
                self._exchanged = self._requests = 0
                self.trouble = None
            self._pending.add(str(message.id))
            self._asked.set()
        elif isinstance(message, JSONRPCNotification) and message.method == _CANCELLED:
            self._pending.discard(str((message.params or {}).get("requestId")))

    async def _read(self, source: AsyncIterator[bytes | Item], incoming: MemoryObjectSendStream[Item]) -> None:
        with incoming, suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                while not self._pending:
                    self._asked = anyio.Event()
                    await self._asked.wait()
                if (item := await anext(source, None)) is None:
                    return
                if isinstance(item, bytes):
                    self._exchanged += len(item)
                    if self._exchanged > MAX_EXCHANGE_BYTES:
                        self.trouble = _TOO_MUCH
                        return
                    item = self._message(item)
                if isinstance(item, Exception) or (item is not None and self._wanted(item.message)):
                    await incoming.send(item)

    def _message(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except (ValueError, RecursionError):
            self.trouble = "it wrote a line that is no JSON-RPC message"
            return None

    def _wanted(self, message: Any) -> bool:
        if isinstance(message, JSONRPCNotification):
            return False
        if isinstance(message, JSONRPCRequest):
            self._requests += 1
            return self._requests <= MAX_REQUESTS
        if not isinstance(message, JSONRPCResponse | JSONRPCError) or str(message.id) not in self._pending:
            self.trouble = "it answered what it was not asked"
            return False
        self._pending.discard(str(message.id))
        if isinstance(message, JSONRPCResponse):
            plain_tools(message.result)
        return True


def plain_tools(result: dict[str, Any]) -> None:
    """Of a list of tools what is used here; entries that are no tools are left out."""
    tools = result.get("tools")
    if isinstance(tools, list):
        result["tools"] = [{key: one[key] for key in _KEPT if key in one} for one in tools[:MAX_TOOLS] if _is_tool(one)]


def _is_tool(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("name"), str)
        and 0 < len(one["name"]) <= 200
        and isinstance(one.get("inputSchema"), dict)
        and one["inputSchema"].setdefault("type", "object") == "object"
        and all(isinstance(one.get(key, ""), str | None) for key in ("title", "description"))
    )


class Unusable(Exception):
    """The server cannot be used now; the words are for the model, or the user."""


class _Connection:
    """One start of the server. `over` is set to end it; `finished`: it is gone, and `why`."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.program: Program | None = None
        self.channel = Channel()
        self.why: Exception = Unusable("it ended")
        self.over, self.finished = anyio.Event(), anyio.Event()

    @property
    def usable(self) -> bool:
        ended = self.program is not None and self.program.status is not None
        return self.client is not None and not ended and not self.over.is_set()

    async def reason(self, failure: BaseException) -> Exception:
        """The failure for whoever wanted the connection: SandboxFailed as itself."""
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        if isinstance(failure, SandboxFailed):
            return failure
        if isinstance(failure, ActionFailed):
            return Unusable(failure.message)
        return Unusable(await self.said() or f"it does not speak MCP: {_words(failure)}")

    async def said(self) -> str:
        """What is known of a program's end, or of what it wrote."""
        if self.program is not None and self.program.status is not None:
            *_, last = ["", *(await self.program.exit_reason()).splitlines()]
            words = clean(last, _WORDS_CHARS)
            return f"it ended with status {self.program.status}" + (f": {words}" if words else "")
        return self.channel.trouble or ""

    @asynccontextmanager
    async def transport(self, config: ServerConfig, programs: Programs) -> AsyncIterator[Streams]:
        if config.url is not None:
            async with client_inside(config.url, config.headers, programs) as http:
                async with streamable_http_client(config.url, http_client=http) as (source, sink):
                    async with self.channel.streams(source, sink.send) as streams:
                        yield streams
            return
        async with programs.program(config.argv) as program:
            self.program = program

            async def send(item: SessionMessage) -> None:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await program.send(text.encode() + b"\n")

            async with self.channel.streams(self.channel.lines(program), send) as streams:
                yield streams


class McpServer:
    """Its connections are held by tasks of `group`, whose end is theirs."""

    def __init__(self, config: ServerConfig, programs: Programs, group: TaskGroup, start_s: float = START_S) -> None:
        self.config = config
        self._start_s = start_s
        self._programs = programs
        self._group = group
        self._current: _Connection | None = None
        self._lock = anyio.Lock()
        self._starts = self._silent = 0

    async def _hold(self, *, task_status: TaskStatus[_Connection]) -> None:
        """Until it is over. Never raises what a server, or the library that reads it, did wrong."""
        one, about = _Connection(), Implementation(name="stockade", version="1")
        probe_s = self._start_s / 3  # one that does not answer a question of 2026 is asked as in 2025
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + self._start_s) as scope:
                streams = one.transport(self.config, self._programs)
                async with Client(streams, cache=None, read_timeout_seconds=probe_s, client_info=about) as one.client:
                    scope.deadline = float("inf")
                    task_status.started(one)
                    await one.over.wait()
            if scope.cancelled_caught:
                one.why = Unusable(f"it did not start within {self._start_s:g} s")
        except Exception as failure:  # noqa: BLE001 - the library meets a hostile peer: told to whoever asks
            one.why = await one.reason(failure)
        finally:
            started, one.client = one.client is not None, None
            one.finished.set()
        if not started:
            task_status.started(one)

    async def _ready(self) -> tuple[_Connection, Client]:
        """Connected; the end of a server that was idle shows here, and it is started again."""
        async with self._lock:
            one = self._current
            if one is None or not one.usable:
                if one is not None:
                    one.over.set()
                    await one.finished.wait()
                    if isinstance(one.why, SandboxFailed):
                        raise one.why
                if self._starts >= MAX_STARTS:
                    raise Unusable(f"it was started {MAX_STARTS} times and ended every time")
                self._starts += 1
                one = self._current = await self._group.start(self._hold)
            if one.client is None:
                raise one.why
            return one, one.client

    async def tools(self) -> list[dict[str, Any]]:
        """Its tools as it lists them, each with `name` and an object `inputSchema`. Unusable, SandboxFailed."""
        found: list[dict[str, Any]] = []
        (one, client), cursor = await self._ready(), None
        try:
            with anyio.fail_after(self._start_s):
                for _ in range(MAX_PAGES):
                    page = await client.list_tools(cursor=cursor)
                    listed = page.model_dump(by_alias=True, exclude_none=True, mode="json", include={"tools"})
                    plain_tools(listed)
                    found += listed["tools"]
                    cursor = page.next_cursor
                    if cursor is None or len(found) > MAX_TOOLS:
                        break
        except TimeoutError:
            raise Unusable(f"it did not list its tools within {self._start_s:g} s") from None
        except Exception as failure:
            raise await one.reason(failure) from failure
        names = [tool["name"] for tool in found]
        return [tool for number, tool in enumerate(found[:MAX_TOOLS]) if tool["name"] not in names[:number]]

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_s: float) -> ToolResult:
        """What came of a call; whatever goes wrong but the sandbox is a result too."""
        try:
            if len(json.dumps(arguments, ensure_ascii=False).encode()) > MAX_ARGUMENT_BYTES:
                return error(f"the arguments are longer than {MAX_ARGUMENT_BYTES >> 20} MiB")
        except (ValueError, RecursionError, TypeError):
            return error("the arguments hold what is no text or number")
        one: _Connection | None = None
        try:
            with anyio.fail_after(timeout_s):
                one, client = await self._ready()
                found = await client.call_tool(tool, dict(arguments), read_timeout_seconds=timeout_s + 1)
        except TimeoutError:
            return self._timed_out(one, timeout_s)
        except SandboxFailed:
            raise
        except Unusable as why:
            return error(f"the MCP server {self.config.name} cannot be used: {why}")
        except MCPError as failure:
            assert one is not None
            return await self._refused(one, failure)
        except Exception as failure:  # noqa: BLE001 - see _hold
            return error(f"the MCP server {self.config.name} gave no proper answer: {_words(failure)}")
        self._silent = 0
        return to_result(found)

    def _timed_out(self, one: _Connection | None, timeout_s: float) -> ToolResult:
        self._silent += 1
        trouble = f"; {one.channel.trouble}" if one is not None and one.channel.trouble else ""
        if self._silent >= MAX_SILENT and one is not None:
            self._silent = 0
            one.over.set()
        return error(f"the MCP server {self.config.name} did not answer within {timeout_s:g} s{trouble}")

    async def _refused(self, one: _Connection, failure: MCPError) -> ToolResult:
        name = self.config.name
        if failure.code != CONNECTION_CLOSED:
            return error(f"the MCP server {name} refused: {_words(failure)}")
        if one.program is not None:
            with anyio.move_on_after(1):  # its end, where it is one, is told after its last byte
                await one.program.exit_reason()
        why = await one.said() or "the connection is gone"
        one.over.set()
        return error(f"the MCP server {name} broke off: {why}; whether it did anything is unknown")


def _words(failure: BaseException) -> str:
    return clean(str(failure) or type(failure).__name__, _WORDS_CHARS)


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
