"""MCP over this process's standard streams. Nothing but the protocol reaches its standard output."""

import sys
from collections.abc import AsyncIterator
from typing import Any, BinaryIO, cast

import anyio
import anyio.to_thread
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server

MAX_LINE_BYTES = 8 << 20


class Lines:
    """Lines of text, each of a bounded length: of a longer one nothing is kept but a line that is no message."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source

    def __aiter__(self) -> AsyncIterator[str]:
        return self._lines()

    async def _lines(self) -> AsyncIterator[str]:
        while line := await anyio.to_thread.run_sync(self._next, abandon_on_cancel=True):
            yield line

    def _next(self) -> str:
        line = self._source.readline(MAX_LINE_BYTES)
        if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
            return line.decode(errors="replace")
        while line and not line.endswith(b"\n"):
            line = self._source.readline(MAX_LINE_BYTES)
        return "a line that is too long\n"


async def serve_stdio(server: MCPServer[Any]) -> None:
    """Until the client ends its side; what is under way then is cancelled."""
    lowlevel = server._lowlevel_server  # run_stdio_async, with input that is bounded
    async with stdio_server(stdin=cast("anyio.AsyncFile[str]", Lines(sys.stdin.buffer))) as (received, sent):
        await lowlevel.run(received, sent, lowlevel.create_initialization_options())
