"""The proxy between real sockets: what gets out, how, and what is reported."""

import os
import socket
import struct
from collections.abc import Sequence

import anyio
import anyio.to_thread
import pytest
from anyio.abc import SocketStream

from stockade_sandbox.egress.proxy import Bounds
from tests.unit.sandboxes.test_egress.support import everything, head_of, net
from tests.unit.sandboxes.test_egress.test_tls import real_hello

pytestmark = pytest.mark.anyio


def get(port: int, *headers: str, method: str = "GET", host: str = "good.test") -> bytes:
    lines = [f"{method} http://{host}:{port}/x HTTP/1.1", f"Host: {host}:{port}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def connect(port: int, host: str = "good.test") -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()


async def test_a_request_gets_out_and_is_reported() -> None:
    async with net() as n:
        port = await n.canned()
        answer = await n.talk(get(port, "X-Kept: 1"))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\nok\n")
        assert n.got == [
            f"GET /x HTTP/1.1\r\nHost: good.test:{port}\r\nX-Kept: 1\r\nConnection: close\r\n\r\n".encode()
        ]
        (event,) = n.events
        assert (event.host, event.port, event.method, event.verdict, event.status) == (
            "good.test", port, "GET", "allowed", 200,
        )  # fmt: skip
        assert event.reason == ""
        assert event.bytes_up == len(n.got[0])
        assert event.bytes_down == len(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-From: origin\r\n\r\nok\n")


async def test_each_request_of_a_kept_connection_is_judged_anew() -> None:
    async with net() as n:
        port = await n.canned()
        answer = await n.talk(get(port) + get(port) + get(port, host="evil.org") + get(port))
        assert answer.count(b"200 OK") == 2
        assert answer.endswith(b"stockade: evil.org is not on the --net allow list\n")
        assert len(n.got) == 2
        assert [event.verdict for event in n.events] == ["allowed", "allowed", "refused"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n", "not a URL this proxy knows"),
        (b"GET http://good.test/ HTTP/1.1\r\n\r\n", "0 Host headers"),
        (b"GET http://good.test/ HTTP/1.1\r\nHost: evil.org\r\n\r\n", "the Host header says evil.org"),
        (b"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nHost: evil.org\r\n\r\n", "2 Host headers"),
        (b"CONNECT good.test:443 HTTP/1.1\r\nHost: evil.org:443\r\n\r\n", "the Host header says evil.org"),
        (b"CONNECT good.test HTTP/1.1\r\nHost: good.test\r\n\r\n", "does not end in a port"),
        (b"CONNECT 127.0.0.1:443 HTTP/1.1\r\nHost: 127.0.0.1:443\r\n\r\n", "is an address"),
        (b"CONNECT good.test:25 HTTP/1.1\r\nHost: good.test:25\r\n\r\n", "only other ports"),
        (b"GET https://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "needs a tunnel"),
        (b"\x05\x01\x00\r\n\r\n", "a control character"),
        (b"SSH-2.0-x\r\n\r\n", "not an HTTP/1.1 request"),
        (b"A" * 200_000, "too long"),
        (b"GET http://good.test/ HTTP/1.1\r\nA: " + b"a" * 200_000 + b"\r\n\r\n", "too long"),
        (b"POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\n"
         b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "both Content-Length and"),
    ],
)  # fmt: skip
async def test_refused_at_once_with_the_reason_said_and_reported(data: bytes, reason: str) -> None:
    async with net() as n:
        answer = await n.talk(data)
        assert answer.startswith(b"HTTP/1.1 4")
        assert reason.encode() in answer
        (event,) = n.events
        assert event.verdict == "refused"
        assert reason in event.reason
        assert event.bytes_up == event.bytes_down == 0


@pytest.mark.parametrize("name", ["rebinding", "mixed"])
async def test_the_address_that_was_checked_is_the_one_that_is_used(name: str) -> None:
    asked = []

    async def resolver(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        private = ["127.0.0.2"] if name == "rebinding" else ["127.0.0.1", "10.0.0.1"]
        return ["127.0.0.1"] if len(asked) == 1 else private

    async with net(resolver=resolver) as n:
        port = await n.canned()
        assert b"200 OK" in await n.talk(get(port))
        assert asked == ["good.test"]
        answer = await n.talk(get(port))
        assert answer.startswith(b"HTTP/1.1 403")
        assert b"which is not public" in answer
        assert len(n.got) == 1


async def test_a_body_goes_up_and_an_answer_comes_down_whole() -> None:
    body = os.urandom(3_000_000)

    async def echo(stream: SocketStream) -> None:
        await head_of(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        left = len(body)
        while left:
            data = await stream.receive(left)
            left -= len(data)
            await stream.send(data)

    async with net() as n:
        port = await n.origin(echo)
        answer = await n.talk(get(port, f"Content-Length: {len(body)}", method="POST"), body)
        assert answer.partition(b"\r\n\r\n")[2] == body
        assert n.events[0].bytes_up > len(body) < n.events[0].bytes_down


async def test_chunks_are_read_and_written_anew() -> None:
    async with net() as n:
        port = await n.canned(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: x\r\n\r\n")
        body = b"5;ext=1\r\nhello\r\n00\r\nTrailer: x\r\n\r\n"
        answer = await n.talk(get(port, "Transfer-Encoding: chunked", method="POST") + body + get(port))
        assert n.got[0].endswith(b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        assert answer.count(b"3\r\nabc\r\n0\r\n\r\n") == 2
        old = await n.talk(get(port).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert old.endswith(b"\r\n\r\nabc")


@pytest.mark.parametrize("chunk", [b"x\r\n", b"-1\r\n", b"3\nabc\r\n0\r\n\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"f" * 2000])
async def test_bad_chunks_end_the_connection(chunk: bytes) -> None:
    async with net() as n:
        port = await n.origin(lambda stream: anyio.sleep_forever())
        answer = await n.talk(get(port, "Transfer-Encoding: chunked", method="POST") + chunk + get(port))
        assert answer.startswith(b"HTTP/1.1 400 stockade: a chunk")
        assert len(n.events) == 1


async def test_expect_is_answered_here() -> None:
    async with net() as n:
        port = await n.canned()
        async with await n.connect() as stream:
            await stream.send(get(port, "Content-Length: 2", "Expect: 100-continue", method="PUT"))
            assert (await stream.receive()).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
            await stream.send(b"ab")
            await stream.send_eof()
            await everything(stream)
        assert b"Expect" not in n.got[0]


async def test_an_answer_before_the_body_is_over_is_read() -> None:
    async def early(stream: SocketStream) -> None:
        await head_of(stream)
        await stream.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno\n")

    async with net() as n:
        port = await n.origin(early)
        answer = await n.talk(get(port, "Content-Length: 9000000", method="POST"), bytes(2_000_000))
        assert answer.endswith(b"\r\n\r\nno\n")
        assert n.events[0].status == 413


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"nonsense\r\n\r\n", "did not answer in HTTP/1.1"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "changed the protocol"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 20, "interim"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"a" * 200_000, "too long"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "Content-Length"),
    ],
)
async def test_answers_that_are_none(answer: bytes, words: str) -> None:
    async with net() as n:
        port = await n.canned(answer)
        said = await n.talk(get(port))
        assert said.startswith(b"HTTP/1.1 502 ")
        assert words.encode() in said
        assert (n.events[0].verdict, n.events[0].status) == ("allowed", 502)


async def test_a_server_that_is_not_there() -> None:
    async with net() as n:
        port = await n.origin(lambda stream: stream.aclose())
        assert b"without an answer" in await n.talk(get(port))
        assert b"cannot connect to good.test:80: " in await n.talk(get(80))
        assert [event.verdict for event in n.events] == ["allowed", "allowed"]


async def test_a_tunnel_carries_tls_to_its_name_and_nothing_else_first() -> None:
    hello = real_hello("good.test")
    async with net() as n:

        async def server(stream: SocketStream) -> None:
            n.got.append(await stream.receive())
            await stream.send(b"from the server")
            n.got.append(await everything(stream))
            await stream.send(b", and more after your end")

        port = await n.origin(server)
        async with await n.connect() as stream:
            await stream.send(connect(port))
            assert (await head_of(stream)).startswith(b"HTTP/1.1 200 ")
            for at in range(0, len(hello), 100):
                await stream.send(hello[at : at + 100])
            assert await stream.receive() == b"from the server"
            await stream.send(b"rest")
            await stream.send_eof()
            assert await everything(stream) == b", and more after your end"
        assert n.got == [hello, b"rest"]
        (event,) = n.events
        assert (event.method, event.status, event.verdict) == ("CONNECT", 200, "allowed")
        assert (event.bytes_up, event.bytes_down) == (len(hello) + 4, 15 + 25)


@pytest.mark.parametrize(
    ("first", "words", "said"),
    [
        (real_hello("evil.org"), "names evil.org, the CONNECT good.test", b"\x15\x03\x01\x00\x02\x02\x70"),
        (real_hello(None), "names no server", b"\x15\x03\x01\x00\x02\x02\x70"),
        (b"GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n", "does not begin with TLS", b"HTTP/1.1 403 stockade: "),
        (b"SSH-2.0-OpenSSH\r\n", "does not begin with TLS", b"HTTP/1.1 403 stockade: "),
        (b"\x16\x03\x01\x40\x00\x01\xff\xff\xff", "too long", b"HTTP/1.1 403 stockade: "),
    ],
)
async def test_tunnels_that_carry_something_else(first: bytes, words: str, said: bytes) -> None:
    async with net() as n:
        port = await n.canned()
        answer = await n.talk(connect(port), first)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.partition(b"\r\n\r\n")[2].startswith(said)
        assert n.got in ([], [b""])
        assert (n.events[0].verdict, n.events[0].bytes_up) == ("refused", 0)
        assert words in n.events[0].reason


async def test_whoever_is_slow_is_let_go() -> None:
    async with net(bounds=Bounds(head_s=0.2, idle_s=0.2, linger_s=0.1)) as n:
        port = await n.origin(lambda stream: anyio.sleep_forever())
        async with await n.connect() as slow, await n.connect() as waiting, await n.connect() as tunnel:
            await slow.send(b"GET http://good.test/ HTTP/1.1\r\nHost:")
            await waiting.send(get(port))
            await tunnel.send(connect(port))
            assert (await everything(slow)).startswith(b"HTTP/1.1 408 stockade: ")
            assert (await everything(waiting)).startswith(b"HTTP/1.1 504 stockade: nothing moved for 0.2 s")
            assert b"\x15\x03\x01" in await everything(tunnel)
        assert sorted(event.reason for event in n.events) == [
            "a request head that was not whole within 0.2 s", "no TLS ClientHello within 0.2 s",
            "nothing moved for 0.2 s",
        ]  # fmt: skip


async def test_a_head_that_breaks_off_is_on_record_and_a_silent_client_is_not() -> None:
    async with net(bounds=Bounds(head_s=0.2)) as n:
        assert await n.talk() == b""
        assert (await n.talk(b"GET http://evil")).startswith(b"HTTP/1.1 400 stockade: ")
        async with await n.connect() as silent:
            assert await everything(silent) == b""
        assert [(event.verdict, event.reason) for event in n.events] == [("refused", "a request head that broke off")]


def reset(port: int, *pieces: bytes) -> None:
    """A client that does not say goodbye."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        for piece in pieces:
            client.sendall(piece)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def test_clients_that_reset_their_connection_break_nothing() -> None:
    async with net(bounds=Bounds(connections=4)) as n:
        port = await n.canned()
        stages = ((), (b"GET",), (get(port),), (get(port, "Content-Length: 9", method="POST"),), (connect(port),),
                  (connect(port), real_hello("good.test")), (get(port, host="evil.org"),))  # fmt: skip
        for _ in range(20):
            for stage in stages:
                await anyio.to_thread.run_sync(reset, n.port, *stage)
        assert b"200 OK" in await n.talk(get(port))


async def test_a_silent_tunnel_is_let_go() -> None:
    async with net(bounds=Bounds(idle_s=0.2)) as n:
        port = await n.origin(lambda stream: anyio.sleep_forever())
        async with await n.connect() as stream:
            await stream.send(connect(port) + real_hello("good.test"))
            assert (await everything(stream)).startswith(b"HTTP/1.1 200 ")
        assert n.events[0].reason == "nothing moved for 0.2 s"


async def test_more_connections_than_allowed_wait_their_turn() -> None:
    async with net(bounds=Bounds(connections=2)) as n:
        port = await n.canned()
        first, second = await n.connect(), await n.connect()
        async with await n.connect() as third:
            await third.send(get(port))
            with anyio.move_on_after(0.2) as waited:
                await third.receive()
            assert waited.cancelled_caught
            await first.aclose()
            assert b"200 OK" in await third.receive()
        await second.aclose()


async def test_the_end_of_the_proxy_is_the_end_of_every_connection_and_on_record() -> None:
    async with net() as n:
        port = await n.origin(lambda stream: anyio.sleep_forever())
        stream = await n.connect()
        await stream.send(connect(port) + real_hello("good.test"))
        await head_of(stream)
        n.group.cancel_scope.cancel()
    assert [event.host for event in n.events] == ["good.test"]
    await stream.aclose()
    with pytest.raises(OSError, match="connect"):
        await anyio.connect_tcp("127.0.0.1", n.port)
