"""MCP over this process's standard streams, and over streamable HTTP on loopback.

Nothing but the protocol reaches standard output. Over HTTP it is for who has the token, since others on this machine
reach loopback too; what a web page sent from a browser is refused by its origin.
"""

import hmac
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from stockade.core.errors import UsageError

MAX_LINE_BYTES = 8 << 20
_PIECE = 1 << 16


async def bounded_lines(descriptor: int) -> AsyncIterator[str]:
    """Lines of text from a descriptor, each of a bounded length: a longer one becomes one that is no message.

    No thread waits for it, which would outlive the event loop and hold up the end of the process.
    """
    buffer, too_long = bytearray(), False
    while True:
        with suppress(PermissionError):  # a file, which never lets wait
            await anyio.wait_readable(descriptor)
        if not (data := os.read(descriptor, _PIECE)):
            break
        *ended, rest = data.split(b"\n")
        for piece in ended:
            buffer += piece
            too_long = too_long or len(buffer) > MAX_LINE_BYTES
            yield "too long\n" if too_long else buffer.decode(errors="replace") + "\n"
            buffer, too_long = bytearray(), False
        buffer += rest
        if len(buffer) > MAX_LINE_BYTES:
            buffer, too_long = bytearray(), True
    if buffer:
        yield buffer.decode(errors="replace")


async def serve_stdio(server: MCPServer[Any]) -> None:
    """Until the client ends its side; what is under way then is cancelled."""
    lowlevel = server._lowlevel_server  # run_stdio_async, with input that is bounded
    lines = cast("anyio.AsyncFile[str]", bounded_lines(sys.stdin.fileno()))
    async with stdio_server(stdin=lines) as (received, sent):
        await lowlevel.run(received, sent, lowlevel.create_initialization_options())


MAX_BODY_BYTES = 8 << 20


class Guarded:
    """An ASGI app behind `Authorization: Bearer TOKEN`."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._wanted):
                answer = PlainTextResponse(
                    "stockade: the token is missing or wrong", 401, {"WWW-Authenticate": "Bearer"}
                )
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def serve_http(
    server: MCPServer[Any], host: str, port: int, token: str, listening: Callable[[str], None]
) -> None:
    """Until it is cancelled. `listening` is told the address; port 0 takes any."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise UsageError(f"{host}:{port} cannot be served: {error.strerror}", "give another port") from None
        number = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        names = [f"{name}:{number}" for name in (shown, "localhost", "127.0.0.1")]
        security = TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=names,
            allowed_origins=[f"http://{name}" for name in names],
        )
        app = server.streamable_http_app(
            host=host, max_request_body_size=MAX_BODY_BYTES, transport_security=security, max_sessions=32
        )
        logging.getLogger("uvicorn").addHandler(logging.NullHandler())
        config = uvicorn.Config(Guarded(app, token), log_config=None, access_log=False, timeout_graceful_shutdown=5)
        listening(f"http://{shown}:{number}/mcp")
        await _Server(config).serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Signals are the command's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
