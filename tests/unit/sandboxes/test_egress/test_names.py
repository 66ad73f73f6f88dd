"""Names inside, and programs that connect to what stands for them, without a word to a proxy."""

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.stapled import StapledByteStream
from hypothesis import given
from hypothesis import strategies as st

from stockade_sandbox.egress.names import Names, Speech, speech
from stockade_sandbox.egress.proxy import Egress
from stockade_sandbox.egress.rules import Rule, Rules, Target
from stockade_sandbox.egress.tls import UNRECOGNIZED_NAME
from stockade_sandbox.policy import Network
from tests.unit.sandboxes.test_egress.support import Net, accepting, everything, loopback
from tests.unit.sandboxes.test_egress.test_tls import real_hello

A, AAAA, TXT, HTTPS = 1, 28, 16, 65


def names(*hosts: str) -> tuple[Names, list[tuple[str, str]]]:
    heard: list[tuple[str, str]] = []
    network = Network(mode="allow", hosts=hosts) if hosts else Network(mode="open")
    return Names(Rules.of(network), lambda name, refused: heard.append((name, refused.reason))), heard


def question(name: str, kind: int = A, flags: int = 0x0100, count: int = 1) -> bytes:
    labels = b"".join(bytes([len(one)]) + one.encode("latin-1") for one in name.split("."))
    return struct.pack(">6H", 7, flags, count, 0, 0, 0) + labels + struct.pack(">BHH", 0, kind, 1)


def answered(found: Names, message: bytes) -> tuple[int, int, bytes]:
    """Code, number of answers, and the last four bytes."""
    said = found.answer(message, set())
    number, flags, _, count, *_ = struct.unpack_from(">6H", said)
    assert (number, flags & 0x8000) == (7, 0x8000)
    return flags & 15, count, said[-4:]


def test_a_name_on_the_list_has_one_address_of_its_own() -> None:
    found, heard = names("pypi.org", "*.example.org")
    assert answered(found, question("PyPI.org")) == (0, 1, bytes([127, 64, 0, 1]))
    assert answered(found, question("a.example.org")) == (0, 1, bytes([127, 64, 0, 2]))
    assert answered(found, question("pypi.org")) == (0, 1, bytes([127, 64, 0, 1]))
    for kind in (AAAA, TXT, HTTPS):
        assert answered(found, question("pypi.org", kind))[:2] == (0, 0)
    assert found.target("127.64.0.2", 443) == Target("a.example.org", 443)
    assert found.target("127.64.0.3", 443) == Target("127.64.0.3", 443)
    assert found.target("127.0.0.1", 443) is found.target("127.0.0.1", 3128) is None
    assert not heard


def test_another_name_is_none_and_told_once_for_its_kinds() -> None:
    found, heard = names("pypi.org")
    told: set[str] = set()
    for kind in (A, AAAA, TXT):
        assert found.answer(question("secret.evil.org", kind), told)[3] & 15 == 3
    assert heard == [("secret.evil.org", "secret.evil.org is not on the --net allow list")]
    assert answered(found, question("5.0.64.127.in-addr.arpa"))[:2] == (3, 0)
    assert answered(found, question("a b\n.org"))[0] == 3
    assert [name for name, _ in heard] == ["secret.evil.org", "a b\\x0a.org"]


def test_open_names_nothing_of_this_network() -> None:
    found, _ = names()
    assert answered(found, question("a.org"))[:2] == (0, 1)
    assert [answered(found, question(name))[0] for name in ("db", "db.internal", "localhost", "1.2.3.4")] == [3] * 4


def test_a_service_of_the_host_is_localhost_inside() -> None:
    found, _ = names("localhost:5432")
    assert found.target("127.0.0.1", 5432) == Target("localhost", 5432)
    assert found.target("127.0.0.1", 3128) is None


def test_there_is_an_end_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade_sandbox.egress.names.MAX_NAMES", 3)
    found, heard = names("*.org")
    assert [answered(found, question(f"{one}.org"))[0] for one in "abca"] == [0, 0, 3, 0]
    assert "more than 3 names" in heard[0][1]


@pytest.mark.parametrize(
    ("message", "code"),
    [(question("a.org", flags=0x8100), 4), (question("a.org", flags=0x2900), 4), (question("a.org", count=2), 1),
     (question("a.org")[:-1], 1), (struct.pack(">6H", 7, 0, 1, 0, 0, 0) + b"\xc0\x0c\x00\x01\x00\x01", 1),
     (struct.pack(">6H", 7, 0, 1, 0, 0, 0), 1)],
)  # fmt: skip
def test_questions_that_are_none(message: bytes, code: int) -> None:
    assert answered(names("a.org")[0], message)[:2] == (code, 0)


@given(st.binary(max_size=80))
def test_no_bytes_are_too_odd(message: bytes) -> None:
    assert len(names("a.org")[0].answer(message, set())) <= len(message) + 28


