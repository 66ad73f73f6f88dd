"""One page from the web: asked for, followed, bounded in time, size, steps and kind.

Addresses, as a model or a page writes them, are brought to one spelling; who may be asked is for the proxy to say. It
is the one that sandboxes have (sandboxes.egress), in this process: names, ports and TLS names are judged there, each
request anew, and reported. It is reached over a pair of sockets that nobody else has, not over a port. A gzip bomb ends
at the limit, before it is in memory.
"""

import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol
from urllib.parse import quote, urldefrag, urljoin, urlsplit

import anyio
import httpcore2
from anyio.abc import ByteStream, SocketStream
from anyio.streams.tls import TLSStream

from stockade.core.data import Data
from stockade.core.errors import ActionFailed
from stockade.core.policy import MIB
from stockade.core.text import one_line

MAX_CHARS = 2000
_KEPT = "/%:@!$&'()*+,;=~-._?"
_PROXY = "http://stockade.invalid:3128"
"""Nobody looks it up: the backend connects to the proxy whatever its name."""
ACCEPTED = "gzip, deflate"
_GZIP_OR_ZLIB, _RAW = 47, -15
_MOVED = (301, 302, 303, 307, 308)
_READABLE = ("text/", "application/json", "application/xml", "application/xhtml", "application/pdf",
             "application/octet-stream", "application/x-ipynb", "application/javascript", "application/rtf",
             "application/vnd.openxmlformats-officedocument.wordprocessingml")  # fmt: skip
