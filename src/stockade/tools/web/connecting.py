"""Connections for the HTTP client: through the egress proxy, in this process, or to one address that a person named.

The proxy is the one that sandboxes have (sandboxes.egress): names, addresses, ports and TLS names are judged there,
each request anew, and reported. It is reached over a pair of sockets that nobody else has, not over a port.
"""

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import anyio
import httpcore2
from anyio.abc import ByteStream, SocketStream
from anyio.streams.tls import TLSStream

_PROXY = "http://stockade.invalid:3128"
"""Nobody looks it up: the backend connects to the proxy whatever its name."""


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


class _Stream(httpcore2.AsyncNetworkStream):
    """An anyio stream as the client wants it. anyio's errors come out as they are."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if buffer:
            await self._stream.send(buffer)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        wrapped = await TLSStream.wrap(
            self._stream, ssl_context=ssl_context, hostname=server_hostname, standard_compatible=False
        )
        return _Stream(wrapped)


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
        return _Stream(ours)

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