@pytest.mark.parametrize(
    ("begun", "found"),
    [(b"", None), (b"GET", None), (b"GET /x HT", None), (b"\r\n\r\nGET / H", None),
     (b"GET / HTTP/1.1\r\n", Speech.HTTP),
     (b"\r\nget  /\tHTTP/1.0\r\n", Speech.HTTP), (b"PRI * HTTP/2.0\r\n", Speech.HTTP), (b"\x16", None),
     (b"\x16\x03\x01", Speech.TLS), (b"\x16\x02", Speech.OTHER), (b"SSH-2.0-x\r\n", Speech.OTHER),
     (b"EHLO x\r\n", Speech.OTHER), (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", Speech.OTHER), (b"AMQP\0\0", Speech.OTHER),
     (b"0\x0c\x02\x01\x01`", Speech.OTHER), (b'{"id": 1}', Speech.OTHER), (b"A" * 33, None),
     (b" G_T\x0b/ x HTTP/", Speech.HTTP), (b"GET / \x01 HTTP/", Speech.HTTP), (b"GET\r/\xa0HTTP/1", Speech.HTTP),
     (b"GET " + b"a" * (1 << 14), Speech.HTTP), (b"A" * (1 << 14), Speech.HTTP)],
)  # fmt: skip
def test_what_is_spoken_by_the_first_bytes(begun: bytes, found: Speech | None) -> None:
    assert speech(begun) is found


class _Client(StapledByteStream):
    """As the agent tells of one: where it went."""

    def __init__(self, stream: ByteStream, went: tuple[str, int]) -> None:
        super().__init__(stream, stream)
        self._went = went

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return {SocketAttribute.local_address: lambda: self._went}


Talk = Callable[..., Awaitable[bytes]]


@asynccontextmanager
async def unaware() -> AsyncIterator[tuple[Net, Talk]]:
    """`talk(port, *pieces)` is all that a client hears that connects to what stands for good.test inside. That is on
    127.0.0.1, and on the list like localhost, with every high port.
    """
    high = frozenset({80, 443, *range(1024, 65536)})
    rules = Rules(tuple(Rule(name, below=False, ports=high) for name in ("good.test", "localhost")))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as group:
            n, went = Net(group, listener.getsockname()[1]), [("127.0.0.1", 53)]
            accepted = accepting(listener)
            egress = Egress(
                rules, n.events.append, resolver=loopback, allow_private=lambda host, _: host == "good.test"
            )

            async def accept() -> ByteStream:
                stream = await accepted()
                return _Client(stream, went[-1])

            async def talk(port: int, *pieces: bytes, address: str = "127.64.0.1") -> bytes:
                went.append((address, port))
                return await n.talk(*pieces)

            group.start_soon(egress.serve, accept)
            with anyio.fail_after(20):
                asked = question("good.test")
                said = await talk(53, len(asked).to_bytes(2), asked, address="127.0.0.1")
                assert said[-4:] == bytes([127, 64, 0, 1])
                yield n, talk
            group.cancel_scope.cancel()


def get(host: str, path: str = "/x") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


async def first_word(stream: SocketStream) -> None:
    await stream.send(b"220 hello\n")
    await stream.send(b"heard " + await everything(stream))


@pytest.mark.anyio
async def test_whatever_is_spoken_passes_on_a_port_that_was_named() -> None:
    async with unaware() as (n, talk):

        async def server(stream: SocketStream) -> None:
            n.got.append(await everything(stream))
            await stream.send(b"answer")

        port, first = await n.origin(server), await n.origin(first_word)
        assert await talk(port, b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"more") == b"answer"
        assert await talk(port, b"EHL", b"O x\r\n") == b"answer"
        assert await talk(port) == b"answer"
        assert await talk(port, hello := real_hello("good.test")) == b"answer"
        assert await talk(first, b"quit") == b"220 hello\nheard quit"
        assert n.got == [b"\x00\x00\x00\x08\x04\xd2\x16\x2fmore", b"EHLO x\r\n", b"", hello]
        assert [(event.method, event.host, event.verdict, event.status) for event in n.events] == [
            ("TCP", "good.test", "allowed", 200)
        ] * 5
        assert [event.bytes_up for event in n.events[:2]] == [12, 8]


@pytest.mark.anyio
async def test_http_is_judged_and_written_anew_without_a_proxy_too() -> None:
    async with unaware() as (n, talk):
        port = await n.canned()
        assert (await talk(port, get(f"good.test:{port}"))).endswith(b"\r\n\r\nok\n")
        assert (await talk(port, b"\r\n" + get("evil.test"))).startswith(b"HTTP/1.1 400 ")
        for bad in (
            get("evil.test"),
            get(f"good.test:{port}", "http://evil.test/"),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ):
            assert b"stockade: " in await talk(port, bad[:3], bad[3:])
        assert b"cannot connect" in await talk(80, get("good.test"))
        heard = [one for one in n.got if one]
        assert heard == [f"GET /x HTTP/1.1\r\nHost: good.test:{port}\r\nConnection: close\r\n\r\n".encode()]
        assert [event.verdict for event in n.events] == ["allowed", *["refused"] * 4, "allowed"]


@pytest.mark.anyio
async def test_tls_is_to_its_name_without_a_proxy_too() -> None:
    async with unaware() as (n, talk):
        port = await n.canned()
        for name in ("evil.test", None):
            assert await talk(port, real_hello(name)) == b""
        for name in ("good.test", "evil.test", None):
            assert await talk(443, real_hello(name)) == UNRECOGNIZED_NAME
        assert n.got == [b"", b""]
        reasons = [event.reason for event in n.events]
        assert "names evil.test, the TCP good.test" in reasons[0]
        assert "names no server" in reasons[1]
        assert [event.verdict for event in n.events] == ["refused"] * 2 + ["allowed"] * 3


@pytest.mark.anyio
async def test_an_address_that_stands_for_nothing_and_a_service_of_the_host() -> None:
    async with unaware() as (n, talk):
        port = await n.origin(first_word)
        assert await talk(port, b"x", address="127.64.0.9") == b""
        assert await talk(port, get("evil.test"), address="127.0.0.1") == b"220 hello\nheard " + get("evil.test")
        assert [(event.host, event.verdict) for event in n.events] == [
            ("127.64.0.9", "refused"), ("localhost", "allowed"),
        ]  # fmt: skip
