"""`--ssh-agent` from the flag to the record: git reaches the account that is named, and the key stays where it is."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, Stage
from tests.support.ssh import Ssh, ssh_server


def git(folder: Path, *arguments: str) -> str:
    words = ("git", "-c", "user.name=me", "-c", "user.email=me@localhost", *arguments)
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def ssh(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ssh]:
    (folder := stage.tmp_path / "ssh").mkdir()
    with ssh_server(folder, stage.home, monkeypatch) as found:
        git(stage.demo, "init", "-q", "-b", "main")
        git(stage.demo, "add", ".")
        git(stage.demo, "commit", "-q", "-m", "one")
        git(stage.tmp_path, "clone", "-q", "--bare", str(stage.demo), "there.git")
        git(stage.demo, "remote", "add", "origin", found.url(stage.tmp_path / "there.git"))
        yield found


NAMED = ("--env", "GIT_AUTHOR_NAME=bot", "--env", "GIT_AUTHOR_EMAIL=bot@localhost", "--env", "GIT_COMMITTER_NAME=bot",
         "--env", "GIT_COMMITTER_EMAIL=bot@localhost")  # fmt: skip


def test_git_pushes_pulls_and_lists_there(stage: Stage, ssh: Ssh) -> None:
    there = stage.tmp_path / "there.git"
    commands = (
        "git commit -q --allow-empty -m two && git push -q origin main",
        "git fetch origin && git ls-remote origin && ssh-add -l",
        'grep -rl "PRIVATE KEY" / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr 2>/dev/null; env',
    )
    model = [say("shell", command=command) for command in commands]
    ended = stage.run(*model, DONE, flags=("--ssh-agent", ssh.account, "--no-input", *NAMED))
    assert ended.status == 0, ended.err
    assert git(there, "log", "-1", "--format=%s by %an", "main") == "two by bot", ended.err
    assert ssh.logins() == 3
    events = stage.call("runs", "show", "--json").events
    assert events[0]["policy"]["network"]["hosts"] == [f"localhost:{ssh.port}"]
    found = [event for event in events if event["type"] == "network_requested" and event["method"] == "SSH-AGENT"]
    print_of_key = ssh.listed().split()[1]
    assert [one["reason"] for one in found] == [f"a signature by {print_of_key} as {ssh.account.split('@')[0]}"] * 3
    assert {one["verdict"] for one in found} == {"allowed"}
    outputs = [str(event["observation"]) for event in events if event["type"] == "action_finished"]
    assert print_of_key in outputs[1]
    assert "secret comment" not in outputs[1]
    assert "PRIVATE KEY" not in outputs[2]
    assert "SSH_AUTH_SOCK=/tmp/.ssh-agent" in outputs[2]


def test_all_but_a_login_to_that_account_is_refused_and_named(stage: Stage, ssh: Ssh) -> None:
    script = (
        "ssh-add -D; ssh-keygen -q -t ed25519 -N '' -f /tmp/k; ssh-add /tmp/k; ssh-add -d /tmp/k.pub;"
        " ssh-add -L > /tmp/mine.pub; echo hi | ssh-keygen -Y sign -n git -f /tmp/mine.pub"
    )
    ended = stage.run(say("shell", command=script), DONE, flags=("--ssh-agent", ssh.account, "--no-input"))
    events = stage.call("runs", "show", "--json").events
    reasons = {one["reason"] for one in events if one["type"] == "network_requested" and one["verdict"] == "refused"}
    assert reasons == {
        "the agent is asked to remove all keys",
        "the agent is asked to remove all keys of version 1", "the agent is asked to add a key",
        "the agent is asked to remove a key", "a signature of what is no log-in by ssh",
    }, ended.err  # fmt: skip
    assert ssh.logins() == 0
    assert "secret comment" in ssh.listed()


def test_without_the_flag_nothing_of_it_is_there(stage: Stage, ssh: Ssh) -> None:
    flags = ("--net", f"localhost:{ssh.port}", "--no-input")
    ended = stage.run(
        say("shell", command="git ls-remote origin; echo [$SSH_AUTH_SOCK]; ls -A /tmp"), DONE, flags=flags
    )
    assert (ended.status, ssh.logins()) == (0, 0), ended.err
    assert "[]" in ended.err
    assert ".ssh-agent" not in ended.err


def test_what_cannot_be_is_one_line(stage: Stage, ssh: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    for account, why in (("me@nowhere.example", "no key of nowhere.example is in your known_hosts"),
                         ("nowhere.example", "'nowhere.example' is no account of a host"),
                         ("me@127.0.0.1", "'me@127.0.0.1' is no account of a host")):  # fmt: skip
        ended = stage.run(DONE, flags=("--ssh-agent", account, "--no-input"))
        assert (ended.status, why in ended.err) == (2, True), ended.err
    monkeypatch.setenv("SSH_AUTH_SOCK", str(stage.tmp_path))
    ended = stage.run(DONE, flags=("--ssh-agent", ssh.account, "--no-input"))
    assert (ended.status, "no ssh-agent runs here" in ended.err) == (2, True), ended.err


def test_a_record_alone_lends_nothing(stage: Stage, ssh: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a record says may be anybody's."""
    listing = say("shell", command="git ls-remote origin")
    assert stage.run(listing, DONE, flags=("--ssh-agent", ssh.account, "--no-input")).status == 0
    again = ("runs", "resume", "last", "again", "--no-input", "--model", stage.script(listing, DONE))
    ended = stage.call(*again)
    assert (ended.status, f"--ssh-agent {ssh.account}, which is taken from no record" in ended.err) == (2, True)
    assert ssh.logins() == 1
    monkeypatch.setenv("STOCKADE_SSH_AGENT", ssh.account)
    assert stage.call(*again).status == 0
