"""The user's own proxy as the next hop: what it is asked, what it never hears of, and who learns its password."""

import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from anyio.abc import SocketStream

from stockade_sandbox.egress.authority import Authority
from stockade_sandbox.egress.credentials import Credentials
from stockade_sandbox.egress.proxy import Egress
from stockade_sandbox.egress.rules import Target
from stockade_sandbox.egress.tls_streams import connect_tls
from stockade_sandbox.egress.upstream import Upstream
from stockade_sandbox.errors import UsageError
from stockade_sandbox.policy import Network, Policy, parse_credential
from tests.support import upstream as support
from tests.support.socks import socks
from tests.unit.sandboxes.test_egress.support import Net, accepting, echo, loopback, waiting_net
from tests.unit.sandboxes.test_egress.test_proxy import connect, get

pytestmark = pytest.mark.anyio
OUTSIDE = Authority(["good.test"])


async def nowhere(host: str, port: int) -> list[str]:
    raise OSError("nobody is asked here")


@asynccontextmanager
async def world(ports: Mapping[str, int] | None = None) -> AsyncIterator[tuple[Net, support.Upstream]]:
    """`through` makes the proxy serve. `ports`: what the upstream one knows."""
    async with waiting_net(resolver=nowhere) as net:
        with support.upstream(ports if ports is not None else {}) as found:
            yield net, found


def through(net: Net, url: str, credentials: Credentials | None = None, **more: str) -> None:
    net.begin(credentials, Upstream.of({"HTTPS_PROXY": url, "http_proxy": url, **more}))


async def test_plain_http_goes_there_as_it_is_with_the_password() -> None:
    ports = dict[str, int]()
    async with world(ports) as (net, found):
        port = await net.canned()
        ports[f"good.test:{port}"] = port
        through(net, found.url)
        assert (await net.talk(get(port))).endswith(b"ok\n")
        assert found.asked == [f"GET http://good.test:{port}/x HTTP/1.1"]
        assert b"roxy" not in net.got[0]
        assert [(event.host, event.verdict, event.status) for event in net.events] == [("good.test", "allowed", 200)]


async def test_tls_goes_through_a_tunnel_of_its_to_the_name_and_end_to_end() -> None:
    ports = dict[str, int]()
    async with world(ports) as (net, found):
        port = await net.tls_origin(OUTSIDE.context("good.test"), echo)
        ports[f"good.test:{port}"] = port
        through(net, found.url)
        async with await net.connect() as stream:
            await stream.send(connect(port))
            assert b" 200 " in await stream.receive()
            context = ssl.create_default_context(cadata=OUTSIDE.certificate.decode())
            async with await connect_tls(stream, "good.test", context) as tls:
                await tls.send(b"GET / HTTP/1.1\r\n\r\n")
                assert b"200 OK" in await tls.receive()
        assert found.asked == [f"CONNECT good.test:{port} HTTP/1.1"]


async def test_a_credential_goes_through_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "roots.pem").write_bytes(OUTSIDE.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "roots.pem"))
    monkeypatch.setenv("KEY", "sk-0123456789")
    ports = dict[str, int]()
    async with world(ports) as (net, found):
        port = await net.tls_origin(OUTSIDE.context("good.test"), echo)
        ports[f"good.test:{port}"] = port
        credentials = Credentials([parse_credential(f"KEY@good.test:{port}:x-api-key")])
        through(net, found.url, credentials)
        base = f"GET /credential/good.test:{port}/v1 HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n".encode()
        assert b"200 OK" in await net.talk(base)
        assert b"\r\nx-api-key: sk-0123456789\r\n" in net.got[0]
        assert support.AUTHORIZATION.encode() not in net.got[0]
        assert found.asked == [f"CONNECT good.test:{port} HTTP/1.1"]


async def test_what_a_server_says_first_is_not_lost() -> None:
    async def speaks(stream: SocketStream) -> None:
        await stream.send(b"SSH-2.0-x\r\n")
        await stream.receive()

    async with world() as (net, _):
        port = await net.origin(speaks)
        with support.upstream({"good.test:22": port}) as found:
            proxy = Upstream.of({"https_proxy": found.url}).proxy(Target("good.test", 22))
            assert proxy is not None
            async with await proxy.tunnel(Target("good.test", 22), 10) as stream:
                assert await stream.receive() == b"SSH-2.0-x\r\n"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:PORT", "wants a user and a password (407)"),
        ("http://me:wrongpassword@127.0.0.1:PORT", "wants another user and password than its URL has (407)"),
        ("http://me:wrongpassword@127.0.0.1:1", "cannot be reached: Connection refused"),
        (f"http://{support.IN_URL}@127.0.0.1:PORT", "refused good.test:4433: 403 no ******"),
    ],
)
async def test_one_that_refuses_or_is_down_is_told_with_its_name_and_without_its_password(url: str, why: str) -> None:
    async with world() as (net, found):
        through(net, url.replace("PORT", str(found.port)))
        answer = await net.talk(connect(4433))
        assert answer.startswith(b"HTTP/1.1 502 stockade: the upstream proxy 127.0.0.1:")
        (event,) = net.events
        assert why in event.reason
        assert (event.verdict, event.status) == ("allowed", 502)
        told = answer.decode() + event.reason
        for secret in ("wrongpassword", support.PASSWORD, support.IN_URL, support.AUTHORIZATION):
            assert secret not in told


