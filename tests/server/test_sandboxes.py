"""/v1/sandboxes within `stockade serve`: another machine's `--sandbox URL`, by this server's tokens."""

import subprocess
import sys

import httpx2
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


def plain(stage: Stage, token: str) -> httpx2.Client:
    return httpx2.Client(base_url=stage.url, headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE_S)


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
    with plain(stage, stage.token("one")) as one, plain(stage, stage.token("two")) as two:
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
