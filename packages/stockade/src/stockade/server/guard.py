"""What is settled before anything of a request is read: whom it asks for, which page sent it, how large it may be."""

import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

import anyio
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from stockade.server.models import Problem

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]
MAX_BODY = 2 << 20
BODY_S = 30
"""For the body of a request that is no upload."""
MAX_UPLOAD = 512 << 20
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; sandbox; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
)


def problem(
    status: int, title: str, detail: str, hint: str | None = None, type: str = "about:blank"
) -> JSONResponse:  # fmt: skip
    """The one form that errors have (RFC 9457)."""
    found = Problem(type=type, title=title, status=status, detail=detail, hint=hint)
    body = found.model_dump(mode="json", exclude_none=True)
    headers = {"www-authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse(body, status, headers, "application/problem+json")


def host_of(netloc: str) -> str:
    """The name in `name:port`, as names are compared; empty for what is none."""
    try:
        return (urlsplit(f"//{netloc}").hostname or "").rstrip(".")
    except ValueError:
        return ""


class Guard:
    """`names`: what this server is called. A page of another site that got a name of its own to lead here (DNS
    rebinding) says that name; one that merely asks says where it is from.
    """

    def __init__(self, app: App, names: frozenset[str]) -> None:
        self._app, self._names = app, names

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        most, until = MAX_BODY, anyio.current_time() + BODY_S
        if scope["path"] == "/v1/uploads":
            most, until = MAX_UPLOAD, math.inf

        async def bounded() -> Message:
            nonlocal most, until
            with anyio.CancelScope(deadline=until) as waiting:
                message = await receive()
            if waiting.cancelled_caught:
                raise HTTPException(408, "the request did not come in time")
            if not message.get("more_body", False):
                until = math.inf
            most -= len(message.get("body", b""))
            if most < 0:
                raise HTTPException(413, "the request is too large")
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in _HEADERS if one[0] not in given)]
            await send(message)

        app = self._refused(scope["method"], headers, most) or self._app
        await app(scope, bounded, sent)

    def _refused(self, method: str, headers: dict[bytes, str], most: int) -> App | None:
        host = headers.get(b"host", "")
        if host_of(host) not in self._names:
            known = ", ".join(sorted(self._names))
            return problem(421, "Misdirected Request", "this server has another name", f"it is {known}")
        if (origin := headers.get(b"origin")) is not None and urlsplit(origin).netloc != host:
            return problem(403, "Forbidden", "a page of another site may not ask this server")
        if origin is None and b"cookie" in headers and method not in ("GET", "HEAD"):
            return problem(403, "Forbidden", "a browser says which page asks", "send a token instead of a cookie")
        length = headers.get(b"content-length", "0")
        if not length.isdecimal() or int(length[:20]) > most:
            return problem(413, "Content Too Large", f"the request is larger than {most} bytes")
        return None
