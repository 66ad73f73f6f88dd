"""The coder over HTTP, as CoSMIC asks its code service: `GET /health`, and `POST /query` with `{"query": "..."}`.

An answer to a query is a list of one object: `response` (what the program printed), `error`, `code`, `status`
(`success` or `error`), `attempts`, `run`. A client that goes away ends its query. Every connection has one request.

Whoever asks may be hostile, and so may a page in the browser of the user: a query must be JSON, come from no page
(`Origin`), and name this machine as its `Host` where only this machine is listened to.
"""

import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import anyio
import h11
from anyio.abc import SocketStream
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stockade.core.data import wrong_words
from stockade.core.errors import StockadeError, UsageError
from stockade_sandbox.policy import is_loopback

MAX_BODY_BYTES = 1 << 20
MAX_HEAD_BYTES = 16 << 10
MAX_CONNECTIONS = 32
REQUEST_S = 30.0
DEFAULT_PORT = 8780
"""CoSMIC's own."""
_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError)


class Query(BaseModel):
    """What is asked. `tests` is the text of a test file, `examples` are like `f(1) == 2`. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    query: str = Field(min_length=1, max_length=200_000)
    tests: str = ""
    examples: tuple[str, ...] = Field(default=(), max_length=100)


class Answer(BaseModel):
    """What comes back; always with all fields."""

    response: str = ""
    error: str = ""
    code: str = ""
    status: str
    attempts: int = 0
    run: str = ""


Solve = Callable[[Query], Awaitable[Answer]]
"""May raise StockadeError: UsageError is the client's mistake, any other this machine's trouble."""


class _Refused(Exception):
    """The request is answered with this and nothing else."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


@dataclass(slots=True)
class Service:
    """`host` is what it listens on; `at_once` queries are worked on, the others wait. `api_key`: what must be given as
    a bearer token.
    """

    solve: Solve
    host: str = "127.0.0.1"
    api_key: str | None = None
    at_once: int = 1
    _open: int = 0
    _turn: anyio.CapacityLimiter = field(init=False)

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.api_key:
            raise UsageError(f"--serve {self.host}: others could use it", "give --api-key, or listen on 127.0.0.1")
        self._turn = anyio.CapacityLimiter(self.at_once)

    async def serve(self, port: int, listening: Callable[[int], None]) -> None:
        """Until it is cancelled. `listening` is called with the port. UsageError when that is not to be had."""
        try:
            listener = await anyio.create_tcp_listener(local_host=self.host, local_port=port)
        except OSError as error:
            words = error.strerror or str(error)
            raise UsageError(f"cannot listen on {self.host}:{port}: {words}", "choose another one") from None
        async with listener:
            listening(listener.extra(anyio.abc.SocketAttribute.local_port))
            await listener.serve(self._connection)

    async def _connection(self, stream: SocketStream) -> None:
        async with stream:
            self._open += 1
            try:
                await self._exchange(stream)
            except (*_GONE, h11.LocalProtocolError):
                return  # the client is gone: nobody to tell
            finally:
                self._open -= 1

    async def _exchange(self, stream: SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        try:
            if self._open > MAX_CONNECTIONS:
                raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
            with anyio.fail_after(REQUEST_S):
                request, body = await _read(connection, stream)
            status, value = await self._answer(request, body, stream)
        except _Refused as refused:
            status, value = refused.status, {"error": refused.words}
        except TimeoutError:
            status, value = HTTPStatus.REQUEST_TIMEOUT, {"error": "the request did not come to its end"}
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            value = {"error": f"this is not HTTP: {error}"}
        await _say(connection, stream, status, value)

    async def _answer(self, request: h11.Request, body: bytes, stream: SocketStream) -> tuple[HTTPStatus, Any]:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        path = request.target.decode("latin-1").partition("?")[0].rstrip("/") or "/"
        method = request.method.decode("latin-1")
        self._check_origin(headers)
        if path == "/health" and method in ("GET", "HEAD", "POST"):
            return HTTPStatus.OK, {"status": "ok"}
        if path not in ("/health", "/query"):
            raise _Refused(HTTPStatus.NOT_FOUND, "there are GET /health and POST /query")
        if path != "/query" or method != "POST":
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "there are GET /health and POST /query")
        self._check_key(headers)
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send JSON as Content-Type: application/json")
        try:
            query = Query.model_validate_json(body)
        except ValidationError as error:
            raise _Refused(HTTPStatus.UNPROCESSABLE_ENTITY, wrong_words(error)) from None
        return HTTPStatus.OK, [(await self._solved(query, stream)).model_dump()]

    async def _solved(self, query: Query, stream: SocketStream) -> Answer:
        """The answer, or the end of the client."""
        answer: Answer | None = None

        async def until_gone() -> None:
            try:
                while True:
                    await stream.receive()
            except _GONE:
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(until_gone)
            async with self._turn:
                try:
                    answer = await self.solve(query)
                except UsageError as error:
                    answer = Answer(status="error", error=str(error))
                except StockadeError as error:
                    answer = Answer(status="error", error=f"the coder cannot work: {error}")
            group.cancel_scope.cancel()
        if answer is None:
            raise anyio.BrokenResourceError
        return answer

    def _check_origin(self, headers: dict[str, str]) -> None:
        if "origin" in headers:
            raise _Refused(HTTPStatus.FORBIDDEN, "pages of a browser are not answered")
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if is_loopback(self.host) and not is_loopback(name):
            raise _Refused(HTTPStatus.FORBIDDEN, "this service is for its own machine")

    def _check_key(self, headers: dict[str, str]) -> None:
        if self.api_key is None:
            return
        given = headers.get("authorization", "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(given.encode(errors="replace"), self.api_key.encode()):
            raise _Refused(HTTPStatus.UNAUTHORIZED, "the key is missing or wrong")


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `:PORT` or `HOST`; an IPv6 address in brackets. UsageError when it is none."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.strip("[]") or "127.0.0.1"
    if not port.isascii() or not port.isdigit() or int(port) > 65535 or not host.isprintable() or " " in host:
        raise UsageError(f"--serve {text!r} is not an address", f"write 127.0.0.1:{DEFAULT_PORT}")
    return host, int(port)


async def _read(connection: h11.Connection, stream: SocketStream) -> tuple[h11.Request, bytes]:
    request: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                told = connection.send(h11.InformationalResponse(status_code=100, headers=[]))
                await stream.send(told or b"")
            try:
                connection.receive_data(await stream.receive())
            except anyio.EndOfStream:
                connection.receive_data(b"")
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_BODY_BYTES:
                raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {MAX_BODY_BYTES} bytes")
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            return request, bytes(body)
        else:
            raise anyio.EndOfStream


async def _say(connection: h11.Connection, stream: SocketStream, status: HTTPStatus, value: Any) -> None:
    if connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        return
    body = json.dumps(value).encode()
    headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
    answer = h11.Response(status_code=status.value, headers=headers, reason=status.phrase.encode())
    data = (connection.send(answer) or b"") + (connection.send(h11.Data(data=body)) or b"")
    await stream.send(data)


__all__ = ["DEFAULT_PORT", "Answer", "Query", "Service", "parse_address"]