_CUT = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, anyio.BrokenResourceError,
        anyio.ClosedResourceError, anyio.EndOfStream, OSError)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Address:
    """An `http` or `https` URL in ASCII, without a fragment; `target` is path and query."""

    scheme: str
    host: str
    port: int | None
    target: str

    @property
    def authority(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse(text: str, base: Address | None = None) -> Address:
    """ActionFailed for all that is no web address: files, other schemes, user names, odd characters, too long."""
    text = text.strip()
    if not text or len(text) > MAX_CHARS:
        raise ActionFailed(f"the URL is {'empty' if not text else f'longer than {MAX_CHARS} characters'}")
    if base is None and "://" not in text and not text.startswith("/") and "." in text.split("/")[0]:
        text = f"https://{text}"
    shown = one_line(text, 100)
    if not text.isprintable():  # urlsplit drops line ends and tabs in silence
        raise ActionFailed(f"{shown} has characters that no URL has")
    try:
        parts = urlsplit(urldefrag(urljoin(str(base), text) if base else text)[0])
        port = parts.port
    except ValueError as error:
        raise ActionFailed(f"{shown} is not a URL: {one_line(str(error), 100)}") from None
    if parts.scheme not in ("http", "https"):
        raise ActionFailed(f"{shown} is not a web address: it must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ActionFailed(f"{shown} has a user name before the host")
    try:
        host = (parts.hostname or "").encode("idna").decode().lower() if not (parts.hostname or "").isascii() else None
        target = quote(parts.path or "/", safe=_KEPT) + (f"?{quote(parts.query, safe=_KEPT)}" if parts.query else "")
    except (UnicodeError, ValueError):
        raise ActionFailed(f"{shown} has characters that no URL has") from None
    host = host if host is not None else (parts.hostname or "")
    if not host or not all("!" <= char <= "~" for char in host) or set(host) & set("/\\?#@%"):
        raise ActionFailed(f"{shown} names no host")
    default = 80 if parts.scheme == "http" else 443
    return Address(parts.scheme, f"[{host}]" if ":" in host else host, None if port == default else port, target)


class Connecting(Protocol):
    """Makes the pool of one fetch."""

    def pool(self) -> AbstractAsyncContextManager[httpcore2.AsyncConnectionPool]: ...


class Server(Protocol):
    """sandboxes.egress.proxy.Egress is one."""

    async def serve(self, accept: Callable[[], Awaitable[ByteStream]]) -> None: ...


@cache
def tls_context() -> ssl.SSLContext:
    """With the certificates that this machine trusts; building it takes 70 ms."""
    return httpcore2.default_ssl_context()


class AnyioStream(httpcore2.AsyncNetworkStream):
    """An anyio stream as httpcore wants one, with TLS on it where that is asked for; errors are httpcore's."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            with anyio.fail_after(timeout):
                return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except TimeoutError as error:
            raise httpcore2.ReadTimeout("no answer in time") from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError) as error:
            raise httpcore2.ReadError("the connection broke") from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            with anyio.fail_after(timeout):
                await self._stream.send(buffer)
        except TimeoutError as error:
            raise httpcore2.WriteTimeout("nobody takes what is sent") from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError) as error:
            raise httpcore2.WriteError("the connection broke") from error

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                wrapped = await TLSStream.wrap(
                    self._stream, hostname=server_hostname, ssl_context=ssl_context, standard_compatible=False
                )
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()
            if isinstance(error, ssl.SSLError | anyio.EndOfStream | anyio.BrokenResourceError):
                raise httpcore2.ConnectError(f"no TLS: {error}") from error
            if isinstance(error, TimeoutError):
                raise httpcore2.ConnectTimeout("no TLS in time") from error
            raise
        return AnyioStream(wrapped)

    def get_extra_info(self, info: str) -> Any:
        return None


@dataclass
class _ToProxy(httpcore2.AsyncNetworkBackend):
    """`ends` are those of all its connections: whoever made them closes them, as a cancelled proxy may not have."""

    offer: Callable[[ByteStream], Awaitable[None]]
    ends: list[SocketStream] = field(default_factory=list)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        with anyio.CancelScope(shield=True):  # nothing that could take long
            ours, theirs = [await SocketStream.from_socket(end) for end in socket.socketpair()]
        self.ends += (ours, theirs)
        await self.offer(theirs)
        return AnyioStream(ours)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            for end in self.ends:
                await anyio.aclose_forcefully(end)


@dataclass(frozen=True, slots=True)
class ThroughProxy:
    """`server` is the proxy, with its rules. `tls` is for tests, which have certificates of their own."""

    server: Server
    tls: Callable[[], ssl.SSLContext] = tls_context

    @asynccontextmanager
    async def pool(self) -> AsyncIterator[httpcore2.AsyncConnectionPool]:
        """While it lasts the proxy serves it, and nobody else."""
        give, take = anyio.create_memory_object_stream[ByteStream](8)
        backend = _ToProxy(give.send)
        try:
            async with give, take, anyio.create_task_group() as group:
                group.start_soon(self.server.serve, take.receive)
                async with httpcore2.AsyncHTTPProxy(_PROXY, ssl_context=self.tls(), network_backend=backend) as pool:
                    yield pool
                group.cancel_scope.cancel()
        finally:
            await backend.close()


@dataclass(frozen=True, slots=True)
class Direct:
    """Without the proxy: for an address that the person wrote down, never for one that a model or a page did."""

    @asynccontextmanager
    async def pool(self) -> AsyncIterator[httpcore2.AsyncConnectionPool]:
        async with httpcore2.AsyncConnectionPool(ssl_context=tls_context()) as pool:
            yield pool


class _Unpacker(Protocol):
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...

    @property
    def unconsumed_tail(self) -> bytes: ...


@dataclass(slots=True)
class Body:
    """ActionFailed when it is larger than `limit` bytes, packed or not, or packed in a way nobody asked for."""

    encoding: str
    limit: int
    data: bytearray = field(default_factory=bytearray)
    _packed: int = 0
    _unpacker: _Unpacker | None = None
    _may_be_raw: bool = False

    def __post_init__(self) -> None:
        coding = self.encoding.strip().lower()
        if coding in ("gzip", "x-gzip", "deflate"):
            self._unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
            self._may_be_raw = coding == "deflate"
        elif coding not in ("", "identity"):
            raise ActionFailed("the page is packed in a way that was not asked for")

    def feed(self, piece: bytes) -> None:
        self._packed += len(piece)
        if self._packed > self.limit:
            raise self._too_large()
        if self._unpacker is None:
            self.data += piece
            return
        room = self.limit + 1 - len(self.data)
        try:
            self.data += self._unpacker.decompress(piece, room)
        except zlib.error:
            if not self._may_be_raw or self._packed != len(piece):
                raise ActionFailed("the page is packed, and broken") from None
            # RFC 9110 section 8.4.1.2: some servers send it without zlib
            self._unpacker, self._may_be_raw, self._packed = zlib.decompressobj(_RAW), False, 0
            self.feed(piece)
            return
        if len(self.data) > self.limit or self._unpacker.unconsumed_tail:
            raise self._too_large()

    def _too_large(self) -> ActionFailed:
        return ActionFailed(f"the page is larger than {self.limit >> 20} MiB")


class Bounds(Data):
    """Of one fetch: seconds and bytes in all, and redirections."""

    total_s: float = 30.0
    body_bytes: int = 8 * MIB
    redirects: int = 5


BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Fetched:
    """`type` and `charset` in lower case, as the server says; `data` is unpacked. `asked` counts requests."""

    address: Address
    status: int
    type: str
    charset: str
    data: bytes
    asked: int = 1


async def fetch(connecting: Connecting, address: Address, bounds: Bounds = BOUNDS) -> Fetched:
    """ActionFailed, for the model, for everything that the rules, the network or the server do against it."""
    result: Fetched | ActionFailed = ActionFailed(f"{address.host} did not answer in full within {bounds.total_s:g} s")
    async with connecting.pool() as pool:  # has a task group, which would wrap what is raised within
        with anyio.move_on_after(bounds.total_s):
            try:
                result = await _follow(pool, address, bounds)
            except ActionFailed as error:
                result = error
    if isinstance(result, ActionFailed):
        raise result
    return result


async def _follow(pool: httpcore2.AsyncConnectionPool, address: Address, bounds: Bounds) -> Fetched:
    for number in range(1, bounds.redirects + 2):
        try:
            found = await _ask(pool, address, bounds, number)
        except httpcore2.ProxyError as error:
            raise ActionFailed(_refused(str(error).partition(" ")[2] or str(error))) from None
        except _CUT as error:
            raise ActionFailed(f"{address.host} {_why(error)}") from None
        if isinstance(found, Fetched):
            return found
        address = found
    raise ActionFailed(f"more than {bounds.redirects} redirections, the last one to {one_line(str(address), 200)}")


async def _ask(pool: httpcore2.AsyncConnectionPool, address: Address, bounds: Bounds, number: int) -> Fetched | Address:
    """The page, or where it is said to be."""
    headers = [("Host", address.authority), ("User-Agent", "Mozilla/5.0 (compatible; stockade)"),
               ("Accept", "text/html,application/xhtml+xml,text/*;q=0.9,*/*;q=0.5"),
               ("Accept-Encoding", ACCEPTED), ("Accept-Language", "en,*;q=0.5"), ("Connection", "close")]  # fmt: skip
    async with pool.stream("GET", str(address), headers=headers) as response:
        named = _headers(response.headers)
        if "x-stockade-egress" in named:
            text = b"".join([piece async for piece in response.aiter_stream()])[:1000]
            raise ActionFailed(_refused(text.decode(errors="replace")))
        if response.status in _MOVED and "location" in named:
            return parse(named["location"], address)
        if response.status >= 400:
            phrase = one_line(bytes(response.extensions.get("reason_phrase", b"")).decode("latin-1"), 60)
            raise ActionFailed(f"{address.host} answers HTTP {response.status} {phrase}".rstrip())
        kind, charset = _kind(named.get("content-type", ""))
        if kind and not kind.startswith(_READABLE) and not kind.endswith(("+xml", "+json")):
            raise ActionFailed(f"it is {one_line(kind, 60)}, not text")
        body = Body(named.get("content-encoding", ""), bounds.body_bytes)
        length = named.get("content-length", "")
        if length.isdecimal() and len(length) < 20 and int(length) > bounds.body_bytes:
            raise ActionFailed(f"the page is larger than {bounds.body_bytes >> 20} MiB")
        async for piece in response.aiter_stream():
            body.feed(piece)
    return Fetched(address, response.status, kind, charset, bytes(body.data), number)


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The first of each name."""
    found: dict[str, str] = {}
    for name, value in raw:
        found.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return found


def _kind(text: str) -> tuple[str, str]:
    kind, *parameters = text.split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return kind.strip().lower()[:100], value.strip(" \"'").lower()[:40]
    return kind.strip().lower()[:100], ""


def _refused(text: str) -> str:
    """What the proxy says; its rules are the person's."""
    return one_line(text, 300).removeprefix("stockade: ")


def _why(error: Exception) -> str:
    if isinstance(error, httpcore2.TimeoutException):
        return "cannot be read: it takes too long"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"has no valid certificate: {cause.verify_message}"
        cause = cause.__context__  # httpcore raises "from None"
    return f"cannot be read: {one_line(str(error), 150) or 'the connection was cut'}"
