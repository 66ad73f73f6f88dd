"""What a token may have under way and spend, whichever way its runs begin; and that one run is driven once."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from anyio.from_thread import start_blocking_portal

from stockade.core.errors import UsageError
from stockade.runtime import records
from stockade.runtime.roots import Roots
from stockade.runtime.spec import RunSpec, spec_of
from stockade.server.api import Served
from stockade.server.app import make_app
from stockade.server.bounds import Rate, bounded
from stockade.server.models import NewRun
from stockade.server.runs import Runs
from stockade.server.sandboxes import Sandboxes
from stockade.server.tokens import Token, Tokens
from stockade.server.uploads import MAX_UPLOADS, Uploads
from stockade.testing import say
from tests.server.conftest import COUNT, DONE, Stage, asked, begin, killed, stream, until
from tests.server.test_uploads import member, tar
from tests.support.fake_openai import FakeOpenAI, says

MORE = {"text": "more"}
WAYS = {"resume": None, "messages": MORE, "rewind": {"turn": 1}}


def test_what_the_bot_of_a_server_wants_bounds_its_clients_too(tmp_path: Path) -> None:
    bot = tmp_path / "own.toml"
    bot.write_text(
        'prompt = "p"\nmax_turns = 2\ntimeout = 60\napprove = "ask"\nprotect = ["tests"]\ncheck = "true"\n'
        'hooks = ["tidy"]\n'
    )
    token = Token(id="t", name="t", scopes=("run",), sha256="", made=0)
    own = RunSpec(bot=str(bot), max_tokens=500)
    free = bounded(own, (), token, NewRun(task="t"), None, None)
    bounds: tuple[object, ...] = (
        free.max_turns,
        free.timeout,
        free.max_tokens,
        free.approve,
        free.protect,
        free.check,
        free.hooks,
    )
    assert bounds == (2, 60, 500, "ask", ("tests",), ("true",), ())
    more = NewRun.model_validate(
        {"task": "t", "protect": ["docs"], "limits": {"max_turns": 100, "timeout": 600, "max_tokens": 9}}
    )
    asked = bounded(own, (), token, more, None, None)
    assert (asked.max_turns, asked.timeout, asked.max_tokens, asked.protect) == (2, 60, 9, ("tests", "docs"))
    with pytest.raises(UsageError, match="approve=ask"):
        bounded(own, (), token, NewRun(task="t", approve="never"), None, None)
    other = bounded(own, (), token, NewRun(task="t", bot="reading"), None, None)
    assert (other.max_turns, other.timeout, other.approve) == (None, 1800, "never")


def at_once(client: httpx2.Client, *requests: tuple[str, object]) -> list[httpx2.Response]:
    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(lambda one: client.post(one[0], json=one[1]), requests))


@pytest.mark.parametrize("other", ["resume", "messages", "discard"])
def test_of_two_that_go_on_with_a_run_at_once_one_does(other: str, stage: Stage, admin: httpx2.Client) -> None:
    again = say("shell", command="sleep 1")
    run = begin(
        admin, model=stage.script(f"twice {other}", COUNT, say("shell", command="sleep 600"), *[again] * 30, DONE)
    )
    for one in stream(admin, run):
        if one.name == "action_started" and "sleep" in str(one.data):
            break
    admin.post(f"/v1/runs/{run}/cancel")
    replies = at_once(admin, *[(f"/v1/runs/{run}/{way}", WAYS.get(way)) for way in ("resume", other, "resume", other)])
    assert {one.status_code for one in replies} <= {200, 202, 409}
    took = [one for one in replies if one.status_code != 409]
    resumed = [one for one in until(admin, run, "run_resumed") if one.name == "run_resumed"]
    assert len(resumed) == 1
    assert took
    assert admin.get("/healthz").status_code == 200
    assert admin.post(f"/v1/runs/{run}/cancel").status_code == 200
    assert [one.name for one in until(admin, run, "end")].count("run_resumed") == 1


def test_no_way_to_have_a_run_under_way_gets_round_what_a_token_may(stage: Stage) -> None:
    with stage.client(stage.token("one at once", "read", "run", at_once=1)) as client:
        over = begin(client)
        until(client, over, "end")
        busy = begin(client, approve="ask")
        for way, body in WAYS.items():
            reply = client.post(f"/v1/runs/{over}/{way}", json=body)
            assert (reply.status_code, "1 runs of this token" in reply.text) == (429, True), (way, reply.text)
        with stage.client(stage.token("overseer of one")) as overseer:
            reply = overseer.post(f"/v1/runs/{over}/messages", json=MORE)
            assert reply.status_code == 429, "it counts for whose it is"
        assert len(client.get("/v1/runs").json()["runs"]) == 2
        client.post(f"/v1/runs/{busy}/cancel")
        assert client.post(f"/v1/runs/{over}/messages", json=MORE).status_code == 202


def test_of_many_that_begin_at_once_no_more_do_than_may(stage: Stage) -> None:
    with stage.client(stage.token("two at once", at_once=2)) as client:
        body = {"task": "count", "approve": "ask"}
        replies = at_once(client, *[("/v1/runs", body)] * 6)
        assert sorted(one.status_code for one in replies) == [201, 201, 429, 429, 429, 429]


@pytest.fixture
def priced(own: Stage) -> Iterator[str]:
    """A model whose every answer costs 0.1 USD; the server that knows it is started."""
    prices = own.path / "CONFIG" / "stockade" / "prices.toml"
    prices.parent.mkdir(parents=True)
    prices.write_text('"openai/dear" = { input = 0, output = 100000 }\n')
    (own.path / "words.toml").write_text('name = "words"\nprompt = "Say it."\ntools = ["shell", "finish"]\n')

    def answer() -> object:
        command = json.dumps({"thought": "t", "action": {"tool": "shell", "command": "true"}})
        return says(command, usage=(10, 0, 1))

    server = FakeOpenAI(otherwise=answer)  # type: ignore[arg-type]
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server):
        own.variables["OPENAI_BASE_URL"] = server.base_url
        own.serve("-o", "answers=json", "--bot", str(own.path / "words.toml"), "--allow-model", "openai/dear")
        yield "openai/dear"


def cost_of(client: httpx2.Client, run: str) -> float:
    told = until(client, run, "end") if client.get(f"/v1/runs/{run}").json()["status"] != "asking" else []
    return sum(float(one.data["answer"]["usage"]["cost"]) for one in told if one.name == "model_answered")


def test_what_runs_may_yet_cost_is_nobody_elses(own: Stage, priced: str) -> None:
    with own.client(own.token("dollar", max_cost=0.35)) as client:
        body = {"task": "t", "model": priced, "approve": "ask"}
        replies = at_once(client, *[("/v1/runs", body)] * 3)
        assert sorted(one.status_code for one in replies) == [201, 429, 429], [one.text for one in replies]
        run = next(one.json()["id"] for one in replies if one.status_code == 201)
        asked(client, run)
        client.post(f"/v1/runs/{run}/cancel")
        assert cost_of(client, run) == pytest.approx(0.1)
        other = begin(client, model=priced, folder=None)
        told = until(client, other, "end")
        assert told[0].data["budget"]["max_cost"] == pytest.approx(0.25)
        assert told[-2].data["detail"].startswith("cost: ")
        for way in ("resume", "messages", "rewind"):
            reply = client.post(f"/v1/runs/{run}/{way}", json=WAYS[way])
            assert (reply.status_code, "0.35 USD" in reply.text) == (429, True), (way, reply.text)
        assert len(client.get("/v1/runs").json()["runs"]) == 2


def test_a_run_that_was_killed_or_removed_has_cost_what_it_has(own: Stage, priced: str) -> None:
    token = own.token("killed", max_cost=0.25)
    with own.client(token) as client:
        run = begin(client, model=priced, approve="ask", folder=None, limits={"max_cost": 0.2})
        asked(client, run)
        killed(own)
    own.serve("-o", "answers=json", "--bot", str(own.path / "words.toml"), "--allow-model", priced)
    with own.client(token) as client:
        branch = client.post(f"/v1/runs/{run}/rewind", json={"turn": 0})
        assert branch.status_code == 201, branch.text
        at = branch.json()["id"]
        asked(client, at)
        first = next(iter(stream(client, at)))
        assert first.data["parent"] == run
        client.post(f"/v1/runs/{at}/cancel")
        for one in (run, at):
            assert client.delete(f"/v1/runs/{one}", params={"force": True}).status_code == 204
        last = begin(client, model=priced, folder=None)
        assert until(client, last, "end")[0].data["budget"]["max_cost"] == pytest.approx(0.05)


def test_a_key_is_not_that_of_a_branch(stage: Stage, admin: httpx2.Client) -> None:
    words = {"task": "count", "model": stage.script("branch", COUNT, COUNT, DONE, DONE)}
    first = admin.post("/v1/runs", json=words, headers={"Idempotency-Key": "branch"}).json()["id"]
    until(admin, first, "end")
    branch = admin.post(f"/v1/runs/{first}/rewind", json={"turn": 1}).json()["id"]
    until(admin, branch, "end")
    assert admin.post("/v1/runs", json=words, headers={"Idempotency-Key": "branch"}).json()["id"] == first


@pytest.mark.anyio
async def test_a_token_asks_so_often_and_is_told_when_again(tmp_path: Path) -> None:
    store, tokens = records.open_store(str(tmp_path / "record")), Tokens(tmp_path / "tokens.json")
    runs = Runs(spec_of({}), Roots.of([str(tmp_path)]), store, tokens)
    app = make_app(
        Served(runs, tokens, Uploads(store), Rate(2, 3, lambda: 0.0)), frozenset(), Sandboxes(spec_of({}), runs)
    )

    async def ask(token: str) -> httpx2.Response:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get("/v1/token", headers={"Authorization": f"Bearer {token}"})

    hasty, patient = (tokens.new(name, ("read",), 1, None) for name in ("hasty", "patient"))
    assert [(await ask(hasty)).status_code for _ in range(3)] == [200, 200, 200]
    late = await ask(hasty)
    assert (late.status_code, late.headers["Retry-After"]) == (429, "1")
    assert (await ask(patient)).status_code == 200
    await store.close()


def test_so_many_at_once_and_so_many_a_second() -> None:
    now = [0.0]
    rate = Rate(8, 3, lambda: now[0])
    assert [rate.wait_s("a") for _ in range(3)] == [0, 0, 0]
    assert rate.wait_s("a") == 0.125
    assert rate.wait_s("b") == 0
    now[0] = 0.125
    assert rate.wait_s("a") == 0
    assert rate.wait_s("a") == 0.125


def test_uploads_that_no_run_is_on_make_room_for_new_ones(stage: Stage) -> None:
    with stage.client(stage.token("sender", "read", "run")) as client:
        first = send(client)
        until(client, begin(client, folder=None, upload=first), "end")
        second, *_, last = [send(client) for _ in range(MAX_UPLOADS)]
        assert client.delete(f"/v1/uploads/{second}").status_code == 404
        assert client.post("/v1/runs", json={"task": "t", "upload": last}).status_code == 201
        assert client.post("/v1/runs", json={"task": "t", "upload": first}).status_code == 201


def send(client: httpx2.Client) -> str:
    reply = client.post("/v1/uploads", content=tar([(member("data.csv"), b"a\n")]))
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


def test_tools_and_what_the_machine_can_enforce(admin: httpx2.Client) -> None:
    assert "shell" in {one["name"] for one in admin.get("/v1/tools").json()}
    findings = admin.get("/v1/doctor").json()
    assert all(one["held"] for one in findings if one["required"])
    assert any(one["name"].startswith("escape: ") for one in findings)
