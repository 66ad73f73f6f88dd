"""Who has no token, or somebody else's, and bodies and readers of whoever has one: /v1/sandboxes holds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import httpx2
import pytest

from stockade_sandbox.backends.remote.allowed import Allowed
from stockade_sandbox.backends.remote.http import HttpSandbox
from stockade_sandbox.policy import Policy
from stockade_sandbox.server import sessions
from stockade_sandbox.server.app import App, owners
from stockade_sandbox.server.sessions import Output, Sessions
from tests.unit.sandboxes.remote.helpers import Boxes, until
from tests.unit.sandboxes.remote.scene import OTHER_TOKEN, TOKEN, Scene, scene

pytestmark = pytest.mark.anyio
KEY = {"Idempotency-Key": "one"}


def routes() -> list[tuple[str, str]]:
    """Every one there is, of the sandbox `one` and its program `p`."""
    boxes = Boxes()
    app = App(Sessions(Allowed(), boxes.opener), owners([])).app
    found = [
        (method, str(getattr(route, "path", "")))
        for route in app.routes
        for method in sorted(getattr(route, "methods", None) or ())
        if method != "HEAD"
    ]
    paths = [(method, path.replace("{id}", "one").replace("{n}", "p")) for method, path in found]
    paths = [(method, path.replace("{number:int}", "0")) for method, path in paths]
    return [(method, path.replace("{path:path}", "a/b")) for method, path in paths if path != "/healthz"]


@asynccontextmanager
async def client(here: Scene, token: str | None = TOKEN) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {b"Authorization": f"Bearer {token}".encode("latin-1")} if token is not None else {}
    async with httpx2.AsyncClient(base_url=f"http://{here.address}", headers=headers, trust_env=False) as found:
        yield found


async def opened(here: Scene) -> None:
    async with client(here) as mine:
        assert (await mine.post("/v1/sandboxes", json={"policy": {}}, headers=KEY)).status_code == 201
        begun = await mine.post("/v1/sandboxes/one/programs", json={"shell": "slow"}, headers={"Idempotency-Key": "p"})
        assert begun.status_code == 201
    await here.boxes.made[0].began.wait()


def test_there_are_routes_to_try() -> None:
    assert len(routes()) == 18


async def test_without_a_token_or_with_a_wrong_one_nothing_is_told_or_done() -> None:
    async with scene() as here:
        await opened(here)
        for token in (None, "-", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é" * 40):
            async with client(here, token) as stranger:
                for method, path in routes():
                    answer = await stranger.request(method, path, content=b"{}")
                    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), (method, path)
                    assert "one" not in answer.json()["detail"]
        async with client(here, None) as stranger:
            basic = await stranger.get("/v1/sandboxes", headers={"Authorization": f"Basic {TOKEN}"})
            assert basic.status_code == 401
            assert (await stranger.get("/healthz")).json() == {"status": "ok", "sandboxes": True}
        assert (len(here.boxes.made), here.boxes.made[0].ran) == (1, ["slow"])


async def test_a_page_of_a_browser_is_refused_whatever_it_knows() -> None:
    async with scene() as here, client(here) as mine:
        answer = await mine.post("/v1/sandboxes", json={"policy": {}}, headers={"Origin": f"http://{here.address}"})
        assert (answer.status_code, here.boxes.made) == (403, [])


async def test_the_sandbox_of_another_token_is_not_there() -> None:
    async with scene() as here:
        await opened(here)
        async with client(here, OTHER_TOKEN) as other:
            assert (await other.get("/v1/sandboxes")).json() == {"sandboxes": []}
            for method, path in routes():
                if "/one" in path and (method, path) != ("DELETE", "/v1/sandboxes/one"):
                    answer = await other.request(method, path, content=b'{"argv": ["x"], "rows": 1, "columns": 1}')
                    assert answer.status_code == 404, (method, path)
            assert (await other.delete("/v1/sandboxes/one")).status_code == 200  # of a name of its own: nothing ends
            assert here.boxes.open == 1
            begun = await other.post("/v1/sandboxes", json={"policy": {}}, headers={"Idempotency-Key": "two"})
            assert begun.status_code == 201
            assert [one["id"] for one in (await other.get("/v1/sandboxes")).json()["sandboxes"]] == ["two"]
        async with client(here) as mine:
            assert [one["id"] for one in (await mine.get("/v1/sandboxes")).json()["sandboxes"]] == ["one"]
        assert here.boxes.made[0].ran == ["slow"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/sandboxes", b""), ("/v1/sandboxes", b"null"), ("/v1/sandboxes", b"[" * 100_000),
        ("/v1/sandboxes", b'{"policy": {}, "more": 1}'), ("/v1/sandboxes", b'{"policy": {"root": "yes"}}'),
        ("/v1/sandboxes", b'{"policy": {"folders": [{"host": "/", "inside": "../x"}]}}'),
        ("/v1/sandboxes/one/programs", b"{}"), ("/v1/sandboxes/one/programs", b'{"shell": "a", "argv": ["b"]}'),
        ("/v1/sandboxes/one/programs", b'{"argv": ["a"], "pty": [0, 70000]}'),
        ("/v1/sandboxes/one/programs", b'{"argv": ["a"], "max_output_bytes": 99999999999}'),
        ("/v1/sandboxes/one/programs", b'{"argv": ["a"]}'),
        ("/v1/sandboxes/one/programs/p/signal", b'{"number": 0}'),
        ("/v1/sandboxes/one/programs/p/resize", b'{"rows": 1, "columns": 1}'),
        ("/v1/sandboxes/one/programs/p/stdin?at=-1", b"x"), ("/v1/sandboxes/one/programs/p/stdin?at=1e9", b"x"),
    ],
)  # fmt: skip
async def test_nonsense_of_one_with_the_token_is_refused_and_all_goes_on(path: str, body: bytes) -> None:
    async with scene() as here:
        await opened(here)
        async with client(here) as mine:
            answer = await mine.post(path, content=body)
            assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
            assert answer.json()["detail"]
            here.boxes.made[0].go.set()
            done = await mine.get("/v1/sandboxes/one/programs/p?wait=20")
            assert done.json()["output"]["exit_code"] == 0
        assert here.said == []


async def test_names_that_are_none() -> None:
    async with scene() as here, client(here) as mine:
        for name in ("", "../x", "A", "x" * 33, "a b"):
            answer = await mine.post("/v1/sandboxes", json={"policy": {}}, headers={"Idempotency-Key": name})
            assert answer.status_code == 422
        assert here.boxes.made == []


async def test_a_name_is_used_once() -> None:
    async with scene() as here:
        await opened(here)
        async with client(here) as mine:
            place, key = "/v1/sandboxes/one/programs", {"Idempotency-Key": "p"}
            assert (await mine.post(place, json={"shell": "slow"}, headers=key)).status_code == 201
            assert (await mine.post(place, json={"shell": "other"}, headers=key)).status_code == 409
            assert (await mine.delete(f"{place}/p")).status_code == 204
            assert (await mine.post(place, json={"shell": "slow"}, headers=key)).status_code == 404
            assert (await mine.delete(f"{place}/q")).status_code == 204  # it overtook its request
            late = await mine.post(place, json={"shell": "late"}, headers={"Idempotency-Key": "q"})
            assert late.status_code == 404
            assert (await mine.delete("/v1/sandboxes/one")).status_code == 200
            assert (await mine.post("/v1/sandboxes", json={"policy": {}}, headers=KEY)).status_code == 404
        assert (len(here.boxes.made), here.boxes.made[0].ran) == (1, ["slow"])


async def test_a_body_without_an_end_is_refused_when_it_is_too_long() -> None:
    async with scene() as here, client(here) as mine:
        sent = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal sent
            while True:
                sent += 1 << 16
                yield b" " * (1 << 16)

        with anyio.fail_after(30):
            with suppress(httpx2.TransportError):  # it may be cut off while it is sent
                assert (await mine.post("/v1/sandboxes", content=endless())).status_code == 413
        assert sent < 64 << 20
        assert (await mine.get("/v1/sandboxes")).status_code == 200
        await opened(here)
        long = await mine.post("/v1/sandboxes/one/programs/p/stdin?at=0", content=bytes((256 << 10) + 1))
        assert long.status_code == 413


async def test_sandboxes_and_programs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SANDBOXES", 2)
    monkeypatch.setattr(sessions, "MAX_PROGRAMS", 3)
    async with scene() as here, client(here) as mine:
        for name, status in (("one", 201), ("two", 201), ("three", 500)):
            answer = await mine.post("/v1/sandboxes", json={"policy": {}}, headers={"Idempotency-Key": name})
            assert answer.status_code == status
        place = "/v1/sandboxes/one/programs"
        for status in (201, 201, 201, 422):
            assert (await mine.post(place, json={"shell": "slow"})).status_code == status
        here.boxes.made[0].go.set()
        for _ in range(20):
            done = await mine.post(place, json={"shell": "ls"})
            assert (await mine.get(f"{done.headers['location']}?wait=20")).json()["ended"]
        assert len(here.server.all[0].programs) == 6


async def test_output_that_nobody_takes_makes_a_program_wait_and_never_grows() -> None:
    output = Output(1000, waits=True)
    async with anyio.create_task_group() as group:

        async def writes() -> None:
            for _ in range(100):
                await output.put("stdout", b"x" * 100)
            output.end()

        group.start_soon(writes)
        await anyio.wait_all_tasks_blocked()
        assert output.written <= 1000
        had = b""
        while True:
            await anyio.wait_all_tasks_blocked()
            pieces = await output.behind(len(had), 5)
            if not pieces:
                break
            had += b"".join(data for _, _, data in pieces)
            output.had(len(had))
    assert (had, output.over) == (b"x" * 10_000, True)


async def test_a_second_reader_of_a_program_takes_the_place_of_the_first() -> None:
    async with scene() as here:
        await opened(here)
        async with client(here) as mine, client(here) as also:
            place = "/v1/sandboxes/one/programs/p/events"
            async with mine.stream("GET", place) as first:
                lines = first.aiter_lines()
                assert await anext(lines) == "retry: 0"
                async with also.stream("GET", place) as second:
                    here.boxes.made[0].write("stdout", b"hello")
                    seen = list[str]()
                    async for line in second.aiter_lines():
                        seen.append(line)
                        if line == "id: 5":
                            here.boxes.made[0].go.set()
                assert "event: end" in seen
                assert not [line async for line in lines if line.startswith("event: end")]


async def test_a_bug_of_one_sandbox_is_named_and_the_others_go_on() -> None:
    async with scene() as here:
        await opened(here)
        here.boxes.made[0].fails["bug"] = ValueError("a bug")
        async with client(here) as mine:
            here.boxes.made[0].go.set()
            await mine.post("/v1/sandboxes/one/programs", json={"shell": "bug"})
            await until(lambda: here.boxes.open == 0)
            assert "a bug" in here.said[0]
        async with HttpSandbox(Policy(), here.url, TOKEN) as box:
            assert (await box.run("ls")).stdout == b"did ls"
