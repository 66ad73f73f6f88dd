"""/v1/sandboxes within `stockade serve`: another machine's `--sandbox URL`, by this server's tokens."""

import subprocess
import sys

import pytest

from tests.server.conftest import PATIENCE_S, Stage


def there(stage: Stage, token: str, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**stage.environment(), "STOCKADE_TOKEN": token}
    return subprocess.run(
        [sys.executable, "-m", "stockade.cli", "sandbox", *words], env=environment, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def test_commands_in_a_sandbox_of_the_server(stage: Stage) -> None:
    token = stage.token("runs", "run")
    assert there(stage, "", "health", stage.url).stdout == f"{stage.url} serves sandboxes\n"
    done = there(stage, token, "exec", "--sandbox", stage.url, "--folder", f"{stage.demo}:ro", "--", "cat", "data.csv")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\nb\nc\n", "")
    assert list((stage.path / "STATE" / "stockade" / "runs").glob("*")) == []


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("{demo}:rw", "does not allow"),
        ("/etc:ro", "does not allow"),
        ("{demo}/../STATE:ro", "does not allow"),
    ],
)
def test_the_folders_are_the_servers_and_only_read(stage: Stage, folder: str, words: str) -> None:
    token = stage.token(f"folder {folder}")
    given = folder.replace("{demo}", str(stage.demo))
    done = there(stage, token, "exec", "--sandbox", stage.url, "--folder", given, "--", "ls")
    assert (done.returncode, words in done.stderr) == (2, True)


def test_who_has_no_token_or_another_has_nothing(stage: Stage) -> None:
    wrong = there(stage, "x" * 43, "exec", "--sandbox", stage.url, "--", "true")
    reader = there(stage, stage.token("only reads", "read"), "exec", "--sandbox", stage.url, "--", "true")
    for done in (wrong, reader):
        assert (done.returncode, "does not take the token" in done.stderr) == (2, True), done.stderr
    with stage.client(stage.token("one")) as one, stage.client(stage.token("two")) as two:
        made = one.post("/v1/sandboxes", json={"policy": {}})
        assert made.status_code == 201, made.text
        place = made.headers["Location"]
        assert one.get(place).status_code == 200
        assert two.get(place).status_code == 404
        assert two.get("/v1/sandboxes").json() == {"sandboxes": []}
        assert two.delete(place).status_code == 200
        assert one.get(place).status_code == 200
        assert one.delete(place).status_code == 200
        page = one.post("/v1/sandboxes", json={"policy": {}}, headers={"Origin": "https://evil.test"})
        assert page.status_code == 403


def test_each_route_answers_as_it_is_described(stage: Stage) -> None:
    """By the check of `Stage.client`; and another token has nothing of it."""
    with stage.client(stage.token("owner")) as client, stage.client(stage.token("stranger", "run")) as stranger:
        where = client.post("/v1/sandboxes", json={"policy": {}}, headers={"Idempotency-Key": "box1"}).headers[
            "Location"
        ]
        assert where == "/v1/sandboxes/box1"
        assert [one["id"] for one in client.get("/v1/sandboxes").json()["sandboxes"]] == ["box1"]
        assert client.put(f"{where}/files/tmp/a%20b", content=b"\x00one").status_code == 204
        assert client.get(f"{where}/files/tmp/a%20b").content == b"\x00one"
        assert client.get(f"{where}/files/tmp/none").status_code == 404
        assert client.get(f"{where}/files/tmp").status_code == 422
        named = {"Idempotency-Key": "cat"}
        program = client.post(f"{where}/programs", json={"argv": ["cat"]}, headers=named).headers["Location"]
        tries: tuple[tuple[str, str, object], ...] = (
            ("GET", where, None), ("GET", f"{where}/events", None), ("GET", program, None),
            ("POST", f"{where}/programs", {"argv": ["true"]}), ("GET", f"{program}/events", None),
            ("POST", f"{program}/stdin", {}), ("POST", f"{program}/signal", {}), ("DELETE", program, None),
            ("POST", f"{program}/resize", {"rows": 1, "columns": 1}), ("GET", f"{where}/files/tmp/a", None),
            ("PUT", f"{where}/files/tmp/a", {}),
        )  # fmt: skip
        for method, path, body in tries:
            assert stranger.request(method, path, json=body).status_code == 404, (method, path)
        assert client.post(f"{where}/programs", json={"argv": ["tac"]}, headers=named).status_code == 409
        assert client.post(f"{where}/programs", json={}).status_code == 422
        assert client.post(f"{program}/stdin", params={"at": 7}, content=b"x").status_code == 409
        assert client.post(f"{program}/resize", json={"rows": 0, "columns": 1}).status_code == 422
        assert client.post(f"{program}/stdin", params={"at": 0, "end": 1}, content=b"read").status_code == 204
        with client.stream("GET", f"{program}/events") as told:
            lines = [line for line in told.iter_lines() if line.startswith(("event:", "data:"))]
        assert lines == ["event: stdout", "data: cmVhZA==", "event: end", "data: "]
        assert client.get(program, params={"wait": 9}).json()["status"] == 0
        assert client.post(f"{program}/signal", json={"number": 15}).status_code == 204
        shell = client.post(f"{where}/programs", json={"shell": "echo here"}).headers["Location"]
        assert client.get(shell, params={"wait": 9, "network": 0}).json()["output"]["exit_code"] == 0
        assert client.post(f"{shell}/resize", json={"rows": 1, "columns": 1}).status_code == 422
        assert client.delete(shell).status_code == 204
        assert client.delete(where, params={"network": "x"}).status_code == 422
        assert client.delete(where, params={"network": 0}).status_code == 200
        assert client.get(where).status_code == 404
        assert client.post("/v1/sandboxes", json={"policy": {}}, headers={"Idempotency-Key": "box1"}).status_code == 404
