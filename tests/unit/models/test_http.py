"""The HTTP client on real sockets: a server that says the very bytes it is told to, a proxy, TLS."""

import gzip
import os
import ssl
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.tls import TLSListener

from stockade.core.errors import ModelOverloaded, ModelUnavailable
from stockade.models.http import Client, proxy_of, tls_context
from tests.support.site import certificates

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


@dataclass
class Server:
    """One reply a question, in turn. After a reply that is followed by None the connection is closed."""

    replies: list[bytes | None]
    port: int = 0
    asked: list[bytes] = field(default_factory=list)
    connections: int = 0
    closed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, stream: SocketStream) -> None:
        self.connections += 1
        async with stream:
            with suppress(*_GONE):
                while self.replies and (reply := await self._next(stream)) is not None:
                    await stream.send(reply)
                    if self.replies[:1] == [None]:
                        self.replies.pop(0)
                        break
                else:
                    await stream.receive()
        self.closed.set()

    async def _next(self, stream: SocketStream) -> bytes | None:
        question = b""
        while b"\r\n\r\n" not in question or len(question.partition(b"\r\n\r\n")[2]) < _length(question):
            question += await stream.receive()
        self.asked.append(question)
        return self.replies.pop(0)


def _length(question: bytes) -> int:
    lines = question.lower().split(b"\r\n")
    return next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)


@asynccontextmanager
async def says(*replies: bytes | None, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(list(replies))
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server.port = listener.extra(SocketAttribute.local_port)
    served = TLSListener(listener, tls, standard_compatible=False) if tls else listener
    async with anyio.create_task_group() as group:
        group.start_soon(served.serve, server.serve)  # type: ignore[arg-type]
        yield server
        group.cancel_scope.cancel()
    await listener.aclose()


@asynccontextmanager
async def tunnel(to: int, status: bytes = b"200 Connected") -> AsyncIterator[tuple[str, list[bytes]]]:
    """A proxy that leads every CONNECT to this port of loopback; its address, and what it was asked."""
    heads: list[bytes] = []

    async def serve(stream: SocketStream) -> None:
        async with stream:
            heads.append(await stream.receive())
            await stream.send(b"HTTP/1.1 " + status + b"\r\n\r\n")
            async with await anyio.connect_tcp("127.0.0.1", to) as other, anyio.create_task_group() as group:
                group.start_soon(_copy, stream, other)
                await _copy(other, stream)
                group.cancel_scope.cancel()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield f"http://user:pass%20word@127.0.0.1:{listener.extra(SocketAttribute.local_port)}", heads
        group.cancel_scope.cancel()
    await listener.aclose()


async def _copy(one: SocketStream, other: SocketStream) -> None:
    try:
        while True:
            await other.send(await one.receive())
    except _GONE:
        return


async def ask(client: Client, url: str, body: bytes | None = b"{}") -> tuple[int, bytes]:
    async with client.asked("POST" if body is not None else "GET", url, body) as response:
        return response.status, await response.whole(1 << 20)


async def test_one_connection_and_one_packet_a_question() -> None:
    async with says(OK, OK, OK) as server, Client(server.url, {"X-Key": "k"}) as client:
        for _ in range(3):
            assert await ask(client, f"{server.url}/v1/x?a=b") == (200, b"ok")
        assert server.connections == 1
        head, _, body = server.asked[0].partition(b"\r\n\r\n")
        assert body == b"{}"
        assert head.split(b"\r\n")[0] == b"POST /v1/x?a=b HTTP/1.1"
        lines = {line.lower() for line in head.split(b"\r\n")[1:]}
        host = f"host: 127.0.0.1:{server.port}".encode()
        assert {host, b"x-key: k", b"content-length: 2", b"accept-encoding: identity"} == lines


async def test_questions_at_the_same_time_have_a_connection_each() -> None:
    async with says(OK, OK) as server, Client(server.url, {}) as client:
        async with client.asked("GET", server.url) as one, client.asked("GET", server.url) as other:
            assert (await one.whole(9), await other.whole(9)) == (b"ok", b"ok")
        assert server.connections == 2


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\nTrailer: t\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK,
        b"HTTP/1.0 200 OK\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"ok"),
    ],
    ids=["chunked", "informed", "1.0", "close", "gzip"],
)
async def test_ways_to_send_an_answer(reply: bytes) -> None:
    async with says(reply, None, OK) as server, Client(server.url, {}) as client:
        assert await ask(client, server.url) == (200, b"ok")
        assert await ask(client, server.url) == (200, b"ok")


