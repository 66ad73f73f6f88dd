"""The server: the routes behind the guard, and errors in one form."""

from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

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
from stockade.server.batches import batches
from stockade.server.bounds import Full
from stockade.server.deciding import Outdated, Unmatched
from stockade.server.guard import LOOPBACK, Guard, problem
from stockade.server.live import Conflicting
from stockade.server.openapi import Described
from stockade.server.page import page
from stockade.server.query import queries
from stockade.server.reviewing import review
from stockade.server.runs import NotFound, say
from stockade.server.sandboxes import Sandboxes
from stockade_sandbox.errors import ReviewOutdated

_STATUS: tuple[tuple[type[StockadeError], int, str], ...] = (
    (NotFound, 404, "Not Found"), (RunRemoved, 410, "Gone"), (Full, 429, "Too Many Requests"),
    (Unmatched, 428, "Precondition Required"), (Outdated, 412, "Precondition Failed"),
    (ReviewOutdated, 412, "Precondition Failed"), (Conflicting, 409, "Conflict"), (RunTaken, 409, "Conflict"),
    (ChangedOnHost, 409, "Conflict"), (LayerLost, 410, "Gone"), (UsageError, 422, "Unprocessable Content"),
    (ModelFailed, 502, "Bad Gateway"), (StoreFailed, 503, "Service Unavailable"),
)  # fmt: skip
"""The first that fits; else it is the machine's fault."""


def make_app(served: Served, names: frozenset[str], sandboxes: Sandboxes) -> Any:
    """`names`: what the server is called, beside those of loopback."""
    app = Described(
        title="stockade", version=__version__, docs_url=None, redoc_url=None, openapi_url="/openapi.json",
        description="LLM agents in sealed sandboxes. Errors are problem+json (RFC 9457) with the way out as `hint`.",
        generate_unique_id_function=lambda route: route.name, redirect_slashes=False,
    )  # fmt: skip
    app.state.served = served
    app.include_router(open_to_all)
    app.include_router(api)
    app.include_router(review)
    app.include_router(batches)
    app.include_router(page)
    app.include_router(queries)
    app.add_exception_handler(StockadeError, _ours)
    app.add_exception_handler(Denied, _denied)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)
    return Guard(sandboxes.beside(app), names | LOOPBACK)


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
    words = f"{where}: {first['msg'].replace('a valid tuple', 'a list')}"[:500]
    return problem(422, "Unprocessable Content", words, "GET /openapi.json says what is taken")


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    found = problem(error.status_code, str(error.detail), str(error.detail).lower(), "GET /openapi.json has the routes")
    found.headers.update(error.headers or {})
    return found


async def _bug(_: Request, error: Exception) -> Response:
    say(f"this is a bug in Stockade: {type(error).__name__}: {error}")
    return problem(500, "Internal Server Error", "this is a bug in Stockade", "the server's standard error has more")
