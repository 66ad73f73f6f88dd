"""Two machines that are one: `stockade sandbox serve` in one process, the other commands in another."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import PATIENCE_S, Stage


@contextmanager
def served(stage: Stage, *flags: str) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """A server and its address; it ends in order."""
    token = stage.tmp_path / "token"
    process = stage.start("sandbox", "serve", "--listen", "127.0.0.1:0", "--token-file", str(token), *flags)
    assert process.stdout is not None
    line = process.stdout.readline().decode().split()
    try:
        yield process, line[0]
    finally:
        killed = process.poll() == -signal.SIGKILL
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == (-signal.SIGKILL if killed else 130)


@pytest.fixture
def knowing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Knows where the token is."""
    monkeypatch.setenv("STOCKADE_TOKEN_FILE", str(stage.tmp_path / "token"))
    return stage


def test_commands_over_there(knowing: Stage) -> None:
    stage = knowing
    with served(stage, "--allow", f"{stage.demo}:rw") as (_, url):
        token = stage.tmp_path / "token"
        assert (token.stat().st_mode & 0o777, len(token.read_text().strip())) == (0o600, 43)
        there = ("--sandbox", url, "--folder", f"{stage.demo}:rw")
        done = stage.call(
            "sandbox", "exec", *there, "--", "sh", "-c", "cat; wc -l data.csv > out; exit 3", stdin=b"\0hi"
        )
        assert (done.status, done.out, done.err) == (3, "\0hi", "")
        assert (stage.demo / "out").read_text() == "3 data.csv\n"
        lines = b'{"command": "cd /tmp; A=1"}\n{"command": "pwd; echo $A"}\n'
        shell = stage.call("sandbox", "exec", "--jsonl", *there, stdin=lines)
        assert json.loads(shell.out.splitlines()[1])["stdout"] == "/tmp\n1\n"
        found = stage.call("sandbox", "health", url)
        assert (found.status, found.out) == (0, f"{url} serves sandboxes\n")
    assert stage.left_behind() == []


def test_a_bot_over_there_and_the_shell_bot_too_and_it_goes_on(knowing: Stage) -> None:
    stage = knowing
    with served(stage, "--allow", f"{stage.demo}:rw") as (_, url):
        write = json.dumps([{"file": "goal", "content": "learn C"}])
        script = stage.script(write, json.dumps([{"command": "cat goal data.csv"}]), json.dumps([{"command": "pwd"}]))
        common = (
            "auto",
            "--sandbox",
            url,
            "--workspace",
            str(stage.demo),
            "--model",
            script,
            "--json",
        )
        first = stage.call(*common, "--max-turns", "2", "--no-intro")
        assert (first.status, first.result["reason"], first.result["changes"]) == (3, "turns", [])
        assert (stage.demo / "goal").read_text() == "learn C"
        assert [event["goal"] for event in first.events if event["type"] == "self_config_changed"] == ["learn C"]
        again = stage.call("runs", "resume", "last", "--json", "--max-turns", "3")
        assert again.result["turns"] == 3
        output = next(event for event in again.events if event["type"] == "action_finished")["observation"]
        assert output["chunks"][0]["text"] == "/workspace\n"


def test_what_a_bots_command_writes_there_is_shown_here_and_nothing_of_ours(knowing: Stage) -> None:
    with served(knowing, "--allow", f"{knowing.demo}:rw") as (_, url):
        model = knowing.script(
            say("shell", command="echo one; until [ -e go ]; do sleep 0.05; done; echo two"),
            say("finish", answer="done"),
        )
        there = ("--sandbox", url, "--folder", f"{knowing.demo}:rw", "--model", model)
        process = knowing.start("run", "count", *there)
        assert process.stderr is not None
        seen = list(iter(process.stderr.readline, b"one\n"))
        kinds = [event["type"] for event in knowing.call("runs", "show", "--json").events]
        (knowing.demo / "go").touch()
        rest = process.stderr.read()
        assert process.wait(PATIENCE_S) == 0
    assert (kinds[-1], rest.count(b"two\n")) == ("action_started", 1)
    assert b"declare -x" not in b"".join([*seen, rest])


@pytest.mark.parametrize(
    ("flags", "status", "words"),
    [
        (("--folder", "/etc:ro"), 2, "does not allow /etc"),
        (("--folder", "{demo}", "--folder", "/srv:/srv:ro"), 2, "one kind of them"),
        (("--folder", "{demo}:rw"), 2, "does not allow"),
        (("--copy", "{demo}"), 2, "--copy cannot be used"),
        (("--net", "open"), 2, "does not allow this network"),
        (("--sandbox", "http://127.0.0.1:1"), 125, "no sandbox server answers at http://127.0.0.1:1"),
        (("--sandbox", "https://"), 2, "is no address"),
        (("--sandbox", "remote=127.0.0.1:1"), 2, "write https://HOST:8711"),
        (("--sandbox", "http://192.0.2.7:8711"), 2, "in the clear"),
    ],
)
def test_what_is_not_allowed_is_refused_in_one_line(
    knowing: Stage, flags: tuple[str, ...], status: int, words: str
) -> None:
    stage = knowing
    with served(stage, "--allow", str(stage.demo)) as (_, url):
        given = [flag.replace("{demo}", str(stage.demo)) for flag in flags]
        done = stage.call("sandbox", "exec", "--sandbox", url, *given, "--", "true")
    assert (done.status, words in done.err) == (status, True)
    assert "Traceback" not in done.err


