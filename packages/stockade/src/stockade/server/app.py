"""The server: the routes behind the guard, errors in one form, and uvicorn, on loopback or behind TLS."""

import asyncio
import resource
import socket
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from stockade import __version__
from stockade.core.errors import (
    ChangedOnHost,
    LayerLost,
    ModelFailed,
    RunRemoved,
    RunTaken,
    StockadeError,
    StoreFailed,
    UsageError,
)
from stockade.server.api import Denied, Served, api, open_to_all
from stockade.server.bounds import Full
from stockade.server.certificate import Certificate
from stockade.server.deciding import Outdated, Unmatched
from stockade.server.guard import LOOPBACK, Guard, problem
from stockade.server.live import Conflicting
from stockade.server.openapi import Described
from stockade.server.page import page
from stockade.server.runs import NotFound, say
from stockade_sandbox.errors import ReviewOutdated

CONNECTIONS = 1200
HEAD_S = 10
"""For the head of a request, from its first byte or from the connection on."""
_FILES = 16_384
_STATUS: tuple[tuple[type[StockadeError], int, str], ...] = (
    (NotFound, 404, "Not Found"), (RunRemoved, 410, "Gone"), (Full, 429, "Too Many Requests"),
    (Unmatched, 428, "Precondition Required"), (Outdated, 412, "Precondition Failed"),
    (ReviewOutdated, 412, "Precondition Failed"), (Conflicting, 409, "Conflict"), (RunTaken, 409, "Conflict"),
    (ChangedOnHost, 409, "Conflict"), (LayerLost, 410, "Gone"), (UsageError, 422, "Unprocessable Content"),
    (ModelFailed, 502, "Bad Gateway"), (StoreFailed, 503, "Service Unavailable"),
)  # fmt: skip
"""The first that fits; else it is the machine's fault."""


def make_app(served: Served, names: frozenset[str]) -> Any:
    """`names`: what the server is called, beside those of loopback."""
    app = Described(
        title="stockade", version=__version__, docs_url=None, redoc_url=None, openapi_url="/openapi.json",
        description="LLM agents in sealed sandboxes. Errors are problem+json (RFC 9457) with the way out as `hint`.",
        generate_unique_id_function=lambda route: route.name, redirect_slashes=False,
    )  # fmt: skip
    app.state.served = served
    app.include_router(open_to_all)
    app.include_router(api)
    app.include_router(page)
    app.add_exception_handler(StockadeError, _ours)
    app.add_exception_handler(Denied, _denied)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)
    return Guard(app, names | LOOPBACK)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, StockadeError)
    hide = request.app.state.served.runs.redactor.text
    status, title = next(
        ((status, title) for kind, status, title in _STATUS if isinstance(error, kind)), (500, "Internal Server Error")
    )
    name = f"urn:stockade:{type(error).__name__}"
    return problem(status, title, hide(error.message), hide(error.hint) if error.hint else None, name)


async def _denied(_: Request, error: Exception) -> Response:
    assert isinstance(error, Denied)
    found = problem(error.status, error.title, error.detail, error.hint)
    if error.again_s is not None:
        found.headers["Retry-After"] = str(error.again_s)
    return found


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return problem(
        422, "Unprocessable Content", f"{where}: {first['msg']}"[:500], "GET /openapi.json says what is taken"
    )


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    found = problem(error.status_code, str(error.detail), str(error.detail).lower(), "GET /openapi.json has the routes")
    found.headers.update(error.headers or {})
    return found


async def _bug(_: Request, error: Exception) -> Response:
    say(f"this is a bug in Stockade: {type(error).__name__}: {error}")
    return problem(500, "Internal Server Error", "this is a bug in Stockade", "the server's standard error has more")


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
    """Signals are the command's to handle: it sets `should_exit`."""

    @contextmanager
    def capture_signals(self) -> Any:
        yield


def make_server(app: Any, certificate: Certificate | None) -> Server:
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, ws="none", http=Patient, loop="asyncio",
        lifespan="off", limit_concurrency=CONNECTIONS, timeout_keep_alive=30, timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=32_768, proxy_headers=False,
        ssl_certfile=certificate.cert if certificate else None, ssl_keyfile=certificate.key if certificate else None,
        log_level="critical",
    )  # fmt: skip
    return Server(config)


def listen(host: str, port: int) -> socket.socket:
    """UsageError where that is not to be had. Each connection is an open file, and so is much of a run."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most if 0 <= most < _FILES else _FILES, most))
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError as error:
        raise UsageError(f"{host}:{port} cannot be listened at: {error.strerror}", "--port 0 takes any port") from None
    return found
