"""`sandbox exec` and `sandbox exec --jsonl` through the real command."""

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.conftest import PATIENCE_S, Ended, Stage, descendants, gone, interrupt, watched


def test_exec_is_the_program_itself(stage: Stage) -> None:
    folder = ("--folder", f"{stage.demo}:ro")
    ended = stage.call("sandbox", "exec", *folder, "--", "sh", "-c", "wc -l < data.csv; echo oh >&2; exit 7")
    assert (ended.status, ended.out, ended.err) == (7, "3\n", "oh\n")


def test_exec_passes_standard_input_on(stage: Stage) -> None:
    ended = stage.call("sandbox", "exec", "--", "tr", "a-z", "A-Z", stdin=b"hello\n" * 1000)
    assert (ended.status, ended.out) == (0, "HELLO\n" * 1000)


@pytest.mark.parametrize("folder", [(), ("--folder", ".")], ids=["nothing beside it", "with a folder"])
def test_exec_passes_on_as_it_comes(folder: tuple[str, ...], stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A protocol on standard streams: the next line is only written once the answer to the one before was read."""
    monkeypatch.chdir(stage.demo)
    script = "while read line; do echo got $line; echo heard $line >&2; done; exit 3"
    command = [sys.executable, "-m", "stockade.cli", "sandbox", "exec", *folder, "--", "sh", "-c", script]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=stage.environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for word in (b"one", b"two", b"three"):
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"got " + word + b"\n"
            assert process.stderr.readline() == b"heard " + word + b"\n"
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 3


@pytest.mark.parametrize("folder", [(), ("--folder", ".")], ids=["nothing beside it", "with a folder"])
def test_exec_bounds_no_stream(folder: tuple[str, ...], stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stage.demo)
    size = 70 << 20
    ended = stage.call(
        "sandbox", "exec", *folder, "--", "sh", "-c", "cat | tr a b | tee /dev/stderr", stdin=b"a" * size
    )
    assert (ended.status, ended.out.count("b"), ended.err.count("b")) == (0, size, size)


def test_exec_whose_reader_goes_ends(stage: Stage) -> None:
    command = [sys.executable, "-m", "stockade.cli", "sandbox", "exec", "--", "yes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=stage.environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        process.wait(PATIENCE_S)


def test_exec_has_only_the_environment_that_was_named(stage: Stage) -> None:
    ended = stage.call("sandbox", "exec", "--env", "COLOUR=red", "--", "env")
    assert "COLOUR=red\n" in ended.out
    assert "XDG_STATE_HOME" not in ended.out
    assert str(stage.home) not in ended.out


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--timeout", "1", "--", "sleep", "60"), 124, "timed out after 1 s"),
        (("--net", "127.0.0.1", "--", "true"), 2, "127.0.0.1/32 cannot be named"),
        (("--folder", "/no/such", "--", "true"), 2, "/no/such"),
        ((), 2, "which command?"),
        (("--disk", "64M", "--", "truncate", "-s", "33M", "/tmp/big"), 153, "the limit of 32 MiB for one file"),
        (("--", "truncate", "-s", "20G", "/tmp/big"), 153, "MiB for one file"),
    ],
)
def test_exec_statuses(stage: Stage, arguments: tuple[str, ...], status: int, words: str) -> None:
    ended = stage.call("sandbox", "exec", *arguments)
    assert ended.status == status
    assert words in ended.err
    assert stage.left_behind() == []


def test_what_exec_writes_to_an_overlay_is_thrown_away_and_that_is_said(stage: Stage) -> None:
    before = stage.tree()
    ended = stage.call("sandbox", "exec", "--folder", str(stage.demo), "--", "sh", "-c", "echo x > y; rm data.csv")
    assert ended.status == 0
    assert "thrown away: 2 files changed" in ended.err
    assert stage.tree() == before
    assert stage.left_behind() == []


def test_the_time_of_exec_is_what_was_said_longer_or_unlimited(stage: Stage) -> None:
    for flags in (("--timeout", "60"), ("--timeout", "0")):
        ended = stage.call("sandbox", "exec", "--command-timeout", "0.5", *flags, "--", "sh", "-c", "sleep 1; echo on")
        assert (ended.status, ended.out, ended.err) == (0, "on\n", "")


NEEDLESS = ("asyncio", "anyio", "pydantic", "msgspec", "rich", "sqlite3", "importlib.metadata", "concurrent.futures",
            "stockade.core.events", "stockade.runtime.registry", "stockade.runtime.settings",
            "stockade_sandbox.overlay", "stockade_sandbox.egress", "stockade_sandbox.limits.disk",
            "stockade_sandbox.agent.session")  # fmt: skip
EXEC = "import sys\nfrom stockade.cli.commands import call\nstatus = call(['sandbox', 'exec', *sys.argv[1:]])\n"
LOADED = f"{EXEC}print(status, sorted(name for name in {NEEDLESS!r} if name in sys.modules))"


def test_exec_imports_no_more_than_it_needs(stage: Stage) -> None:
    environ = {name: value for name, value in stage.environment().items() if not name.startswith("STOCKADE_")}
    done = subprocess.run(
        [sys.executable, "-c", LOADED, "--memory", "1G", "--", "sh", "-c", "cat; exit 3"], input=b"hello\n",
        capture_output=True, env=environ, check=True,
    )  # fmt: skip
    assert done.stdout == b"hello\n3 []\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_exec_that_is_interrupted_leaves_nothing(stage: Stage, number: int) -> None:
    process = stage.start("sandbox", "exec", "--", "sh", "-c", "trap '' INT TERM HUP; sleep 300 & wait; sleep 300")
    while len(below := descendants(process.pid)) < 5:
        assert process.poll() is None
    pidfds = watched(below)
    interrupt(process, number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, b"stockade: interrupted\n")
    assert gone(pidfds)


def test_exec_that_is_killed_takes_its_program_along(stage: Stage) -> None:
    process = stage.start("sandbox", "exec", "--", "sleep", "300")
    while len(below := descendants(process.pid)) < 5:
        assert process.poll() is None
    pidfds = watched(below)
    process.kill()
    assert gone(pidfds)


def shell(
    stage: Stage, *requests: str | dict[str, Any], flags: tuple[str, ...] = ()
) -> tuple[Ended, list[dict[str, Any]]]:
    lines = [request if isinstance(request, str) else json.dumps(request) for request in requests]
    ended = stage.call("sandbox", "exec", "--jsonl", *flags, stdin="".join(f"{line}\n" for line in lines).encode())
    return ended, ended.events


def test_shell_keeps_its_state_and_answers_each_line(stage: Stage) -> None:
    ended, answers = shell(
        stage,
        {"command": "cd /tmp; x=3"},
        {"command": "echo $x; echo oh >&2; printf '\\xff'; exit 4"},
        {"command": "sleep 60", "timeout": 0.5},
        {"command": "cat; pwd"},
        flags=("-o", "streams=separate"),
    )
    assert (ended.status, ended.err) == (0, "")
    assert set(answers[0]) == {
        "exit_code", "stdout", "stderr", "cwd", "timed_out", "truncated_bytes", "duration_s", "event",
    }  # fmt: skip
    assert answers[0]["cwd"] == "/tmp"
    assert (answers[1]["exit_code"], answers[1]["stderr"]) == (4, "oh\n")
    assert (answers[1]["stdout_base64"], answers[1]["event"]) == ("Mwr/", "shell_restored")
    assert (answers[2]["exit_code"], answers[2]["timed_out"]) == (124, True)
    assert answers[3]["stdout"] == "/tmp\n"


def test_shell_tells_one_stream_in_order_unless_told_otherwise(stage: Stage) -> None:
    ended, answers = shell(stage, {"command": "for i in {1..500}; do echo $i; echo -$i >&2; done"})
    assert ended.status == 0
    assert answers[0]["stdout"] == "".join(f"{i}\n-{i}\n" for i in range(1, 501))
    assert answers[0]["stderr"] == ""


def test_shell_answers_bad_lines_and_goes_on(stage: Stage) -> None:
    bad: list[str | dict[str, Any]] = ["nonsense", "[]", {"cmd": "ls"}, {"command": "ls", "timeout": -1}, "", "{"]
    ended, answers = shell(stage, *bad, {"command": "a\0b"}, {"command": "echo on"})
    assert ended.status == 0
    assert all(set(answer) == {"error"} for answer in answers[:-1])
    assert len(answers) == len(bad) + 2
    assert answers[-1]["stdout"] == "on\n"


KEEP = "from stockade_sandbox import Sandbox\nwith Sandbox(keep=True) as box: print(box.id, box.base)"


def test_kept_sandboxes_are_listed_and_removed(stage: Stage) -> None:
    made = [
        subprocess.run([sys.executable, "-c", KEEP], env=stage.environment(), capture_output=True, check=True)
        .stdout.decode().split()
        for _ in range(3)
    ]  # fmt: skip
    (one, _), (two, base), (three, _) = made
    listed = stage.call("sandbox", "list", "--json").events
    assert {(line["id"], line["state"], line["clients"]) for line in listed} == {
        (name, "running", 0) for name in (one, two, three)
    }
    os.kill(int(base.split("-")[-3]), signal.SIGKILL)
    assert (ended := stage.call("sandbox", "rm", one)).status == 0
    assert ended.err == f"stockade: removed {one}\n"
    assert f"{two} holder gone" in stage.call("sandbox", "list").out
    assert stage.call("sandbox", "rm", one).status == stage.call("sandbox", "rm").status == 2
    assert stage.call("sandbox", "rm", "--all").status == 0
    assert (stage.call("sandbox", "list").out, list((stage.state / "boxes").iterdir())) == ("", [])
