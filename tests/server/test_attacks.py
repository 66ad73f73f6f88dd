"""Attacks by those who may ask, or only connect: docs/serve-security.md lists these and the others."""

import socket
from pathlib import Path

import httpx2
import pytest

from stockade.testing import say
from tests.server.conftest import DONE, PATIENCE_S, Stage, asked, begin, until


def sent(client: httpx2.Client, head: str) -> str:
    """All that is answered to these bytes."""
    at = client.base_url.host, client.base_url.port
    with socket.create_connection(at, timeout=PATIENCE_S) as connection:
        connection.sendall(head.replace("TOKEN", client.headers["Authorization"]).encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


@pytest.mark.parametrize("path", [
    "/v1/runs/%0d%0aSet-Cookie:a=b", "/v1/runs/x/files/%0d%0aSet-Cookie:a=b", "/v1/uploads/%0aSet-Cookie:a=b",
    "/v1/runs/", "//evil.example/", "/page/..%2f..%2fapi.py", "/page/%2e%2e/api.py",
    "/v1/runs/..%2f..%2fetc%2fpasswd/files/x",
])  # fmt: skip
def test_a_path_sets_no_header_and_leads_nowhere_else(path: str, admin: httpx2.Client) -> None:
    answer = sent(admin, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: TOKEN\r\nConnection: close\r\n\r\n")
    head, _, body = answer.partition("\r\n\r\n")
    assert head.splitlines()[0].split()[1] in ("404", "405"), answer
    assert "set-cookie" not in head.lower()
    assert "location" not in head.lower()
    assert "root:" not in body


def test_two_lengths_or_two_hosts_are_no_request(admin: httpx2.Client) -> None:
    """Request smuggling past a proxy."""
    start = "POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: TOKEN\r\nConnection: close\r\n"
    for more in ("Content-Length: 4\r\nContent-Length: 5\r\n", "Host: other.example\r\n", "Content-Length : 4\r\n"):
        assert sent(admin, f"{start}{more}\r\n").split()[1] == "400", more


def test_a_schema_fetches_nothing(admin: httpx2.Client) -> None:
    """SSRF, and files of the server's machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        for target in (f"http://127.0.0.1:{listener.getsockname()[1]}/x", "file:///etc/passwd"):
            reply = admin.post("/v1/runs", json={"task": "t", "folder": ".", "output_schema": {"$ref": target}})
            assert reply.status_code in (201, 422), reply.text
            if reply.status_code == 201:
                until(admin, reply.json()["id"], "end")
            assert "root:" not in reply.text
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_what_is_logged_is_one_line_that_shows_what_it_holds(own: Stage) -> None:
    """Log injection, and escapes for the terminal that shows the log."""
    own.serve()
    with own.client(own.token("admin")) as client:
        run = begin(client, approve="ask")
        asked(client, run)
        named = "scripted/none\nstockade: the first token\x1b]0;owned\x07\u202e"
        reply = client.post("/v1/runs", json={"task": "t", "folder": ".", "model": named})
        if reply.status_code == 201:
            until(client, reply.json()["id"], "end")
        client.post(f"/v1/runs/{run}/cancel")
    log = (own.path / "stderr").read_text()
    assert "\nstockade: the first token\x1b" not in log
    assert not {"\x1b", "\x07", "\u202e"} & set(log)


def test_what_a_bot_wrote_is_never_a_page_of_ours(stage: Stage, admin: httpx2.Client) -> None:
    page = "<script>alert(1)</script>"
    files = [say("write_file", path=f"x.{kind}", content=page) for kind in ("html", "svg", "js")]
    run = begin(admin, model=stage.script("pages", *files, DONE))
    until(admin, run, "end")
    for kind in ("html", "svg", "js"):
        reply = admin.get(f"/v1/runs/{run}/files/x.{kind}")
        assert (reply.status_code, reply.text) == (200, page)
        assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in reply.headers["Content-Security-Policy"]


def test_a_sandbox_for_a_client_takes_nothing_of_the_servers_machine(stage: Stage, tmp_path: Path) -> None:
    """Files by copies, links and root file systems; commands as where a credential comes from; an SSRF by its network;
    and what leads out of it by a path.
    """
    ran, secret = tmp_path / "ran", tmp_path / "secret"
    secret.write_text("of the host")
    (stage.demo / "way").symlink_to(tmp_path)
    credential = {"name": "TOKEN", "host": "example.org", "source": f"exec:touch {ran}"}
    policies: tuple[dict[str, object], ...] = (
        {"copies": [{"host": str(secret), "inside": "/tmp/x"}]},
        {"copies": [{"host": str(stage.demo / "way"), "inside": "/tmp/x"}]},
        {"folders": [{"host": f"{stage.demo}/way", "mode": "ro"}]},
        {"lent": [{"host": str(tmp_path), "mode": "ro", "inside": "/x"}]},
        {"rootfs": "/"},
        {"system": [str(tmp_path)]},
        {"ports": [22]},
        {"credentials": [credential], "network": {"mode": "allow", "hosts": ["example.org"]}},
        {"ssh_agent": [{"user": "git", "host": "example.org"}]},
        {"network": {"mode": "open"}},
        {"network": {"mode": "allow", "hosts": ["169.254.169.254"]}},
    )
    with stage.client(stage.token("boxes", "run")) as client:
        for policy in policies:
            reply = client.post("/v1/sandboxes", json={"policy": policy})
            assert reply.status_code == 422, (policy, reply.text)
        where = client.post("/v1/sandboxes", json={"policy": {}}).headers["Location"]
        for path in (f"..%2f..%2f..{secret}", f"%2e%2e/%2e%2e{secret}", f"proc/1/root{secret}", str(secret)[1:]):
            reply = client.get(f"{where}/files/{path}")
            assert reply.status_code in (404, 422), (path, reply.text)
            assert "of the host" not in reply.text
        name = {"Idempotency-Key": "a b\tc"}
        assert client.post("/v1/sandboxes", json={"policy": {}}, headers=name).status_code == 422
        assert client.delete(where).status_code == 200
    assert not ran.exists()
