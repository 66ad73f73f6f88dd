"""A proxy on loopback, and servers of every kind behind names that only it can resolve."""

import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import anyio
from anyio.abc import ByteStream, SocketStream, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from stockade_sandbox.egress.credentials import Credentials
from stockade_sandbox.egress.inside import Accept
from stockade_sandbox.egress.proxy import Bounds, Egress
from stockade_sandbox.egress.relay import Cut
from stockade_sandbox.egress.resolve import Resolver
from stockade_sandbox.egress.rules import Rule, Rules
from stockade_sandbox.egress.tls_streams import Tls, serve_tls
from stockade_sandbox.egress.upstream import DIRECTLY, Upstream
from stockade_sandbox.results import NetworkRequest

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-From: origin\r\n\r\nok\n"
BOUNDS = Bounds()
Handler = Callable[[SocketStream], Awaitable[None]]


async def loopback(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


@dataclass
class Net:
    """`port` is the proxy's; `events` what it reported; `got` what the origins received."""

    group: TaskGroup
    port: int = 0
    begin: Callable[..., None] = lambda: None
    events: list[NetworkRequest] = field(default_factory=list)
    got: list[bytes] = field(default_factory=list)

    async def origin(self, handler: Handler) -> int:
        """The port of a server whose connections are given to `handler`."""
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

        async def serve(stream: SocketStream) -> None:
            async with stream:
                with suppress(anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
                    await handler(stream)

        async def listen() -> None:
            async with listener:
                await listener.serve(serve)

        self.group.start_soon(listen)
        return int(listener.extra(anyio.abc.SocketAttribute.local_port))

    async def canned(self, answer: bytes = OK) -> int:
        """A server that gives `answer` as soon as it has a head, then keeps everything until the end."""

        async def handler(stream: SocketStream) -> None:
            place = len(self.got)
            self.got.append(b"")
            answered = False
            while True:
                self.got[place] += await stream.receive()
                if b"\r\n\r\n" in self.got[place] and not answered:
                    answered = True
                    await stream.send(answer)

        return await self.origin(handler)

    async def tls_origin(self, context: ssl.SSLContext, answer: "Answer") -> int:
        """The port of a server that has a request's head and body in `got`, and then gives `answer`."""

        async def handler(stream: SocketStream) -> None:
            with suppress(*Cut):
                async with await serve_tls(stream, b"", context) as tls:
                    place = len(self.got)
                    self.got.append(b"")
                    while b"\r\n\r\n" not in self.got[place]:
                        self.got[place] += await tls.receive()
                    length = re.search(rb"(?i)content-length: (\d+)", self.got[place])
                    while length and len(self.got[place].partition(b"\r\n\r\n")[2]) < int(length[1]):
                        self.got[place] += await tls.receive()
                    await answer(self.got[place], tls)
                    await tls.send_eof()

        return await self.origin(handler)

    async def connect(self) -> SocketStream:
        return await anyio.connect_tcp("127.0.0.1", self.port)

    async def talk(self, *pieces: bytes) -> bytes:
        """All that comes back when `pieces` are sent and nothing follows."""
        async with await self.connect() as stream:
            for piece in pieces:
                with suppress(anyio.BrokenResourceError):
                    await stream.send(piece)
            with suppress(OSError, anyio.BrokenResourceError):
                await stream.send_eof()
            return await everything(stream)


Answer = Callable[[bytes, Tls], Awaitable[None]]


async def echo(request: bytes, tls: Tls) -> None:
    """As an endpoint that gives back what it got, keys and all."""
    key = (re.findall(rb"(?i)(?:authorization|x-api-key): ([^\r\n]*)", request) or [b"none"])[0]
    await tls.send(b"HTTP/1.1 200 OK\r\nX-Echo: %b\r\nContent-Length: %d\r\n\r\n%b" % (key, len(request), request))


async def everything(stream: SocketStream) -> bytes:
    data = b""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            data += await stream.receive()
    return data


async def head_of(stream: SocketStream) -> bytes:
    return await BufferedByteReceiveStream(stream).receive_until(b"\r\n\r\n", 65536)


def accepting(listener: socket.socket) -> Accept:
    """What a sandbox's connections are to a proxy, for clients that are not in one."""
    listener.setblocking(False)

    async def accept() -> ByteStream:
        while True:
            await anyio.wait_readable(listener)
            with suppress(BlockingIOError, ConnectionAbortedError):
                accepted = listener.accept()[0]
                try:
                    return await SocketStream.from_socket(accepted)
                except (OSError, ValueError):  # reset by now
                    accepted.close()

    return accept


@asynccontextmanager
async def net(bounds: Bounds = BOUNDS, resolver: Resolver = loopback) -> AsyncIterator[Net]:
    """good.test is on the list, with port 80 and every high one, and on 127.0.0.1."""
    async with waiting_net(bounds, resolver) as found:
        found.begin()
        yield found


@asynccontextmanager
async def waiting_net(
    bounds: Bounds = BOUNDS, resolver: Resolver = loopback, patience_s: float = 20
) -> AsyncIterator[Net]:
    """`net` with a proxy that serves nobody before `begin`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as group:
            found = Net(group, listener.getsockname()[1])
            rules = Rules((Rule("good.test", below=False, ports=frozenset({80, 443, *range(1024, 65536)})),))
            private = "127.0.0.1"
            egress = Egress(rules, found.events.append, bounds, resolver, lambda _, address: str(address) == private)

            def begin(credentials: Credentials | None = None, upstream: Upstream = DIRECTLY) -> None:
                serving = replace(egress, credentials=credentials, upstream=upstream)
                group.start_soon(serving.serve, accepting(listener))

            found.begin = begin
            with anyio.fail_after(patience_s):
                yield found
            group.cancel_scope.cancel()
