"""Streams in TLS: towards a server, and with a client whose first bytes were read already."""

import ssl

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream


class Begun(ByteStream):
    """A stream of which `data` was read already."""

    def __init__(self, stream: ByteStream, data: bytes) -> None:
        self._stream, self._data = stream, data

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._data:
            data, self._data = self._data[:max_bytes], self._data[max_bytes:]
            return data
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


class Tls(ByteStream):
    """A TLS stream whose end can be said, for both ways at once."""

    def __init__(self, stream: TLSStream) -> None:
        self._stream = stream

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.unwrap()

    async def aclose(self) -> None:
        await anyio.aclose_forcefully(self._stream)


async def serve_tls(stream: ByteStream, begun: bytes, context: ssl.SSLContext) -> Tls:
    """As the server. ssl.SSLError, or what ends a connection, when the client does not agree."""
    return Tls(await TLSStream.wrap(Begun(stream, begun), server_side=True, ssl_context=context))


def client_context() -> ssl.SSLContext:
    """Of a client that checks a server's certificate as this machine does, for HTTP/1.1."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


async def connect_tls(stream: ByteStream, host: str, context: ssl.SSLContext) -> Tls:
    """As the client. ssl.SSLError when the certificate does not hold."""
    return Tls(await TLSStream.wrap(stream, hostname=host, ssl_context=context))
