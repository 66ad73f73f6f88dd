"""`run --detach` and what is done with it: followed, attached to on a real terminal, stopped, killed."""

import os
import re
import select
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, PATIENCE_S, Stage, gone, watched
from tests.cli.test_terminal import QUESTION, Terminal

GATED = say("shell", command="echo first; until [ -e /folders/gate/go ]; do sleep 0.05; done; echo last | tee out.txt")
ENDLESS = (say("shell", command="echo kept > kept.txt"), say("shell", command="echo begun; sleep 1000"))


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A folder that the bot sees; what is under way goes on when there is a file `go` in it."""
    folder = tmp_path / "gate"
    folder.mkdir()
    return folder


def detached(stage: Stage, *answers: str, flags: tuple[str, ...] = ()) -> str:
    """The run's id."""
    done = stage.run(*answers, flags=("--detach", *flags))
    assert done.status == 0, done.err
    assert "goes on without this terminal" in done.err
    return done.out.strip()


def driver(stage: Stage, run_id: str) -> int:
    return int((stage.state / "runs" / run_id / "lock").read_text().split()[0])


def until(process: "subprocess.Popen[bytes]", words: bytes) -> bytes:
    assert process.stdout is not None
    seen = b""
    while words not in seen:
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        assert ready, seen
        data = os.read(process.stdout.fileno(), 65536)
        assert data, seen
        seen += data
    return seen


def begun(stage: Stage, run_id: str) -> None:
    """The command that never ends is under way."""
    follower = stage.start("runs", "logs", "-f", run_id)
    until(follower, b"\nbegun\n")
    follower.kill()


def test_it_is_followed_reviewed_applied_and_undone(stage: Stage, gate: Path) -> None:
    run_id = detached(stage, GATED, DONE, flags=("--folder", f"{gate}:rw"))
    assert os.getsid(driver(stage, run_id)) == driver(stage, run_id)
    assert os.stat(stage.state / "runs" / run_id / "control").st_mode == stat.S_IFSOCK | 0o600
    follower = stage.start("runs", "logs", "-f", run_id)
    seen = until(follower, b"\nfirst\n")
    assert "running" in stage.call("runs", "list").out
    assert stage.call("runs", "apply", run_id).status == 2
    assert stage.call("runs", "logs", run_id).out.encode() == seen
    (gate / "go").touch()
    rest, _ = follower.communicate(timeout=PATIENCE_S)
    assert follower.returncode == 0
    order = [rest.decode().index(words) for words in ("last\n", "done · ", "3 lines\n", "+last", "Not applied")]
    assert order == sorted(order)
    assert stage.call("runs", "apply", run_id).status == 0
    assert (stage.demo / "out.txt").read_text() == "last\n"
    assert stage.call("runs", "undo", run_id).status == 0
    assert not (stage.demo / "out.txt").exists()
    record = stage.call("runs", "logs", "-f", run_id)
    assert (record.status, record.err) == (0, "")
    assert record.out.index("first") < record.out.index("3 lines")
    assert not {"control", "log"} & {path.name for path in (stage.state / "runs" / run_id).iterdir()}


def test_a_run_goes_on_in_the_background(stage: Stage) -> None:
    """What it wrote and its shell are there; its terminal may go while it works."""
    first, more = "echo one > out.txt; export x=1", "echo $x >> out.txt"
    assert stage.run(say("shell", command=first), DONE, say("shell", command=more), DONE).status == 0
    begun_again = stage.call("run", "-c", "more", "--detach", folder=stage.demo)
    assert begun_again.status == 0, begun_again.err
    assert "goes on without this terminal" in begun_again.err
    run_id = begun_again.out.strip()
    assert stage.call("runs", "logs", "-f", run_id).status == 0
    assert stage.call("runs", "apply", run_id).status == 0
    assert (stage.demo / "out.txt").read_text() == "one\n1\n"


def test_its_questions_wait_for_whoever_attaches_and_its_terminal_may_go(stage: Stage) -> None:
    model = stage.script(say("shell", command="echo done > out.txt"), say("shell", command="rm data.csv"), DONE)
    first = Terminal(
        stage, "run", "count", "--folder", str(stage.demo), "--model", model, "--approve", "ask", "--detach"
    )
    assert first.status() == 0
    run_id = first.seen.decode().splitlines()[-3].strip()
    assert stage.call("runs", "attach", run_id).status == 2
    shell = Terminal(stage, "runs", "attach", run_id)
    shell.until(b"words for the bot: ")
    shell.type(b"\x04")
    assert shell.status() == 0
    assert b"goes on without this terminal" in shell.seen
    shell = Terminal(stage, "runs", "attach", run_id)
    shell.until(b"words for the bot: ")
    shell.type(b"o\n")
    shell.until(b"words for the bot: ")
    assert shell.seen.count(b"\no\r\n") == 0
    shell.type(b"Leave it there.\n")
    shell.until(QUESTION)
    assert b"Leave it there." in shell.seen
    shell.type(b"y\n")
    assert shell.status() == 0
    assert (stage.demo / "out.txt").read_text() == "done\n"
    assert (stage.demo / "data.csv").exists()
    assert stage.left_behind() == []


