"""HTTP/1.1 to one server, as far as asking a model needs it: a question in one piece, an answer as it comes.

A general client spends more on each question than all else that a turn of ours does (docs/benchmarks.md). h11 reads and
checks the protocol. Redirects are answers like any other: a key is sent to nobody but who was named.
"""

import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Self
from urllib.parse import SplitResult, quote, unquote, urlsplit

import anyio
import h11

from stockade.models.net import is_loopback
from stockade.models.streams import Lost, NotReached, Proxy, Stream, ascii_host, basic, connect, proxy_of
from stockade.models.tls import tls_context

_IN_TARGET = "!$%&'()*+,/:;=?@[]~"
_MAX_HEAD_BYTES = 1 << 18
KEEP_S = 4.0
"""How long a connection is kept for the next question: uvicorn and node close theirs after five seconds of silence, and
what lies between may forget one without a word to either end."""


class Response:
    """`headers` by their names in lower case; of several of one name the last."""

    def __init__(self, head: h11.Response, http: h11.Connection, stream: Stream) -> None:
        self.status = head.status_code
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        packed = self.headers.get("content-encoding", "").lower() in ("gzip", "x-gzip", "deflate")
        self._unpack = zlib.decompressobj(47) if packed else None
        self._http, self._stream = http, stream

    async def read(self) -> bytes:
        """The next piece as it came; none at the end. Lost when it breaks off."""
        while True:
            event = await _event(self._http, self._stream)
            if isinstance(event, h11.Data):
                if data := self._plain(bytes(event.data)):
                    return data
            elif isinstance(event, h11.EndOfMessage):
                return b""
            else:
                raise Lost("it was closed amid an answer")

    async def whole(self, limit: int) -> bytes:
        """The rest, or its first `limit` bytes and a little."""
        body = bytearray()
        while len(body) <= limit and (piece := await self.read()):
            body += piece
        return bytes(body)

    def _plain(self, data: bytes) -> bytes:
        try:
            return self._unpack.decompress(data) if self._unpack else data
        except zlib.error as error:
            raise Lost(f"it cannot be unpacked: {error}") from None


class Client:
    """`url` names the server, with `http` or `https`; the paths asked for are whole addresses on it.

    NotReached after `connect_s` seconds without a connection, Lost after `answer_s` without the beginning of an answer.
    Entering reads the certificates and the proxies of the environment.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        connect_s: float = 10.0,
        answer_s: float = 60.0,
        keep_s: float = KEEP_S,
    ) -> None:
        self._url = urlsplit(url)
        self._near = is_loopback(url)
        self._connect_s, self._answer_s, self._keep_s = connect_s, answer_s, keep_s
        self._sent = dict(headers)
        self._headers: list[tuple[bytes, bytes]] = []
        self._proxy: Proxy | None = None
        self._idle: list[_Connection] = []

    async def __aenter__(self) -> Self:
        secure = self._url.scheme == "https"
        self._context = tls_context() if secure else None
        self._proxy = None if self._near else proxy_of(self._url)
        forwarded = self._proxy is not None and not secure
        self._headers = _headers(self._url, self._sent, self._proxy if forwarded else None)
        try:
            h11.Request(method="GET", target="/", headers=self._headers)
        except h11.LocalProtocolError:
            # Its own words hold the key.
            raise NotReached("a key or header holds what cannot be sent") from None
        self._prefix = f"http://{host_of(self._url)}" if forwarded else ""
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            while self._idle:
                await self._idle.pop().stream.aclose()

    @asynccontextmanager
    async def asked(self, method: str, url: str, body: bytes | None = None) -> AsyncIterator[Response]:
        """The answer to one question, inside. A connection whose answer was not read to its end is closed after it."""
        connection = await self._connection()
        try:
            try:
                with anyio.fail_after(self._answer_s):
                    response = await connection.ask(method, self._prefix + target_of(url), self._headers, body)
            except TimeoutError:
                raise Lost(f"nothing was said for {self._answer_s:g} s") from None
            yield response
        finally:
            if connection.can_go_on():
                connection.idle_since = anyio.current_time()
                self._idle.append(connection)
            else:
                with anyio.CancelScope(shield=True):
                    await connection.stream.aclose()

    async def _connection(self) -> "_Connection":
        while self._idle:
            connection = self._idle.pop()
            if anyio.current_time() - connection.idle_since < self._keep_s and not connection.stream.is_stale():
                return connection
            await connection.stream.aclose()
        try:
            with anyio.fail_after(self._connect_s):
                return _Connection(await connect(self._url, self._context, self._proxy, near=self._near))
        except TimeoutError:
            raise NotReached(f"no connection within {self._connect_s:g} s") from None


class _Connection:
    """One question after another over one stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.idle_since = 0.0
        self._whole = True
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)

    async def ask(self, method: str, target: str, headers: list[tuple[bytes, bytes]], body: bytes | None) -> Response:
        http = self._http
        if http.our_state is h11.DONE:
            http.start_next_cycle()
        length = [(b"content-length", b"%d" % len(body))] if body is not None else []
        # Head and body in one piece: one call into the kernel, and often one packet.
        question = http.send(h11.Request(method=method, target=target, headers=headers + length)) or b""
        question += (http.send(h11.Data(data=body)) or b"") if body else b""
        question += http.send(h11.EndOfMessage()) or b""
        unsent: Lost | None = None
        try:
            await self.stream.send(question)
        except Lost as error:
            unsent = error  # a server may say that this is too much before it has heard all of it, and close
            self._whole = False
        try:
            return Response(await self._head(), http, self.stream)
        except Lost as error:
            raise unsent or error from error

    async def _head(self) -> h11.Response:
        while not isinstance(head := await _event(self._http, self.stream), h11.Response):
            if not isinstance(head, h11.InformationalResponse):
                raise Lost("it was closed without an answer")
        return head

    def can_go_on(self) -> bool:
        return self._whole and self._http.our_state is h11.DONE and self._http.their_state is h11.DONE


async def _event(http: h11.Connection, stream: Stream) -> object:
    try:
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await stream.receive())
    except h11.RemoteProtocolError as error:
        raise Lost(str(error)) from error
    return event


def target_of(url: str) -> str:
    """Path and query as they go on the wire."""
    parts = urlsplit(url)
    text = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    return quote(text, safe=_IN_TARGET)


def host_of(url: SplitResult) -> str:
    """For the Host header: with a port where it is not the usual one."""
    host = ascii_host(url)
    host = f"[{host}]" if ":" in host else host
    return host if url.port is None else f"{host}:{url.port}"


def _headers(url: SplitResult, given: Mapping[str, str], proxy: Proxy | None) -> list[tuple[bytes, bytes]]:
    """A name and password in the address are the key."""
    headers = {"Host": host_of(url), "Accept-Encoding": "identity", **given}
    if url.username:
        headers["Authorization"] = basic(f"{unquote(url.username)}:{unquote(url.password or '')}")
    if proxy and proxy.authorization:
        headers["Proxy-Authorization"] = proxy.authorization
    return [(name.encode("ascii"), value.encode("latin-1", errors="replace")) for name, value in headers.items()]


__all__ = ["Client", "Lost", "NotReached", "Response"]
