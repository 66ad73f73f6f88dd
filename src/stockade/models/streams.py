"""Byte streams to a server: on this machine, over the network, under TLS, through a proxy of the environment.

All errors of sockets, TLS and proxies become NotReached or Lost here.
"""

import base64
import os
import select
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

import anyio
import h11
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSStream

_RECEIVE_BYTES = 1 << 16
_PORTS = {"http": 80, "https": 443}


class HttpError(Exception):
    """A question could not be put, or its answer was not told to its end. The words are for a person."""


class NotReached(HttpError):
    """There is no connection to the server."""


class Lost(HttpError):
    """There was one, and it broke, or what came over it was no HTTP."""


class Stream(Protocol):
    """One reader and one writer at a time. NotReached and Lost are its only errors."""

    async def send(self, data: bytes) -> None: ...

    async def receive(self) -> bytes:
        """At least one byte, or none at the end."""
        ...

    def is_stale(self) -> bool:
        """While nothing is asked: the other end has closed it, or says what nobody asked for."""
        ...

    async def aclose(self) -> None:
        """Never raises."""
        ...


class Proxy(NamedTuple):
    """`authorization` is empty where it wants none."""

    host: str
    port: int
    authorization: str = ""


def proxy_of(url: SplitResult, environ: Mapping[str, str] = os.environ) -> Proxy | None:
    """What the environment says of this address: http_proxy, https_proxy, all_proxy and no_proxy, in either case.

    NotReached for one of a kind that we do not speak.
    """

    def said(name: str) -> str:
        return environ.get(name) or environ.get(name.upper()) or ""

    host = (url.hostname or "").lower()
    spared = [name.strip().lower().lstrip("*").lstrip(".") for name in said("no_proxy").split(",")]
    named = any(name and (host == name or host.endswith(f".{name}")) for name in spared)
    if named or "*" in said("no_proxy").split(",") or not (text := said(f"{url.scheme}_proxy") or said("all_proxy")):
        return None
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme != "http" or not parts.hostname:
        raise NotReached(f"the proxy {parts.scheme}://{parts.netloc.rpartition('@')[2]} is none of HTTP")
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    return Proxy(parts.hostname, parts.port or 80, basic(user) if user else "")


def basic(user: str) -> str:
    """`user` is `NAME:PASSWORD`."""
    return f"Basic {base64.b64encode(user.encode()).decode()}"


async def connect(url: SplitResult, context: ssl.SSLContext | None, proxy: Proxy | None, *, near: bool) -> Stream:
    """To the server of `url`; through `proxy`, TLS goes to the server itself. `near`: it is on this machine."""
    host, port = ascii_host(url), url.port or _PORTS[url.scheme]
    with _mapped(NotReached, f"the proxy {proxy.host}:{proxy.port}: " if proxy else ""):
        if near and context is None:
            return await _near(host, port)
        stream: ByteStream = await anyio.connect_tcp(*(proxy[:2] if proxy else (host, port)))
    with _mapped(NotReached):
        try:
            if context is not None:
                if proxy:
                    await _tunnel(stream, f"{_bracketed(host)}:{port}", proxy)
                stream = await TLSStream.wrap(stream, hostname=host, ssl_context=context, standard_compatible=False)
        except BaseException:
            await _closed(stream)
            raise
        return _Far(stream)


def ascii_host(url: SplitResult) -> str:
    """The name as it goes on the wire. NotReached when there is no such spelling."""
    host = url.hostname or ""
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        raise NotReached(f"{host!r} is not a host name") from None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def _tunnel(stream: ByteStream, target: str, proxy: Proxy) -> None:
    """https://www.rfc-editor.org/rfc/rfc9110#name-connect"""
    http = h11.Connection(h11.CLIENT)
    headers = [("Host", target)] + ([("Proxy-Authorization", proxy.authorization)] if proxy.authorization else [])
    await stream.send(http.send(h11.Request(method="CONNECT", target=target, headers=headers)) or b"")
    while (event := http.next_event()) is h11.NEED_DATA or isinstance(event, h11.InformationalResponse):
        if event is h11.NEED_DATA:
            http.receive_data(await stream.receive())
    if not isinstance(event, h11.Response) or event.status_code // 100 != 2:
        status = event.status_code if isinstance(event, h11.Response) else "nothing"
        raise NotReached(f"the proxy {proxy.host}:{proxy.port} answered {status}")


@contextmanager
def _mapped(kind: type[HttpError], before: str = "") -> Iterator[None]:
    try:
        yield
    except (OSError, ssl.CertificateError, anyio.BrokenResourceError, anyio.ClosedResourceError,
            anyio.EndOfStream, h11.ProtocolError) as error:  # fmt: skip
        raise kind(before + _words(error)) from error


def _words(error: BaseException) -> str:
    """anyio puts the cause of a failed connection behind words of its own."""
    cause = error.__cause__ if isinstance(error, OSError) and error.errno is None and error.__cause__ else error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError | socket.gaierror) and cause.errno:
        return os.strerror(cause.errno)  # asyncio has words of its own in its place
    said = cause.strerror if isinstance(cause, socket.gaierror) else ""
    return said or str(cause) or "it was closed"


async def _near(host: str, port: int) -> "_Near":
    """Each address in turn: one of this machine answers or refuses at once."""
    failed: OSError = OSError(f"{host} has no address")
    for family, kind, number, _, address in await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, number)
        try:
            made.setblocking(False)
            with suppress(BlockingIOError):
                made.connect(address)
            await anyio.wait_writable(made)
            if code := made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, os.strerror(code))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _Near(made)
        except OSError as error:
            failed = error
            made.close()
        except BaseException:
            made.close()
            raise
    raise failed


class _Near:
    """A plain socket: a question and its answer cost one wait. anyio's streams go round the event loop at each call."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    async def send(self, data: bytes) -> None:
        with _mapped(Lost):
            left = memoryview(data)
            while left:
                try:
                    left = left[self._socket.send(left) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._socket)

    async def receive(self) -> bytes:
        with _mapped(Lost):
            while True:
                await anyio.wait_readable(self._socket)
                with suppress(BlockingIOError):
                    return self._socket.recv(_RECEIVE_BYTES)

    def is_stale(self) -> bool:
        return _readable(self._socket)

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()


class _Far:
    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    async def send(self, data: bytes) -> None:
        with _mapped(Lost):
            await self._stream.send(data)

    async def receive(self) -> bytes:
        try:
            with _mapped(Lost):
                return await self._stream.receive(_RECEIVE_BYTES)
        except Lost as error:
            if isinstance(error.__cause__, anyio.EndOfStream):
                return b""
            raise

    def is_stale(self) -> bool:
        return _readable(self._stream.extra(SocketAttribute.raw_socket))

    async def aclose(self) -> None:
        await _closed(self._stream)


async def _closed(stream: ByteStream) -> None:
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await anyio.aclose_forcefully(stream)


def _readable(connected: socket.socket) -> bool:
    if connected.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    return bool(poll.poll(0))
