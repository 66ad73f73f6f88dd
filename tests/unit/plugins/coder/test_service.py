"""The coder's service over real sockets, with a solver of the test's: PC-18, and whoever else may ask."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from stockade.core.errors import SandboxFailed, UsageError
from stockade.plugins.coder.service import MAX_BODY_BYTES, Answer, Query, Service, parse_address

pytestmark = pytest.mark.anyio
Talk = Callable[[bytes], Coroutine[Any, Any, tuple[int, object]]]
PATIENCE_S = 60.0


async def good(query: Query) -> Answer:
    return Answer(response="3\n", code=f"# {query.query}", status="success", attempts=1, run="r1")


@asynccontextmanager
async def running(
    solve: Callable[[Query], Awaitable[Answer]] = good, host: str = "127.0.0.1", api_key: str | None = None
) -> AsyncIterator[tuple[Talk, int]]:
    port = 0
    up = anyio.Event()

    def listening(at: int) -> None:
        nonlocal port
        port = at
        up.set()

    async def talk(request: bytes) -> tuple[int, object]:
        """The status and the body of one exchange."""
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(request)
            answer = b""
            with anyio.fail_after(PATIENCE_S):
                try:
                    while True:
                        answer += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    pass
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)

    async with anyio.create_task_group() as group:
        group.start_soon(Service(solve, host, api_key).serve, 0, listening)
        with anyio.fail_after(PATIENCE_S):
            await up.wait()
        yield talk, port
        group.cancel_scope.cancel()


def post(body: bytes, path: str = "/query", **headers: str) -> bytes:
    lines = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def ask(query: str = "add", **more: object) -> bytes:
    return json.dumps({"query": query, **more}).encode()


async def test_health_by_get_and_as_cosmic_asks_it() -> None:
    async with running() as (talk, _):
        assert await talk(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:8780\r\n\r\n") == (200, {"status": "ok"})
        assert await talk(post(b"", "/health")) == (200, {"status": "ok"})


async def test_a_query_is_answered_with_a_list_of_one() -> None:
    async with running() as (talk, _):
        status, body = await talk(post(ask("add two numbers", unknown=1)))
    assert status == 200
    assert body == [
        {"response": "3\n", "error": "", "code": "# add two numbers", "status": "success", "attempts": 1, "run": "r1"}
    ]


async def test_tests_and_examples_come_along() -> None:
    seen: list[Query] = []

    async def solve(query: Query) -> Answer:
        seen.append(query)
        return Answer(status="error", error="no")

    async with running(solve) as (talk, _):
        assert (await talk(post(ask(tests="assert f(1) == 1", examples=["f(1) == 1"]))))[0] == 200
    assert seen == [Query(query="add", tests="assert f(1) == 1", examples=("f(1) == 1",))]


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 422), (b"{", 422), (b"[]", 422), (b"null", 422), (b'{"query": ""}', 422), (b'{"query": 7}', 422),
     (b'{"q": "x"}', 422), (b'{"query": "\xff"}', 422), (b"[" * 100_000, 422),
     (b'{"query": "' + b"x" * 200_001 + b'"}', 422), (b" " * (MAX_BODY_BYTES + 1), 413)],
)  # fmt: skip
async def test_bodies_that_are_no_query(body: bytes, status: int) -> None:
    async with running() as (talk, _):
        got, said = await talk(post(body))
        assert got == status
        assert isinstance(said, dict)
        assert len(str(said["error"])) < 300
        assert (await talk(post(ask())))[0] == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [(b"GARBAGE\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n\r\n", 400), (b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
     (b"GET /query HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
     (b"DELETE /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
     (b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
     (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1.evil\r\n\r\n", 403),
     (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
     (b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
     (b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400)],
)  # fmt: skip
async def test_hostile_requests(request_: bytes, status: int) -> None:
    async with running() as (talk, _):
        assert (await talk(request_))[0] == status
        assert (await talk(post(ask())))[0] == 200


async def test_a_page_in_a_browser_is_not_answered() -> None:
    async with running() as (talk, _):
        assert (await talk(post(ask(), Origin="http://evil.example")))[0] == 403
        assert (await talk(post(ask(), Content_Type="text/plain")))[0] == 415


async def test_a_body_in_chunks() -> None:
    async with running() as (talk, _):
        body = ask()
        head = b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += b"Transfer-Encoding: chunked\r\n\r\n"
        status, _body = await talk(head + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")
    assert status == 200


async def test_what_the_coder_cannot_do_is_an_answer() -> None:
    async def solve(query: Query) -> Answer:
        raise UsageError("the tests hold no test") if query.tests else SandboxFailed("no bubblewrap here")

    async with running(solve) as (talk, _):
        for more, words in (
            ({"tests": "x = 1"}, "the tests hold no test"),
            ({}, "the coder cannot work: no bubblewrap here"),
        ):
            status, body = await talk(post(ask(**more)))
            assert status == 200
            assert isinstance(body, list)
            assert (body[0]["status"], body[0]["error"]) == ("error", words)


async def test_a_client_that_goes_away_ends_its_query() -> None:
    begun, ended = anyio.Event(), anyio.Event()

    async def solve(_: Query) -> Answer:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    async with running(solve) as (_, port):
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(post(ask()))
            with anyio.fail_after(PATIENCE_S):
                await begun.wait()
        with anyio.fail_after(PATIENCE_S):
            await ended.wait()


async def test_queries_wait_for_each_other() -> None:
    working, most, asked = 0, 0, 0
    go = anyio.Event()

    async def solve(_: Query) -> Answer:
        nonlocal working, most, asked
        working, asked = working + 1, asked + 1
        most = max(most, working)
        if asked == 1:
            await go.wait()
        working -= 1
        return Answer(status="success")

    async with running(solve) as (talk, _):
        async with anyio.create_task_group() as group:
            for _number in range(3):
                group.start_soon(talk, post(ask()))
            assert (await talk(post(b"", "/health")))[0] == 200
            go.set()
    assert (most, asked) == (1, 3)


async def test_others_than_this_machine_need_a_key() -> None:
    with pytest.raises(UsageError, match="others could use it"):
        Service(good, "0.0.0.0")
    async with running(api_key="secret") as (talk, _):
        assert (await talk(post(ask())))[0] == 401
        assert (await talk(post(ask(), Authorization="Bearer wrong")))[0] == 401
        assert (await talk(post(ask(), Authorization="Bearer secret")))[0] == 200
        assert (await talk(post(b"", "/health")))[0] == 200


async def test_a_port_that_is_taken() -> None:
    async with running() as (_, port):
        with pytest.raises(UsageError, match="cannot listen on"):
            await Service(good).serve(port, lambda _: None)


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), (":9", ("127.0.0.1", 9)), ("localhost", ("localhost", 8780)),
     ("[::1]:1", ("::1", 1)),
     ("[::1]", ("::1", 8780)), ("0.0.0.0:0", ("0.0.0.0", 0))],
)  # fmt: skip
async def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["host:port", "a:70000", "a b:1", "x:-1", "x:٣"])
async def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        parse_address(text)
