"""MCP over streamable HTTP on loopback, for who has the token: others on this machine reach loopback too.

What a web page sent from a browser is refused by its origin.
"""

import hmac
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from stockade.core.errors import UsageError

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
