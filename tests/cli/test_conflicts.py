"""Somebody works on the host while a bot does: real git there, the real command, a real sandbox."""

import json
import subprocess
from collections.abc import Callable

import pytest

from stockade.testing import say
from tests.cli.conftest import Stage

LINES = "".join(f"line {number}\n" for number in range(1, 9))
PASS_THE_TIME = say("shell", command="sleep 1")
SANDBOXES = ("bubblewrap", "unconfined")
"""An overlay and a copy."""


def git(stage: Stage, *args: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    return subprocess.run(["git", *who, *args], cwd=stage.demo, check=True, capture_output=True, text=True).stdout


def on_host(stage: Stage, script: str) -> None:
    subprocess.run(["bash", "-ec", script], cwd=stage.demo, check=True)


def run(stage: Stage, sandbox: str, command: str, meanwhile: Callable[[], object]) -> None:
    """A bot does `command` and goes on; once that is on record the user does something."""
    done = say("finish", answer="done")
    model = stage.script(say("shell", command=command), PASS_THE_TIME, done, done)
    process = stage.start(
        "run", "edit", "--folder", str(stage.demo), "--model", model, "--sandbox", sandbox, "--json", "--no-input"
    )
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["type"] == "action_finished":
            meanwhile()
            break
    out, err = process.communicate()
    assert process.returncode == 0, err.decode()
    assert json.loads(out.splitlines()[-1])["type"] == "result"


@pytest.fixture(params=SANDBOXES)
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("STOCKADE_ALLOW_ROOT_UNCONFINED", "1")
    return str(request.param)


def test_a_checkout_and_back_while_a_bot_runs(stage: Stage, sandbox: str) -> None:
    for name in ("a", "b", "gone"):
        (stage.demo / name).write_text(LINES)
    git(stage, "init", "-q")
    git(stage, "add", ".")
    git(stage, "commit", "-qm", "one")
    git(stage, "checkout", "-qb", "other")
    on_host(stage, "rm gone; echo other > a; echo other >> b")
    git(stage, "commit", "-qam", "two")
    git(stage, "checkout", "-q", "-")
    before = (stage.demo / "a").stat().st_ctime_ns

    def there_and_back() -> None:
        git(stage, "checkout", "-q", "other")
        git(stage, "checkout", "-q", "-")

    run(stage, sandbox, "sed -i '1s/.*/bot first/' a; rm gone; echo bot > n", there_and_back)
    assert (stage.demo / "a").stat().st_ctime_ns != before
    assert stage.call("runs", "diff", "last", "--host").err.startswith("stockade: nothing of what run ")
    applied = stage.call("runs", "apply", "last")
    assert applied.status == 0, applied.err
    assert git(stage, "status", "--porcelain").splitlines() == [" M a", " D gone", "?? n"]


def test_what_both_changed_is_shown_merged_and_named(stage: Stage, sandbox: str) -> None:
    for name in ("merges", "clashes", "removed"):
        (stage.demo / name).write_text(LINES)
    run(
        stage, sandbox, "sed -i '1s/.*/bot first/' merges clashes removed; echo bot > n",
        lambda: on_host(stage, "sed -i '$s/.*/mine last/' merges; sed -i '1s/.*/mine first/' clashes; rm removed"),
    )  # fmt: skip
    tree = stage.tree()
    shown = stage.call("runs", "diff", "last", "--host")
    assert shown.status == 0, shown.err
    assert [line for line in shown.out.splitlines() if line.startswith("diff")] == [
        "diff --git a/clashes b/clashes", "diff --git a/merges b/merges", "diff --git a/removed b/removed"
    ]  # fmt: skip
    assert "+mine last" in shown.out
    assert "bot" not in shown.out
    listed = [json.loads(line) for line in stage.call("runs", "diff", "last", "--host", "--json").out.splitlines()]
    assert [(one["path"], one["kind"]) for one in listed] == [
        ("clashes", "modified"), ("merges", "modified"), ("removed", "deleted")
    ]  # fmt: skip
    refused = stage.call("runs", "apply", "last")
    assert refused.status == 1
    assert "changed on the host since the run began: 'clashes', 'merges', 'removed'" in refused.err
    assert "--merge" in refused.err
    assert stage.tree() == tree
    merged = stage.call("runs", "apply", "last", "--merge")
    assert merged.status == 1
    assert "not applied: clashes: both changed the same lines\n" in merged.err
    assert "not applied: removed: you removed it and the bot changed it\n" in merged.err
    assert "applied 2 files" in merged.err
    first, last = LINES.replace("line 1\n", "bot first\n"), LINES.replace("line 1\n", "mine first\n")
    after = {"merges": first.replace("line 8\n", "mine last\n"), "clashes": last, "n": "bot\n"}
    assert stage.tree() == {**tree, **{name: text.encode() for name, text in after.items()}}
    again = stage.call("runs", "apply", "last", "--merge")
    assert (again.status, "nothing was applied" in again.err) == (1, True)
    forced = stage.call("runs", "apply", "last", "--force")
    assert forced.status == 0, forced.err
    assert stage.tree()["clashes"] == stage.tree()["removed"] == first.encode()
    assert stage.tree()["merges"] == after["merges"].encode()


def test_what_both_built_is_no_conflict(stage: Stage, sandbox: str) -> None:
    tag = "Signature: 8a477f597d28d172789f06886806bc55"
    on_host(stage, f"mkdir target; echo '{tag}' > target/CACHEDIR.TAG; echo 1 > target/app")
    run(stage, sandbox, "echo bot > target/app; echo bot >> data.csv", lambda: on_host(stage, "echo mine > target/app"))
    wrong = stage.call("apply", "last", "--only", "target/app")
    assert (wrong.status, "those of caches with --caches" in wrong.err) == (2, True)
    assert stage.call("apply", "last").status == 0
    assert (stage.demo / "data.csv").read_text().endswith("bot\n")
    assert (stage.demo / "target/app").read_text() == "mine\n"