async def test_a_wrong_password_for_plain_http_is_told_as_well() -> None:
    async with world() as (net, found):
        through(net, f"http://127.0.0.1:{found.port}")
        assert b" 502 stockade: the upstream proxy" in await net.talk(get(8000))


async def test_it_cannot_be_made_to_give_the_password_back() -> None:
    async with world() as (net, found):
        through(net, found.url)
        answer = await net.talk(get(8000, "Max-Forwards: 0", method="TRACE"))
        assert b"\r\n\r\nHost: good.test:8000" in answer
        assert b"Proxy-Authorization: " + b"*" * len(support.AUTHORIZATION) in answer


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("evil.test", "is not on the --net allow list"),
        ("10.1.2.3", "is an address that --net does not name"),
        ("127.0.0.1", "is an address that --net does not name"),
    ],
)
async def test_what_is_not_on_the_list_it_never_hears_of(host: str, why: str) -> None:
    async with world() as (net, found):
        through(net, found.url)
        assert why.encode() in await net.talk(connect(443, host))
        assert why.encode() in await net.talk(get(80, host=host))
        assert found.asked == []


@pytest.mark.parametrize("host", ["intranet", "db.internal", "x.localhost", "localhost", "127.0.0.1", "8.8.8.8"])
async def test_open_gives_it_public_names_only(host: str) -> None:
    async with world() as (net, found):
        rules = Egress.of(Policy(network=Network(mode="open")), net.events.append).rules
        upstream = Upstream.of({"HTTPS_PROXY": found.url, "HTTP_PROXY": found.url})
        egress = Egress(rules, net.events.append, resolver=loopback, upstream=upstream)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            net.group.start_soon(egress.serve, accepting(listener))
            net.port = listener.getsockname()[1]
            assert b"HTTP/1.1 403" in await net.talk(connect(443, host))
            assert [event.verdict for event in net.events] == ["refused"]
            assert found.asked == []
            await net.talk(connect(443, "public.example"))
            assert found.asked == ["CONNECT public.example:443 HTTP/1.1"]


@pytest.mark.parametrize(
    ("words", "target", "direct"),
    [
        ("", Target("a.org", 443), False),
        ("*", Target("a.org", 443), True),
        ("b.org, a.org", Target("a.org", 443), True),
        ("a.org", Target("x.a.org", 443), True),
        ("a.org", Target("xa.org", 443), False),
        (".a.org", Target("x.a.org", 443), True),
        ("*.A.org", Target("x.a.org", 443), True),
        ("a.org:8443", Target("a.org", 443), False),
        ("a.org:8443", Target("a.org", 8443), True),
        ("a.org:x", Target("a.org", 443), False),
        ("10.0.0.0/8", Target("10.1.2.3", 443), True),
        ("10.0.0.0/8", Target("11.1.2.3", 443), False),
        ("10.0.0.0/8", Target("a.org", 443), False),
        ("10.1.2.3:80", Target("10.1.2.3", 443), False),
        ("fd00::/8", Target("fd00::1", 443), True),
        ("[fd00::1]:443", Target("fd00::1", 443), True),
        ("", Target("localhost", 443), True),
        ("::,/,a:b:c,%,\x00", Target("a.org", 443), False),
    ],
)
def test_no_proxy(words: str, target: Target, direct: bool) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        upstream = Upstream.of({"HTTPS_PROXY": "http://p", "HTTP_PROXY": "http://q:1", name: words})
        assert (upstream.proxy(target) is None) is direct
        assert (upstream.proxy(target, plain=True) is None) is direct


def test_each_variable_is_for_its_own_and_lower_case_comes_first() -> None:
    upstream = Upstream.of({"HTTPS_PROXY": "http://upper", "https_proxy": "lower:8080"})
    assert upstream.http is None
    assert str(upstream.https) == "the upstream proxy lower:8080 (https_proxy)"


