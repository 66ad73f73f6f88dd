"""Who may what: tokens, other tokens' runs, names of the server, pages of other sites, sizes, addresses."""

import hashlib
import json
import os
import re
import resource
import select
import socket
import ssl
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2
import pytest

from stockade.server.guard import MAX_BODY
from stockade.testing import say
from tests.server.conftest import COUNT, DONE, PATIENCE_S, Stage, asked, begin, until

OPEN = ("/healthz", "/login", "/logout", "/readyz")


@pytest.fixture(scope="module")
def others(stage: Stage) -> str:
    """A run of somebody else's, which waits and has changes."""
    with stage.client(stage.token("somebody")) as client:
        run = begin(client, approve="ask")
        asked(client, run)
        return run


def routes(stage: Stage) -> Iterator[tuple[str, str]]:
    """Each method and path that there is, as the server itself says."""
    paths = httpx2.get(f"{stage.url}/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for method in methods:
            yield method.upper(), path


def test_nothing_is_answered_without_a_token(stage: Stage, others: str) -> None:
    found = [one for one in routes(stage) if one[1] not in OPEN]
    assert len(found) > 20
    token = stage.tokens.new("gone", ("admin",), 1, None)
    stage.tokens.remove("gone")
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    for method, path in found:
        at = path.replace("{run}", others).replace("{number}", "1").replace("{path}", "x").replace("{upload}", "a" * 16)
        for header in ({}, {"Authorization": f"Bearer {token}"}, {"Authorization": f"Bearer {wrong}"},
                       {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer stk_" + "é" * 9}):  # fmt: skip
            headers = {name.encode(): value.encode() for name, value in header.items()}
            reply = httpx2.request(method, stage.url + at, headers=headers, json={"task": "t", "text": "t"})
            assert reply.status_code == 401, (method, path, header, reply.text)


def test_another_tokens_run_is_not_there(stage: Stage, others: str) -> None:
    bodies = {"messages": {"text": "t"}, "approvals/1": {"allow": True}, "rewind": {"turn": 1}}
    with stage.client(stage.token("nosy", "read", "run", "approve")) as client:
        mine = [(method, path) for method, path in routes(stage) if "{run}" in path]
        assert len(mine) > 12
        for method, path in mine:
            at = path.replace("{run}", others).replace("{number}", "1").replace("{path}", "x")
            body = next((body for end, body in bodies.items() if at.endswith(end)), {})
            reply = client.request(method, at, json=body, headers={"If-Match": "*"})
            assert reply.status_code == 404, (method, path, reply.text)
            none = client.request(method, at.replace(others, "20000101-000000-aaaa"), json=body)
            assert none.json()["detail"].replace("20000101-000000-aaaa", others) == reply.json()["detail"]
        assert client.get("/v1/runs").json()["runs"] == []
    with stage.client(stage.token("overseer")) as client:
        assert client.get(f"/v1/runs/{others}").json()["status"] == "asking"


@pytest.mark.parametrize(("scope", "may"), [("read", {"read"}), ("run", {"run"}), ("approve", {"approve"})])
def test_a_token_does_only_what_it_is_for(scope: str, may: set[str], stage: Stage) -> None:
    tries = {
        "read": ("GET", "/v1/runs", None),
        "run": ("POST", "/v1/runs", {"task": ""}),
        "approve": ("POST", "/v1/runs/x/undo", {}),
        "admin": ("GET", "/metrics", None),
    }
    with stage.client(stage.token(f"only {scope}", scope)) as client:  # type: ignore[arg-type]
        for name, (method, path, body) in tries.items():
            reply = client.request(method, path, json=body)
            assert (reply.status_code != 403) == (name in may), (name, reply.text)


def test_tokens_are_kept_as_hashes_for_this_user_alone(stage: Stage) -> None:
    token = stage.token("kept")
    text = stage.tokens.path.read_text()
    assert token not in text
    assert token.rpartition("_")[2] not in text
    assert stat.S_IMODE(os.stat(stage.tokens.path).st_mode) == 0o600
    assert all(re.fullmatch("[0-9a-f]{64}", one["sha256"]) for one in json.loads(text))


def test_a_token_for_which_there_is_no_room_is_said_to_be_none(own: Stage) -> None:
    command = ["prlimit", "--fsize=0", *own.command("token", "new", "ann")]
    done = subprocess.run(command, env=own.environment(), capture_output=True, text=True, cwd=own.demo, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert "tokens.json cannot be written: File too large" in done.stderr
    assert own.tokens.all() == []


def test_a_token_is_made_listed_and_removed_by_the_command(own: Stage) -> None:
    made = own.call("token", "new", "ci", "--scope", "read", "--runs", "2", "--max-cost", "1.5")
    assert made.stdout.startswith("stk_")
    assert "read · 2 runs · 1.5 USD" in own.call("token", "list").stdout
    again = own.call("token", "new", "ci")
    assert (again.returncode, "there is a token 'ci' already" in again.stderr) == (2, True)
    assert own.call("token", "rm", "ci").returncode == 0
    assert own.call("token", "rm", "ci").returncode == 2
    assert own.call("token", "list").stdout == ""


@pytest.mark.parametrize("name", ["", " ", "\udcff", "a\nb", "\x1b[2J"])
def test_no_token_has_a_name_that_no_line_can_show(name: str, own: Stage) -> None:
    made = own.call("token", "new", "--", name)
    assert (made.returncode, made.stdout) == (2, "")
    assert "no token can have the name" in made.stderr
    assert own.tokens.all() == []


@pytest.mark.parametrize("host", ["evil.example", "evil.example:87", "127.0.0.1.evil.example", "", "[::1", "a@b@c"])
def test_another_name_of_the_server_is_refused(host: str, stage: Stage) -> None:
    """DNS rebinding: a page got a name of its own to lead here."""
    reply = httpx2.get(f"{stage.url}/healthz", headers={"Host": host})
    assert reply.status_code in (400, 421), reply.text


def test_a_page_of_another_site_is_refused(stage: Stage, admin: httpx2.Client) -> None:
    for origin in ("http://evil.example", "null", "https://127.0.0.1", stage.url + "0"):
        reply = admin.post("/v1/runs", json={"task": "t"}, headers={"Origin": origin})
        assert reply.status_code == 403, origin
        assert "access-control-allow-origin" not in reply.headers
    assert admin.get("/v1/runs", headers={"Origin": stage.url}).status_code == 200


def raw(client: httpx2.Client, header: str) -> bytes:
    """The first line of the answer to a request of which nothing but its head is sent."""
    at = client.base_url.host, client.base_url.port
    with socket.create_connection(at, timeout=PATIENCE_S) as connection:
        name = client.headers["Authorization"]
        head = f"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {name}\r\n{header}\r\n\r\n"
        with suppress(ConnectionError):  # it may have answered and closed before all of it
            connection.sendall(head.encode())
        return connection.recv(100)


def test_a_request_that_is_too_large_is_refused(admin: httpx2.Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"task": "'
        for _ in range(MAX_BODY >> 16):
            yield b"x" * (1 << 16)
        yield b'"}'

    json_type = {"Content-Type": "application/json"}
    assert b" 413 " in raw(admin, f"Content-Length: {MAX_BODY + 1}")
    assert b" 413 " in raw(admin, "Content-Length: " + "9" * 19)
    assert b" 400 " in raw(admin, "Content-Length: -1")
    assert admin.post("/v1/runs", content=pieces(), headers=json_type).status_code == 413
    assert b" 400 " in raw(admin, "X: " + "x" * 300_000)
    nested = b'{"task": ' + b"[" * 100_000
    assert admin.post("/v1/runs", content=nested, headers=json_type).status_code == 400


def test_a_token_has_so_many_runs_at_once_and_so_much_money(stage: Stage) -> None:
    with stage.client(stage.token("bounded", "read", "run", "approve", at_once=1)) as client:
        run = begin(client, approve="ask")
        reply = client.post("/v1/runs", json={"task": "t"})
        assert (reply.status_code, reply.json()["hint"]) == (429, "wait for one of them, or cancel one")
        client.post(f"/v1/runs/{run}/cancel")
        until(client, begin(client), "end")
    with stage.client(stage.token("poor", "read", "run", max_cost=0)) as client:
        reply = client.post("/v1/runs", json={"task": "t"})
        assert (reply.status_code, "0 USD" in reply.text) == (429, True)


def test_the_model_of_the_bots_file_is_the_servers_whatever_bot_is_asked(own: Stage) -> None:
    model, bot = own.script("bots", COUNT, DONE), own.path / "own.toml"
    bot.write_text(f'prompt = "p"\nmodel = "{model}"\nmax_turns = 1\n')
    own.serve("--bot", str(bot), model=False)
    with own.client(own.token("client", "read", "run")) as client:
        assert client.get("/v1/models").json() == [model]
        for more, turns in (({}, 1), ({"model": model}, 1), ({"model": model, "bot": "reading"}, 2)):
            run = begin(client, limits={"max_turns": 5}, **more)
            assert until(client, run, "end")[-1].name == "end"
            found = client.get(f"/v1/runs/{run}").json()
            assert (found["model"], found["turns"]) == (model, turns)


def test_a_client_names_no_other_model_and_asks_no_less(own: Stage) -> None:
    own.serve("--approve", "ask", "--allow-model", "scripted/allowed")
    with own.client(own.token("client", "read", "run")) as client:
        reply = client.post("/v1/runs", json={"task": "t", "model": "openai/http://169.254.169.254/"})
        assert (reply.status_code, "does not ask the model" in reply.text) == (422, True)
        assert client.post("/v1/runs", json={"task": "t", "approve": "never"}).status_code == 422
        assert "check: Input should be a list" in client.post("/v1/runs", json={"task": "t", "check": "x"}).text
        assert client.get("/v1/models").json()[1:] == ["scripted/allowed"]
        assert client.get("/v1/models/scripted/allowed").json()["state"] == "unknown"
        assert client.get("/v1/models/openai/http://169.254.169.254/").status_code == 404
        assert "writing" in client.get("/v1/bots").json()
        run = begin(client)
        assert asked(client, run)["action"]["tool"] == "shell"


def test_beyond_this_machine_only_with_tls_or_a_proxy(own: Stage) -> None:
    refused = own.call("--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 2
    assert "beyond this machine" in refused.stderr
    assert "--tls-self-signed" in refused.stderr
    own.serve("--host", "0.0.0.0", "--behind-proxy", "box.example")
    at = own.url.replace("0.0.0.0", "127.0.0.1")
    assert httpx2.get(f"{at}/healthz", headers={"Host": "box.example"}).status_code == 200
    assert httpx2.get(f"{at}/healthz", headers={"Host": "other.example"}).status_code == 421


def test_a_certificate_of_its_own_is_known_by_its_fingerprint(own: Stage) -> None:
    own.serve("--tls-self-signed")
    assert own.url.startswith("https://127.0.0.1:")
    port = int(own.url.rpartition(":")[2])
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    printed = re.search("SHA-256 is ([0-9A-F:]+)", (own.path / "stderr").read_text())
    assert printed is not None
    assert printed[1].replace(":", "").lower() == hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    trusted = ssl.create_default_context(cadata=pem)
    assert httpx2.get(f"{own.url}/healthz", verify=trusted).json()["status"] == "ok"
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{own.url}/healthz")


def test_the_first_start_shows_a_token_once_and_says_how_it_goes(own: Stage) -> None:
    own.serve()
    shown = re.findall(r"stk_\S+", (own.path / "stderr").read_text())
    assert len(shown) == 1
    with own.client(shown[0]) as client:
        assert client.get("/metrics").text.count("# TYPE") == 4
        until(client, begin(client), "end")
        assert 'stockade_runs{status="done"} 1' in client.get("/metrics").text
    own.end()
    own.serve()
    assert len(re.findall(r"stk_\S+", (own.path / "stderr").read_text())) == 1
    assert "Warning" not in (own.path / "stderr").read_text()


def test_who_sends_nothing_or_slowly_is_let_go_and_the_others_are_served(stage: Stage, admin: httpx2.Client) -> None:
    """Slowloris, and a thousand open connections."""
    at = admin.base_url.host, admin.base_url.port
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
        silent = [stack.enter_context(socket.create_connection(at, timeout=PATIENCE_S)) for _ in range(1000)]
        slow = stack.enter_context(socket.create_connection(at, timeout=PATIENCE_S))
        slow.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        assert admin.get("/healthz").status_code == 200
        with suppress(ConnectionError):
            while not select.select([slow], [], [], 0.5)[0]:
                slow.sendall(b"x")
        assert all(one.recv(1) == b"" for one in silent)
    assert admin.get("/healthz").status_code == 200


def test_readers_that_read_nothing_cost_little_and_hold_up_nobody(stage: Stage, admin: httpx2.Client) -> None:
    """As many again come late, when all of it could be read for them at once."""
    files = [say("write_file", path=f"large{number}", content=str(number) * 800_000) for number in range(9)]
    run = begin(admin, model=stage.script("loud", *files, DONE), approve="ask")
    number = asked(admin, run)["number"]
    status, deaf = Path(f"/proc/{stage.running[-1].pid}/status"), 30
    with ExitStack() as stack:
        for _ in range(deaf):
            stack.enter_context(deaf_reader(admin, run))
        admin.post(f"/v1/runs/{run}/approvals/{number}", json={"allow": True})
        for _ in files[1:]:
            number = asked(admin, run)["number"]
            admin.post(f"/v1/runs/{run}/approvals/{number}", json={"allow": True})
        whole = sum(len(str(one.data)) for one in until(admin, run, "end"))
        before = rss(status)
        for _ in range(deaf):
            assert stack.enter_context(deaf_reader(admin, run)).recv(1)
        until(admin, run, "end")
        after = rss(status)
    assert whole > 10_000_000
    assert max(before, after) < deaf * whole / 2, "each reader was kept all that it had not read"
    assert admin.get(f"/v1/runs/{run}").json()["status"] == "done"


def deaf_reader(client: httpx2.Client, run: str) -> socket.socket:
    connection = socket.create_connection((client.base_url.host, client.base_url.port), timeout=PATIENCE_S)
    name = client.headers["Authorization"]
    head = f"GET /v1/runs/{run}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {name}\r\n\r\n"
    connection.sendall(head.encode())
    return connection


def rss(status: Path) -> int:
    return int(status.read_text().partition("VmRSS:")[2].split()[0]) << 10
