"""How a server of ours listens, whichever it is: uvicorn with its bounds, and not for whoever sends nothing."""

import asyncio
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from stockade_sandbox.errors import UsageError

HEAD_S = 10
"""For the head of a request, from its first byte or from the connection on."""
CONNECTIONS = 1200


class Patient(H11Protocol):
    """Not with whoever opens a connection and sends the head of a request slowly, or never (slowloris)."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._late is None and self.conn.trailing_data[0]:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._late = asyncio.get_running_loop().call_later(HEAD_S, self.transport.close)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Server(uvicorn.Server):
    """Signals are whoever's that runs it: he sets `should_exit`."""

    @contextmanager
    def capture_signals(self) -> Any:
        yield


def make_server(app: Any, certificate: tuple[Path, Path] | None, last_s: int) -> Server:
    """`certificate` and its key, for TLS; `last_s`: for what is under way when it is told to end."""
    cert, key = certificate or (None, None)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, ws="none", http=Patient, loop="asyncio",
        lifespan="off", limit_concurrency=CONNECTIONS, timeout_keep_alive=30, timeout_graceful_shutdown=last_s,
        h11_max_incomplete_event_size=32_768, proxy_headers=False, log_level="critical",
        ssl_certfile=cert, ssl_keyfile=key,
    )  # fmt: skip
    return Server(config)


def listen(host: str, port: int) -> socket.socket:
    """UsageError where that is not to be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)  # asyncio sends small answers at once only where it is named
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError as error:
        what = f"{host}:{port} cannot be listened at: {error.strerror or error}"
        raise UsageError(what, "choose another address or port; port 0 takes any") from None
    return found
