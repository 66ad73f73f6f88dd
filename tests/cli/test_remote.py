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
    assert line[0] == "serving"
    try:
        yield process, line[1]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130


@pytest.fixture
def knowing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Knows where the token is."""
    monkeypatch.setenv("STOCKADE_TOKEN_FILE", str(stage.tmp_path / "token"))
    return stage


def test_commands_over_there(knowing: Stage) -> None:
    stage = knowing
    with served(stage, "--allow", f"{stage.demo}:rw") as (_, address):
        token = stage.tmp_path / "token"
        assert (token.stat().st_mode & 0o777, len(token.read_text().strip())) == (0o600, 43)
        there = ("--sandbox", f"remote={address}", "--folder", f"{stage.demo}:rw")
        done = stage.call(
            "sandbox", "exec", *there, "--", "sh", "-c", "cat; wc -l data.csv > out; exit 3", stdin=b"\0hi"
        )
        assert (done.status, done.out, done.err) == (3, "\0hi", "")
        assert (stage.demo / "out").read_text() == "3 data.csv\n"
        lines = b'{"command": "cd /tmp; A=1"}\n{"command": "pwd; echo $A"}\n'
        shell = stage.call("sandbox", "exec", "--jsonl", *there, stdin=lines)
        assert json.loads(shell.out.splitlines()[1])["stdout"] == "/tmp\n1\n"
        found = stage.call("sandbox", "health", address)
        assert (found.status, found.out) == (0, f"{address} serves sandboxes, protocol 3\n")
    assert stage.left_behind() == []


def test_a_bot_over_there_and_the_shell_bot_too_and_it_goes_on(knowing: Stage) -> None:
    stage = knowing
    with served(stage, "--allow", f"{stage.demo}:rw") as (_, address):
        write = json.dumps([{"file": "goal", "content": "learn C"}])
        script = stage.script(write, json.dumps([{"command": "cat goal data.csv"}]), json.dumps([{"command": "pwd"}]))
        common = (
            "auto",
            "--sandbox",
            f"remote={address}",
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
    with served(knowing, "--allow", f"{knowing.demo}:rw") as (_, address):
        model = knowing.script(
            say("shell", command="echo one; until [ -e go ]; do sleep 0.05; done; echo two"),
            say("finish", answer="done"),
        )
        there = ("--sandbox", f"remote={address}", "--folder", f"{knowing.demo}:rw", "--model", model)
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
        (("--folder", "{demo}"), 2, "read or written there"),
        (("--folder", "{demo}:rw"), 2, "does not allow"),
        (("--copy", "{demo}"), 2, "--copy cannot be used"),
        (("--net", "open"), 2, "does not allow this network"),
        (("--sandbox", "remote=127.0.0.1:1"), 125, "no sandbox server answers at 127.0.0.1:1"),
        (("--sandbox", "remote=nowhere"), 2, "is no address"),
    ],
)
def test_what_is_not_allowed_is_refused_in_one_line(
    knowing: Stage, flags: tuple[str, ...], status: int, words: str
) -> None:
    stage = knowing
    with served(stage, "--allow", str(stage.demo)) as (_, address):
        given = [flag.replace("{demo}", str(stage.demo)) for flag in flags]
        done = stage.call("sandbox", "exec", "--sandbox", f"remote={address}", *given, "--", "true")
    assert (done.status, words in done.err) == (status, True)
    assert "Traceback" not in done.err


def test_tokens_that_are_none(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    token = stage.tmp_path / "mine"
    monkeypatch.setenv("STOCKADE_TOKEN_FILE", str(token))

    def refused() -> str:
        with_address = stage.call("sandbox", "exec", "--sandbox", "remote=127.0.0.1:1", "--", "true")
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
    with served(knowing) as (_, address):
        other = knowing.tmp_path / "other"
        other.write_text("y" * 43)
        other.chmod(0o600)
        monkeypatch.setenv("STOCKADE_TOKEN_FILE", str(other))
        done = knowing.call("sandbox", "exec", "--sandbox", f"remote={address}", "--", "true")
    assert (done.status, "does not take the token" in done.err) == (2, True)


def test_ending_the_server_ends_what_runs(knowing: Stage) -> None:
    stage = knowing
    with served(stage, "--allow", f"{stage.demo}:rw") as (server, address):
        client = stage.start("sandbox", "exec", "--sandbox", f"remote={address}", "--folder", f"{stage.demo}:rw", "--",
                             "sh", "-c", "echo on > begun; sleep 300")  # fmt: skip
        while not (stage.demo / "begun").exists():
            assert client.poll() is None
        os.killpg(server.pid, signal.SIGINT)
        assert server.wait(PATIENCE_S) == 130
        assert client.wait(PATIENCE_S) == 125
    assert stage.left_behind() == []


def test_two_servers_cannot_have_one_port(knowing: Stage) -> None:
    with served(knowing) as (_, address):
        token = str(Path(knowing.tmp_path) / "token")
        second = knowing.call("sandbox", "serve", "--listen", address, "--token-file", token)
    assert (second.status, "--listen" in second.err) == (2, True)
    assert knowing.call("sandbox", "health", address).status == 4
