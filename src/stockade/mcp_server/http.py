"""MCP over streamable HTTP on loopback. Requests that a web page sent from a browser are refused by their origin."""

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from stockade.core.errors import UsageError

MAX_BODY_BYTES = 8 << 20


async def serve_http(server: MCPServer[Any], host: str, port: int, listening: Callable[[str], None]) -> None:
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
        config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5)
        listening(f"http://{shown}:{number}/mcp")
        await _Server(config).serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Signals are the command's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