async def test_a_connection_that_the_server_closed_meanwhile_is_made_anew() -> None:
    async with says(OK, None, OK) as server, Client(server.url, {}) as client:
        assert await ask(client, server.url) == (200, b"ok")
        await server.closed.wait()
        assert await ask(client, server.url) == (200, b"ok")
        assert server.connections == 2


async def test_a_connection_that_was_silent_for_long_is_not_trusted() -> None:
    async with says(OK, OK) as server, Client(server.url, {}, keep_s=0.0) as client:
        for _ in range(2):
            assert await ask(client, server.url) == (200, b"ok")
        assert server.connections == 2


async def test_an_answer_that_is_not_read_to_its_end_costs_the_connection() -> None:
    async with says(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nok") as server, Client(server.url, {}) as client:
        async with client.asked("GET", server.url) as response:
            assert await response.whole(1) == b"ok"
        with anyio.fail_after(5):
            await server.closed.wait()


async def test_an_answer_that_comes_before_the_question_was_heard() -> None:
    async def refuse(stream: SocketStream) -> None:
        async with stream:
            await stream.receive(100)
            await stream.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmuch")
            with suppress(*_GONE):  # a server that closed at once would take its answer back
                while True:
                    await stream.receive()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, refuse)
        async with Client(url, {}) as client:
            for _ in range(2):
                assert await ask(client, url, b"x" * (64 << 20)) == (413, b"much")
        group.cancel_scope.cancel()


async def test_a_redirect_is_an_answer_and_not_followed() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    async with says(moved) as server, Client(server.url, {"Authorization": "Bearer k"}) as client:
        assert await ask(client, server.url) == (302, b"")


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnot packed",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * (1 << 19),
    ],
    ids=["nothing", "half a head", "half a body", "no length", "no chunk", "no gzip", "another protocol", "huge head"],
)
async def test_answers_that_are_none(reply: bytes) -> None:
    async with says(reply, None) as server, Client(server.url, {}) as client:
        with pytest.raises(ModelOverloaded):
            await ask(client, server.url)


async def test_silence_ends() -> None:
    async with says(b"HTTP/1.1 ") as server, Client(server.url, {}, answer_s=0.05) as client:
        with pytest.raises(ModelOverloaded, match=r"nothing was said for 0.05 s"):
            await ask(client, server.url)


async def test_what_cannot_be_sent_is_told_without_the_key() -> None:
    async with says(OK) as server, Client(server.url, {"Authorization": "Bearer sesame\nX: y"}) as client:
        with pytest.raises(ModelUnavailable, match="cannot be sent") as caught:
            await ask(client, server.url)
        assert server.asked == []
    assert "sesame" not in "".join(traceback.format_exception(caught.value))


async def test_a_name_and_password_in_the_address_are_the_key() -> None:
    async with says(OK) as server:
        async with Client(f"http://me:p%40ss@127.0.0.1:{server.port}", {"Authorization": "Bearer x"}) as client:
            await ask(client, server.url)
        assert b"\r\nAuthorization: Basic bWU6cEBzcw==\r\n" in server.asked[0]
        assert b"Bearer" not in server.asked[0]


@pytest.mark.parametrize(
    ("path", "target"),
    [("", b"/"), ("/v1/models/a b\u00e9?x=%20y", b"/v1/models/a%20b%C3%A9?x=%20y")],
)
async def test_targets(path: str, target: bytes) -> None:
    async with says(OK) as server, Client(server.url, {}) as client:
        await ask(client, server.url + path)
        assert server.asked[0].split(b" ")[1] == target


