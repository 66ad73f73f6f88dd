"""One page from the web: asked for, followed, bounded in time, size, steps and kind.

Addresses, as a model or a page writes them, are brought to one spelling; who may be asked is for the proxy to say. It
is the one that sandboxes have (sandboxes.egress), in this process: names, ports and TLS names are judged there, each
request anew, and reported. It is reached over a pair of sockets that nobody else has, not over a port. A gzip bomb ends
at the limit, before it is in memory.
"""

import socket
import ssl
import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import anyio
import httpcore2
import httpx2
from anyio.abc import ByteStream, SocketStream
from httpcore2._backends.anyio import AnyIOStream  # public only behind a connection that it makes itself

from stockade.core.data import Data
from stockade.core.errors import ActionFailed
from stockade.core.text import one_line
from stockade_sandbox.egress.proxy import Egress
from stockade_sandbox.egress.trust import trusting
from stockade_sandbox.policy import MIB
from stockade_sandbox.stoppable import unwrap_exception_group

MAX_CHARS = 2000
_PROXY = "http://stockade.invalid:3128"
"""Nobody looks it up: the backend connects to the proxy whatever its name."""
_GZIP = 31
_READABLE = ("text/", "application/json", "application/xml", "application/xhtml", "application/pdf",
             "application/octet-stream", "application/x-ipynb", "application/javascript", "application/rtf",
             "application/vnd.openxmlformats-officedocument.wordprocessingml")  # fmt: skip
_MAX_PACKED = 64 * MIB
_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; stockade)", "Accept-Encoding": "gzip", "Connection": "close",
            "Accept": "text/html,application/xhtml+xml,text/*;q=0.9,*/*;q=0.5",
            "Accept-Language": "en,*;q=0.5"}  # fmt: skip


def parse(text: str, base: httpx2.URL | None = None) -> httpx2.URL:
    """An `http` or `https` address in ASCII, without a fragment. ActionFailed for all that is none: files, other
    schemes, user names, odd characters, too long.
    """
    text = text.strip()
    if not text or len(text) > MAX_CHARS:
        raise ActionFailed(f"the URL is {'empty' if not text else f'longer than {MAX_CHARS} characters'}")
    if base is None and "://" not in text and not text.startswith("/") and "." in text.split("/")[0]:
        text = f"https://{text}"
    shown = one_line(text, 100)
    try:
        url = httpx2.URL(text) if base is None else base.join(text)
        url = url.copy_with(fragment=None).copy_with(raw_path=url.raw_path)
    except (httpx2.InvalidURL, ValueError) as error:
        raise ActionFailed(f"{shown} is not a URL: {one_line(str(error), 100)}") from None
    if url.scheme not in ("http", "https"):
        raise ActionFailed(f"{shown} is not a web address: it must begin with http:// or https://")
    if url.userinfo:
        raise ActionFailed(f"{shown} has a user name before the host")
    host = url.raw_host.decode("ascii")
    if not host or set(host) & set("/\\?#@% ") or not 0 < (url.port or 80) < 65536:
        raise ActionFailed(f"{shown} names no host")
    return url


@cache
def tls_context(authorities: tuple[str, ...] = ()) -> ssl.SSLContext:
    """With the certificates that this machine trusts, and `authorities` in PEM; building it takes 70 ms."""
    return trusting(authorities, httpcore2.default_ssl_context())


