"""MCP over this process's standard streams: nothing but the protocol reaches standard output, and whatever a client
sends is answered.
"""

import json
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from stockade.core.lines import bounded_lines

MAX_LINE_BYTES = 64 << 20
"""Above the longest arguments that tools take, each character of them escaped."""
_TOO_LONG = f"longer than {MAX_LINE_BYTES >> 20} MiB"


def refusal(line: bytes | None) -> JSONRPCError | None:
    """The answer to what is no message, None for one. Its `id` is null where none can be read."""
    if line is None:
        return _error(None, PARSE_ERROR, _TOO_LONG)
    kind = INVALID_REQUEST, "this is no message of JSON-RPC 2.0"
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        if not isinstance(message, JSONRPCNotification) or "id" not in json.loads(line):
            return None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            kind = PARSE_ERROR, first["msg"]
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return _error(None, *kind)
    return _error(found.get("id") if isinstance(found, dict) else None, *kind)


def _error(number: Any, code: int, message: str) -> JSONRPCError:
    known = number if isinstance(number, str | int) and not isinstance(number, bool) else None
    return JSONRPCError(jsonrpc="2.0", id=known, error=ErrorData(code=code, message=message))


async def serve_stdio(server: MCPServer[Any]) -> None:
    """Until the client ends its side; what is under way then is cancelled."""
    lowlevel = server._lowlevel_server  # run_stdio_async, with input that is bounded and answered
    refused = list[Any]()

    async def messages() -> AsyncIterator[str]:
        async for line in bounded_lines(sys.stdin.fileno(), MAX_LINE_BYTES):
            if line is not None and not line.strip():
                continue
            if (answer := refusal(line)) is not None:
                await refused[0].send(SessionMessage(answer))
            elif line is not None:
                yield line.decode()

    async with stdio_server(stdin=cast("anyio.AsyncFile[str]", messages())) as (received, sent):
        refused.append(sent)
        await lowlevel.run(received, sent, lowlevel.create_initialization_options())
