"""MCP over a program's standard streams, as the library wants a transport, with a hostile peer in mind.

It is read only while an answer is wanted, so a server that writes without end is stopped by its full pipe. Only answers
and a few requests get through; schemas of results are taken out, because the library would try their patterns here.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from stockade.core.ports import Program

MAX_MESSAGE_BYTES = 16 << 20
MAX_EXCHANGE_BYTES = 64 << 20
"""What a server may write before it has answered all that it was asked."""
MAX_REQUESTS = 100
"""What it may ask for itself meanwhile; only a ping is answered with more than that this is not had here."""
MAX_TOOLS = 256
_CANCELLED = "notifications/cancelled"
_KEPT = ("name", "title", "description", "inputSchema")

Item = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Item], MemoryObjectSendStream[SessionMessage]]


class Channel:
    """One conversation. `trouble` is what was wrong with what the server wrote, for who has to tell."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._pending: set[str] = set()
        self._asked = anyio.Event()
        self._exchanged = self._requests = 0
        self.trouble: str | None = None

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[Streams]:
        incoming, received = anyio.create_memory_object_stream[Item](0)
        sent, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as group:
            group.start_soon(self._read, incoming)
            group.start_soon(self._write, outgoing, incoming)
            try:
                yield received, sent
            finally:
                for end in (received, sent, incoming, outgoing):
                    end.close()
                group.cancel_scope.cancel()

    async def _write(
        self, outgoing: MemoryObjectReceiveStream[SessionMessage], incoming: MemoryObjectSendStream[Item]
    ) -> None:
        try:
            async for item in outgoing:
                self._note_sent(item.message)
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await self._program.send(text.encode() + b"\n")
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

    async def _read(self, incoming: MemoryObjectSendStream[Item]) -> None:
        buffer = bytearray()
        with incoming, suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                while not self._pending:
                    self._asked = anyio.Event()
                    await self._asked.wait()
                data = await self._program.receive()
                self._exchanged += len(data)
                buffer += data
                if len(buffer) > MAX_MESSAGE_BYTES or self._exchanged > MAX_EXCHANGE_BYTES:
                    self.trouble = f"it wrote more than {MAX_MESSAGE_BYTES >> 20} MiB at once"
                    return
                *lines, rest = buffer.split(b"\n") if b"\n" in data else (buffer,)
                buffer = rest
                for line in lines:
                    if (message := self._message(bytes(line))) is not None:
                        await incoming.send(SessionMessage(message))

    def _message(self, line: bytes) -> Any:
        """What is passed on; None for what is not."""
        if not line.strip():
            return None
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except (ValueError, RecursionError):
            self.trouble = "it wrote a line that is no JSON-RPC message"
            return None
        return message if self._wanted(message) else None

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


@asynccontextmanager
async def filtered(transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Streams]:
    """Another transport's streams, of which the same gets through. What is sent goes straight to it."""
    incoming, received = anyio.create_memory_object_stream[Item](0)

    async def pass_on(source: Any) -> None:
        with incoming, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for item in source:
                if isinstance(item, SessionMessage):
                    if isinstance(item.message, JSONRPCNotification):
                        continue
                    if isinstance(item.message, JSONRPCResponse):
                        plain_tools(item.message.result)
                await incoming.send(item)

    async with transport as (source, sent), anyio.create_task_group() as group:
        group.start_soon(pass_on, source)
        try:
            yield received, sent
        finally:
            received.close()
            group.cancel_scope.cancel()


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