async def test_an_address_with_more_than_one_line_is_not_asked() -> None:
    async with says(OK) as server, Client(server.url, {}) as client:
        with pytest.raises(ModelUnavailable, match="cannot be asked"):
            await ask(client, f"{server.url}/a\r\nHost: evil")
        assert server.connections == 0


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://api.test/v1", {}, None),
        ("https://api.test/v1", {"HTTPS_PROXY": "http://p:3128"}, ("http://p:3128", None)),
        ("https://api.test/v1", {"https_proxy": "p:3128", "HTTPS_PROXY": "http://q"}, ("http://p:3128", None)),
        ("https://api.test/v1", {"http_proxy": "http://p:3128"}, None),
        ("http://api.test/v1", {"all_proxy": "http://u:w@p"}, ("http://p", ("u", "w"))),
        ("http://api.test/v1", {"all_proxy": "http://p", "no_proxy": "x, test"}, None),
        ("http://api.test/v1", {"all_proxy": "http://p", "NO_PROXY": "*"}, None),
        ("http://api.test/v1", {"all_proxy": "http://p", "no_proxy": ".api.test,*.b"}, None),
        ("http://api.test/v1", {"all_proxy": "http://p", "no_proxy": "i.test,pi.test"}, ("http://p", None)),
    ],
)
def test_proxies_of_the_environment(
    url: str, environ: dict[str, str], proxy: tuple[str, object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found = proxy_of(url)
    assert (found and (str(found.url), found.auth)) == proxy


def test_a_proxy_that_is_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@p:1")
    with pytest.raises(ValueError, match=r"the proxy socks5://p:1 is none of HTTP"):
        proxy_of("https://x")


async def test_plain_http_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with says(OK) as server:
        monkeypatch.setenv("http_proxy", f"http://u:w@127.0.0.1:{server.port}")
        async with Client("http://model.test:8000/v1", {}) as client:
            assert await ask(client, "http://model.test:8000/v1/x") == (200, b"ok")
        assert server.asked[0].startswith(b"POST http://model.test:8000/v1/x HTTP/1.1\r\nHost: model.test:8000\r\n")
        assert b"\r\nProxy-Authorization: Basic dTp3\r\n" in server.asked[0]


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's certificate for good.test, which clients trust."""
    certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "site.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    tls_context.cache_clear()
    return context


async def test_tls_through_a_proxy(trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    async with says(OK, OK, tls=trusted) as server, tunnel(server.port) as (proxy, heads):
        monkeypatch.setenv("https_proxy", proxy)
        async with Client("https://good.test/v1", {"Authorization": "Bearer k"}) as client:
            for _ in range(2):
                assert await ask(client, "https://good.test/v1/x") == (200, b"ok")
        (head,) = heads
        assert head.startswith(b"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n")
        assert b"\r\nProxy-Authorization: Basic dXNlcjpwYXNzIHdvcmQ=\r\n" in head
        assert b"Bearer" not in head
        assert server.asked[0].startswith(b"POST /v1/x HTTP/1.1\r\nHost: good.test\r\n")
        assert server.connections == 1


async def test_a_certificate_of_another_name(trusted: ssl.SSLContext) -> None:
    async with says(OK, tls=trusted) as server, Client(f"https://127.0.0.1:{server.port}", {}) as client:
        with pytest.raises(ModelUnavailable, match="certificate"):
            await ask(client, f"https://127.0.0.1:{server.port}")


async def test_a_proxy_that_refuses(trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    async with says() as server, tunnel(server.port, b"407 Authenticate") as (proxy, _):
        monkeypatch.setenv("https_proxy", proxy)
        async with Client("https://good.test/v1", {}) as client:
            with pytest.raises(ModelUnavailable, match=r"the proxy 127.0.0.1:\d+ answered 407"):
                await ask(client, "https://good.test/v1/x")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://127.0.0.1:1"])
async def test_nobody_is_there(url: str) -> None:
    tls_context.cache_clear()
    async with Client(url, {}) as client:
        with pytest.raises(ModelUnavailable, match=r"^no model server at [^ ]+: Connection refused \(start"):
            await ask(client, url)


async def test_no_proxy_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with Client("http://model.test", {}) as client:
        with pytest.raises(
            ModelUnavailable, match=r"^no model server at model.test: the proxy 127.0.0.1:1: Connection refused \(start"
        ):
            await ask(client, "http://model.test")


@pytest.mark.parametrize("url", ["http://no-such-host.invalid", "http://x..y.test", "http://\u00e9..test"])
async def test_no_such_name(url: str) -> None:
    with pytest.raises(ModelUnavailable):
        async with Client(url, {}) as client:
            await ask(client, url)