def test_tokens_that_are_none(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    token = stage.tmp_path / "mine"
    monkeypatch.setenv("STOCKADE_TOKEN_FILE", str(token))

    def refused() -> str:
        with_address = stage.call("sandbox", "exec", "--sandbox", "http://127.0.0.1:1", "--", "true")
        assert with_address.status == 2
        return with_address.err

    assert "cannot be read" in refused()
    token.write_text("x" * 43)
    token.chmod(0o644)
    assert "others can read" in refused()
    token.write_text("short")
    token.chmod(0o600)
    assert "shorter than 32" in refused()
    token.unlink()
    token.mkdir()
    token.chmod(0o700)
    assert "no plain file" in refused()


def test_an_address_that_is_none_makes_no_token(stage: Stage) -> None:
    token = stage.tmp_path / "token"
    assert stage.call("sandbox", "serve", "--listen", "nowhere", "--token-file", str(token)).status == 2
    assert not token.exists()


def test_a_wrong_token_is_named(knowing: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(knowing) as (_, url):
        other = knowing.tmp_path / "other"
        other.write_text("y" * 43)
        other.chmod(0o600)
        monkeypatch.setenv("STOCKADE_TOKEN_FILE", str(other))
        done = knowing.call("sandbox", "exec", "--sandbox", url, "--", "true")
    assert (done.status, "does not take the token" in done.err) == (2, True)


def test_ending_the_server_ends_what_runs(knowing: Stage) -> None:
    stage = knowing
    with served(stage, "--allow", f"{stage.demo}:rw") as (server, url):
        client = stage.start("sandbox", "exec", "--sandbox", url, "--folder", f"{stage.demo}:rw", "--",
                             "sh", "-c", "echo on > begun; sleep 300")  # fmt: skip
        while not (stage.demo / "begun").exists():
            assert client.poll() is None
        os.killpg(server.pid, signal.SIGINT)
        assert server.wait(PATIENCE_S) == 130
        assert client.wait(PATIENCE_S) == 125
    assert stage.left_behind() == []


def test_two_servers_cannot_have_one_port(knowing: Stage) -> None:
    with served(knowing) as (_, url):
        token = str(Path(knowing.tmp_path) / "token")
        second = knowing.call("sandbox", "serve", "--listen", url.removeprefix("http://"), "--token-file", token)
    assert (second.status, "cannot be listened at" in second.err) == (2, True)
    assert knowing.call("sandbox", "health", url).status == 4


def test_a_wrong_certificate_is_named_and_the_right_one_is_taken(
    knowing: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(knowing, "--tls-self-signed") as (_, url):
        assert url.startswith("https://127.0.0.1:")
        command = ("sandbox", "exec", "--sandbox", url, "--", "echo", "over", "TLS")
        refused = knowing.call(*command)
        assert (refused.status, "nobody vouches for" in refused.err) == (125, True)
        found = next(Path(os.environ["XDG_STATE_HOME"]).rglob("cert.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(found))
        done = knowing.call(*command)
        assert (done.status, done.out, done.err) == (0, "over TLS\n", "")


def test_beyond_loopback_it_wants_tls(knowing: Stage) -> None:
    token = str(knowing.tmp_path / "token")
    done = knowing.call("sandbox", "serve", "--listen", "0.0.0.0:0", "--token-file", token)
    assert (done.status, "would be readable" in done.err) == (2, True)
    assert not Path(token).exists()


def test_a_run_goes_on_over_a_restart_of_the_server(knowing: Stage) -> None:
    """The second command finds the files of the first, in another sandbox, and the model is told."""
    stage = knowing
    wait = "touch begun; until [ -e go ]; do sleep 0.05; done"
    with served(stage, "--allow", f"{stage.demo}:rw") as (server, url):
        model = stage.script(
            say("shell", command="A=1; echo kept > kept"), say("shell", command=wait),
            say("shell", command="cat kept; echo [$A]"), say("finish", answer="done"),
        )  # fmt: skip
        there = ("--sandbox", url, "--folder", f"{stage.demo}:rw", "--model", model, "--json")
        run = stage.start("run", "go on", *there)
        while not (stage.demo / "begun").exists():
            assert run.poll() is None
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(PATIENCE_S)
        token = str(stage.tmp_path / "token")
        place = ("--listen", url.removeprefix("http://"), "--allow", f"{stage.demo}:rw")
        again = stage.start("sandbox", "serve", *place, "--token-file", token)
        assert run.stdout is not None
        events = [json.loads(line) for line in run.stdout.read().splitlines()]
        assert run.wait(PATIENCE_S) == 0
        os.killpg(again.pid, signal.SIGINT)
        assert again.wait(PATIENCE_S) == 130
    seen = [event["observation"] for event in events if event["type"] == "action_finished"]
    assert "started anew" in json.dumps(seen[1])
    assert (seen[2]["shell_event"], seen[2]["chunks"][0]["text"]) == ("shell_restarted", "kept\n[]\n")