def test_words_reach_the_bot_and_ctrl_c_holds_the_run(stage: Stage, gate: Path) -> None:
    run_id = detached(stage, GATED, DONE, flags=("--folder", f"{gate}:rw"))
    shell = Terminal(stage, "runs", "attach", run_id)
    shell.until(b"first\r\n")
    shell.type(b"Mind the gap.\n")
    shell.until(b"told before its next turn")
    shell.type(b"\x03")
    shell.until(b"[s]top and save: ")
    (gate / "go").touch()
    shell.type(b"c\n")
    shell.until(QUESTION)
    assert b"Mind the gap." in shell.seen
    shell.type(b"\x04")
    assert shell.status() == 0
    assert stage.call("runs", "logs", "-f", run_id).status == 0
    assert stage.call("runs", "apply", run_id).status == 0
    assert (stage.demo / "out.txt").read_text() == "last\n"


def test_stopped_it_is_closed_in_order_and_its_changes_can_be_applied(stage: Stage) -> None:
    run_id = detached(stage, *ENDLESS, DONE)
    begun(stage, run_id)
    ended = watched([driver(stage, run_id)])
    done = stage.call("runs", "stop", run_id)
    assert done.status == 0
    assert f"run {run_id}: stopped" in done.err
    assert "Not applied" in done.err
    assert gone(ended, patience_s=0.1)
    assert stage.call("runs", "show", run_id, "--json").events[-1]["reason"] == "user"
    assert stage.call("runs", "stop", run_id).status == 2
    assert stage.call("runs", "apply", run_id).status == 0
    assert (stage.demo / "kept.txt").read_text() == "kept\n"


def test_without_a_name_the_one_of_the_folder_is_stopped(stage: Stage) -> None:
    (elsewhere := stage.tmp_path / "elsewhere").mkdir()
    run_id = detached(stage, *ENDLESS, DONE)
    begun(stage, run_id)
    nothing = stage.call("runs", "stop", folder=elsewhere)
    assert (nothing.status, "no run of" in nothing.err) == (2, True)
    other = detached(stage, *ENDLESS, DONE)
    begun(stage, other)
    both = stage.call("runs", "stop", folder=stage.demo)
    assert both.status == 2
    assert f"2 runs of {stage.demo} are under way" in both.err
    assert f"{other}, {run_id}" in both.err
    assert stage.call("runs", "stop", other).status == 0
    assert f"run {run_id}: stopped" in stage.call("runs", "stop", folder=stage.demo).err


def test_killed_it_leaves_a_record_from_which_it_goes_on(stage: Stage) -> None:
    run_id = detached(stage, *ENDLESS, DONE)
    begun(stage, run_id)
    pid = driver(stage, run_id)
    follower, ended = stage.start("runs", "logs", "-f", run_id), watched([pid])
    until(follower, b"\nbegun\n")
    os.kill(pid, signal.SIGKILL)
    assert gone(ended)
    follower.communicate(timeout=PATIENCE_S)
    assert follower.returncode == 0
    assert "interrupted" in stage.call("runs", "list").out
    assert "[interrupted: the record ends here]" in stage.call("runs", "logs", run_id).out
    assert stage.call("runs", "resume", run_id, "--no-input").status == 0
    assert stage.call("runs", "apply", run_id).status == 0
    assert (stage.demo / "kept.txt").read_text() == "kept\n"
    assert stage.left_behind() == []


def test_what_cannot_begin_says_so_with_its_status_and_leaves_nothing(stage: Stage) -> None:
    for words in (("--model", f"scripted/{stage.tmp_path}/missing.jsonl"), ("--memory", "many"), ("--sandbox", "none")):
        plain, detach = (stage.call("run", "count", "--folder", str(stage.demo), *words, *more)
                         for more in ((), ("--detach",)))  # fmt: skip
        assert (detach.status, detach.out) == (plain.status, "")
        said, told = (
            re.sub(r"[0-9.]+ s$", "", one.err, flags=re.MULTILINE).splitlines()[-2:] for one in (plain, detach)
        )
        assert told == said
        assert plain.status
    assert stage.call("run", "--detach", "--folder", str(stage.demo), "--model", stage.script(DONE)).status == 2
    assert not list(stage.state.glob("detached-*"))
    assert stage.call("runs", "logs", "nothing").status == 2


def test_another_terminal_sees_what_a_command_writes_while_it_runs(stage: Stage, gate: Path) -> None:
    """Of a run that is not detached: also what was written before it looked, in order, once, and nothing on disk."""
    command = "echo first; until test -e /folders/gate/go; do sleep 0.1; done; echo error >&2; printf half; exit 3"
    model = stage.script(say("shell", command=command), DONE)
    flags = ("--folder", str(stage.demo), "--folder", f"{gate}:rw", "--model", model, "--quiet", "--no-input")
    run = stage.start("run", "count", *flags)
    folder = stage.state / "runs"
    follower = None
    while follower is None:
        assert run.poll() is None
        for live in folder.glob("*/live"):
            assert os.stat(live).st_mode == stat.S_IFSOCK | 0o600
            follower = stage.start("runs", "logs", "-f", live.parent.name)
        select.select([], [], [], 0.05)
    seen = until(follower, b"\nfirst\n")
    late = stage.start("runs", "logs", "-f", "last")
    assert until(late, b"\nfirst\n") == seen
    (gate / "go").touch()
    rest, _ = follower.communicate(timeout=PATIENCE_S)
    assert follower.returncode == 0
    assert rest.startswith(b"error\nhalf\n")
    assert [(seen + rest).count(words) for words in (b"\nfirst\n", b"\nerror\n", b"\nhalf\n")] == [1, 1, 1]
    assert late.communicate(timeout=PATIENCE_S)[0] == rest
    assert run.wait(PATIENCE_S) == 0
    assert not list(folder.glob("*/live"))