@pytest.mark.parametrize(
    "url",
    ["socks4://me:hunter22@h:1", f"socks5://me:hunter22{'x' * 250}@h:1", "https://me:hunter22@h:1",
     "http://me:hunter22@", "http://me:hunter22@h:99999",
     "http://me:hunter22@[x", "me:hunter22://h"],
)  # fmt: skip
def test_what_is_no_proxy_is_said_without_its_password(url: str) -> None:
    with pytest.raises(UsageError, match=r"^HTTPS_PROXY is not the http:// or socks5:// address of a proxy") as caught:
        Upstream.of({"HTTPS_PROXY": url})
    assert "hunter22" not in str(caught.value) + str(caught.value.hint)


def test_the_password_is_in_no_representation() -> None:
    assert support.AUTHORIZATION not in repr(Upstream.of({"https_proxy": f"http://{support.IN_URL}@h"}))
    assert "word" not in repr(Upstream.of({"https_proxy": f"socks5://{support.IN_URL}@h"}))


def test_all_proxy_is_for_what_has_none_of_its_own() -> None:
    upstream = Upstream.of({"ALL_PROXY": "socks5h://s", "HTTPS_PROXY": "http://p:8080"})
    assert str(upstream.https) == "the upstream proxy p:8080 (HTTPS_PROXY)"
    assert str(upstream.http) == "the upstream proxy s:1080 (ALL_PROXY)"
    assert str(Upstream.of({"ALL_PROXY": "http://q", "all_proxy": "r"}).https) == "the upstream proxy r:80 (all_proxy)"
    with pytest.raises(UsageError, match=r"^ALL_PROXY is not the") as caught:
        Upstream.of({"ALL_PROXY": "https://h"})
    assert "spoken to by TLS" in str(caught.value.hint)


ACCOUNT = (support.USER, support.PASSWORD)


@pytest.mark.parametrize("account", [None, ACCOUNT], ids=["open", "with a password"])
async def test_socks_is_given_names_for_tls_and_for_plain_http(account: tuple[str, str] | None) -> None:
    ports = dict[str, int]()
    async with waiting_net(resolver=nowhere) as net:
        with socks(ports, account) as (port, asked):
            plain, tls = await net.canned(), await net.tls_origin(OUTSIDE.context("good.test"), echo)
            ports |= {f"good.test:{one}": one for one in (plain, tls)}
            url = f"socks5://{support.IN_URL + '@' if account else ''}127.0.0.1:{port}"
            net.begin(None, Upstream.of({"all_proxy": url}))
            assert (await net.talk(get(plain))).endswith(b"ok\n")
            assert net.got[0].startswith(b"GET /x HTTP/1.1\r\n")
            async with await net.connect() as stream:
                await stream.send(connect(tls))
                assert b" 200 " in await stream.receive()
                context = ssl.create_default_context(cadata=OUTSIDE.certificate.decode())
                async with await connect_tls(stream, "good.test", context) as inner:
                    await inner.send(b"GET / HTTP/1.1\r\n\r\n")
                    assert b"200 OK" in await inner.receive()
            assert b"not on the --net" in await net.talk(connect(443, "evil.test"))
            assert asked == [f"good.test:{plain}", f"good.test:{tls}"]


@pytest.mark.parametrize(
    ("user", "account", "why"),
    [
        ("", ACCOUNT, "wants a user and a password, or speaks no SOCKS 5"),
        ("me:wrongpassword@", ACCOUNT, "wants another user and password than its URL has"),
        ("", None, "refused good.test:4433: not allowed by its rules"),
    ],
)
async def test_a_socks_proxy_that_refuses_is_told(user: str, account: tuple[str, str] | None, why: str) -> None:
    async with waiting_net(resolver=nowhere) as net:
        with socks({}, account) as (port, _):
            net.begin(None, Upstream.of({"https_proxy": f"socks5h://{user}127.0.0.1:{port}"}))
            answer = await net.talk(connect(4433))
            assert answer.startswith(f"HTTP/1.1 502 stockade: the upstream proxy 127.0.0.1:{port}".encode())
            assert why in net.events[0].reason
            assert "wrongpassword" not in answer.decode() + net.events[0].reason


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\5", b"\5\0\5\0\0\7", b"\5\0\5\0\0\3\4ab"]
)
async def test_what_speaks_no_socks_is_told(said: bytes) -> None:
    async def speaks(stream: SocketStream) -> None:
        await stream.receive()
        await stream.send(said)

    async with waiting_net(resolver=nowhere) as net:
        port = await net.origin(speaks)
        net.begin(None, Upstream.of({"https_proxy": f"socks5://127.0.0.1:{port}"}))
        assert (await net.talk(connect(4433))).startswith(b"HTTP/1.1 502 stockade: the upstream proxy 127.0.0.1")
