"""MCP over this process's standard streams. Nothing but the protocol reaches its standard output."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server

MAX_LINE_BYTES = 8 << 20
_PIECE = 1 << 16


class Lines:
    """Lines of text from a descriptor, each of a bounded length: a longer one becomes one that is no message.

    No thread waits for it, which would outlive the event loop and hold up the end of the process.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __aiter__(self) -> AsyncIterator[str]:
        return self._lines()

    async def _lines(self) -> AsyncIterator[str]:
        buffer, too_long = bytearray(), False
        while data := await self._some():
            *ended, rest = data.split(b"\n")
            for piece in ended:
                buffer += piece
                yield (
                    "too long\n" if too_long or len(buffer) > MAX_LINE_BYTES else buffer.decode(errors="replace") + "\n"
                )
                buffer, too_long = bytearray(), False
            buffer += rest
            if len(buffer) > MAX_LINE_BYTES:
                buffer, too_long = bytearray(), True
        if buffer:
            yield buffer.decode(errors="replace")

    async def _some(self) -> bytes:
        with suppress(PermissionError):  # a file, which never lets wait
            await anyio.wait_readable(self._descriptor)
        return os.read(self._descriptor, _PIECE)


async def serve_stdio(server: MCPServer[Any]) -> None:
    """Until the client ends its side; what is under way then is cancelled."""
    lowlevel = server._lowlevel_server  # run_stdio_async, with input that is bounded
    lines = Lines(sys.stdin.fileno())
    async with stdio_server(stdin=cast("anyio.AsyncFile[str]", lines)) as (received, sent):
        await lowlevel.run(received, sent, lowlevel.create_initialization_options())