class _Body(httpx2.AsyncByteStream):
    """A response's bytes, as they come, up to a bound."""

    def __init__(self, parts: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._parts, self._max_bytes = parts, max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        room = self._max_bytes
        async for part in self._parts:
            if (room := room - len(part)) < 0:
                raise httpx2.TransportError(f"the answer is larger than {self._max_bytes >> 20} MiB")
            yield part

    async def aclose(self) -> None:
        await self._parts.aclose()


class Transport(httpx2.AsyncHTTPTransport):
    """httpx over connections of our own, with what a response may hold bounded, in a packing that was asked for."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool, max_bytes: int) -> None:
        self._pool, self._max_bytes = pool, max_bytes  # instead of the pool that it would make

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        packed = response.headers.get("content-encoding", "identity").strip().lower()
        if packed not in ("identity", request.headers["accept-encoding"]):
            await response.aclose()
            raise httpx2.TransportError("the answer is packed in a way that was not asked for")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Body(response.stream, self._max_bytes)
        return response


class Dialer(httpcore2.AsyncNetworkBackend, ABC):
    """Connections of a kind of our own, for a pool of httpcore's."""

    @abstractmethod
    async def dial(self, host: str, port: int) -> ByteStream:
        """httpcore2.ConnectError when there is none."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                return AnyIOStream(await self.dial(host, port))
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"{host}:{port} does not answer") from error


@dataclass
class _ToProxy(Dialer):
    """`ends` are those of all its connections: whoever made them closes them, as a cancelled proxy may not have."""

    offer: Callable[[ByteStream], Awaitable[None]]
    ends: list[SocketStream] = field(default_factory=list)

    async def dial(self, host: str, port: int) -> ByteStream:
        with anyio.CancelScope(shield=True):  # nothing that could take long
            ours, theirs = [await SocketStream.from_socket(end) for end in socket.socketpair()]
        self.ends += (ours, theirs)
        await self.offer(theirs)
        return ours

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            for end in self.ends:
                await anyio.aclose_forcefully(end)


@dataclass(frozen=True, slots=True)
class ThroughProxy:
    """`server` is the proxy, with its rules. `tls` is for tests, which have certificates of their own."""

    server: Egress
    tls: Callable[[], ssl.SSLContext] = tls_context

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx2.AsyncClient]:
        """While it lasts the proxy serves it, and nobody else."""
        give, take = anyio.create_memory_object_stream[ByteStream](8)
        backend = _ToProxy(give.send)
        try:
            async with give, take, anyio.create_task_group() as group:
                group.start_soon(self.server.serve, take.receive)
                pool = httpcore2.AsyncHTTPProxy(_PROXY, ssl_context=self.tls(), network_backend=backend)
                async with _client(pool) as client:
                    yield client
                group.cancel_scope.cancel()
        finally:
            await backend.close()


@dataclass(frozen=True, slots=True)
class Direct:
    """Without the proxy: for an address that the user wrote down, never for one that a model or a page did."""

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx2.AsyncClient]:
        async with _client(httpcore2.AsyncConnectionPool(ssl_context=tls_context())) as client:
            yield client


def _client(pool: httpcore2.AsyncConnectionPool) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=Transport(pool, _MAX_PACKED), headers=_HEADERS, timeout=None, trust_env=False)


class Bounds(Data):
    """Of one fetch: seconds and bytes in all, and redirections."""

    total_s: float = 30.0
    body_bytes: int = 8 * MIB
    redirects: int = 5


BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Fetched:
    """`type` and `charset` in lower case, as the server says; `data` is unpacked. `asked` counts requests."""

    address: httpx2.URL
    status: int
    type: str
    charset: str
    data: bytes
    asked: int = 1


async def fetch(way_out: ThroughProxy | Direct, address: httpx2.URL, bounds: Bounds = BOUNDS) -> Fetched:
    """ActionFailed, for the model, for everything that the rules, the network or the server do against it."""
    async with unwrap_exception_group(), way_out.client() as client:
        with anyio.move_on_after(bounds.total_s):
            return await _follow(client, address, bounds)
    raise ActionFailed(f"{address.host} did not answer in full within {bounds.total_s:g} s")


async def _follow(client: httpx2.AsyncClient, address: httpx2.URL, bounds: Bounds) -> Fetched:
    for number in range(1, bounds.redirects + 2):
        try:
            found = await _ask(client, address, bounds, number)
        except httpx2.ProxyError as error:
            raise ActionFailed(_refused(str(error).partition(" ")[2] or str(error))) from None
        except (httpx2.HTTPError, OSError) as error:
            raise ActionFailed(f"{address.host} {_why(error)}") from None
        if isinstance(found, Fetched):
            return found
        address = found
    raise ActionFailed(f"more than {bounds.redirects} redirections, the last one to {one_line(str(address), 200)}")


async def _ask(client: httpx2.AsyncClient, address: httpx2.URL, bounds: Bounds, number: int) -> Fetched | httpx2.URL:
    """The page, or where it is said to be."""
    async with client.stream("GET", str(address)) as response:
        named = response.headers
        if "x-stockade-egress" in named:
            raise ActionFailed(_refused((await response.aread())[:1000].decode(errors="replace")))
        if response.is_redirect and "location" in named:
            return parse(named.get_list("location")[0], address)
        if response.status_code >= 400:
            phrase = one_line(response.reason_phrase, 60)
            raise ActionFailed(f"{address.host} answers HTTP {response.status_code} {phrase}".rstrip())
        kind = named.get("content-type", "").partition(";")[0].strip().lower()[:100]
        if kind and not kind.startswith(_READABLE) and not kind.endswith(("+xml", "+json")):
            raise ActionFailed(f"it is {one_line(kind, 60)}, not text")
        data = await unpacked(response, bounds.body_bytes)
    return Fetched(address, response.status_code, kind, (response.charset_encoding or "")[:40].lower(), data, number)


async def unpacked(response: httpx2.Response, limit: int) -> bytes:
    """The body. ActionFailed when it is larger than `limit` bytes, packed or not: no more of it is in memory."""
    unpacker = zlib.decompressobj(_GZIP) if "content-encoding" in response.headers else None
    data, too_large = bytearray(), ActionFailed(f"the page is larger than {limit >> 20} MiB")
    length = response.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 19 or int(length) > limit):
        raise too_large
    async for piece in response.aiter_raw():
        try:
            data += piece if unpacker is None else unpacker.decompress(piece, limit + 1 - len(data))
        except zlib.error:
            raise ActionFailed("the page is packed, and broken") from None
        if len(data) > limit or (unpacker is not None and unpacker.unconsumed_tail):
            raise too_large
    return bytes(data)


def _refused(text: str) -> str:
    """What the proxy says; its rules are the user's."""
    return one_line(text, 300).removeprefix("stockade: ")


def _why(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"has no valid certificate: {cause.verify_message}"
        cause = cause.__cause__ or cause.__context__
    return f"cannot be read: {one_line(str(error), 150) or 'the connection was cut'}"
