"""A proxy on loopback, and servers of every kind behind names that only it can resolve."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
from anyio.abc import ByteStream, SocketStream, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from stockade_sandbox.egress.inside import Accept
from stockade_sandbox.egress.proxy import Bounds, Egress
from stockade_sandbox.egress.resolve import Resolver
from stockade_sandbox.egress.rules import Rule, Rules
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
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as group:
            found = Net(group, listener.getsockname()[1])
            rules = Rules((Rule("good.test", below=False, ports=frozenset({80, 443, *range(1024, 65536)})),))
            private = "127.0.0.1"
            egress = Egress(rules, found.events.append, bounds, resolver, lambda _, address: str(address) == private)
            group.start_soon(egress.serve, accepting(listener))
            with anyio.fail_after(20):
                yield found
            group.cancel_scope.cancel()
