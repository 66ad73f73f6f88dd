"""The public class: as its page shows it, in real sandboxes."""

import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from stockade_sandbox import AsyncSandbox, Policy, Sandbox
from stockade_sandbox.errors import ChangedOnHost, PolicyNotEnforceable, SandboxDied, UsageError
from stockade_sandbox.leftovers import clean
from stockade_sandbox.policy import FolderRule


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "data.csv").write_text("a\nb\n")
    return tmp_path / "data"


def boxes(folder: Path) -> list[Path]:
    return list((folder.parent / "state" / "stockade").glob("boxes/*"))


def test_programs_have_their_own_streams_and_commands_one(folder: Path) -> None:
    with Sandbox(folder=f"{folder}:ro") as box:
        done = box.exec(["wc", "-l", "data.csv"], timeout=10)
        assert (done.exit_code, done.text, done.stderr, done.timed_out) == (0, "2 data.csv\n", b"", False)
        done = box.exec(["sh", "-c", "pwd; echo $NAME; cat; echo wrong >&2; exit 3"], cwd="/etc",
                        env={"NAME": "x y"}, stdin=b"in")  # fmt: skip
        assert (done.exit_code, done.stdout, done.stderr) == (3, b"/etc\nx y\nin", b"wrong\n")
        box.exec(shell="cd /tmp; export KEPT=1")
        done = box.exec(shell="pwd; echo $KEPT >&2; echo on")
        assert (done.stdout, done.stderr) == (b"/tmp\n1\non\n", b"")
        assert box.exec(["touch", "/workspace/new"]).exit_code == 1
        assert box.exec(["no-such-program"]).exit_code == 127
    assert boxes(folder) == []


NEEDLESS = ("stockade_sandbox.overlay", "stockade_sandbox.leftovers", "stockade_sandbox.egress.proxy",
            "stockade_sandbox.backends.containers", "msgspec", "importlib.metadata")  # fmt: skip
LOADED = f"""
import sys
from stockade_sandbox import Sandbox
with Sandbox() as box:
    print(box.exec(["echo", "hello"]).text.strip(), [name for name in sys.modules if name.startswith({NEEDLESS!r})])
"""


def test_without_a_folder_nothing_of_folders_is_imported(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, check=True)
    assert done.stdout == b"hello []\n"


def test_a_policy_may_keep_the_streams_of_commands_apart() -> None:
    for streams, expected in (("one", (b"out\nerr\n", b"")), ("separate", (b"out\n", b"err\n"))):
        with Sandbox(policy=Policy(streams=streams)) as box:  # type: ignore[arg-type]
            done = box.exec(shell="echo out; echo err >&2")
            assert (done.stdout, done.stderr) == expected


def test_time_and_output_are_bounded(folder: Path) -> None:
    with Sandbox() as box:
        assert box.exec(["sleep", "60"], timeout=0.2).timed_out
        assert box.exec(shell="sleep 60", timeout=0.2).exit_code == 124
        done = box.exec(["head", "-c", "1000", "/dev/zero"], max_output=10)
        assert (done.stdout, done.truncated) == (bytes(10), True)


def test_files_changes_apply_and_undo(folder: Path) -> None:
    with Sandbox(str(folder)) as box:
        box.write_file("sub/new.txt", b"\xff\n")
        assert box.read_file("sub/new.txt") == b"\xff\n"
        with pytest.raises(FileNotFoundError, match="No such file"):
            box.read_file("missing")
        with pytest.raises(NotADirectoryError):
            box.write_file("data.csv/x", b"")
        box.exec(shell="echo c >> data.csv")
        assert "+c\n" in box.diff()
        assert (folder / "data.csv").read_text() == "a\nb\n"
        assert box.apply() == ("data.csv", "sub", "sub/new.txt")
        assert (folder / "data.csv").read_text() == "a\nb\nc\n"
        with pytest.raises(SandboxDied):
            box.exec(["true"])
    assert box.undo().left == {}
    assert [path.name for path in folder.rglob("*")] == ["data.csv"]
    assert (folder / "data.csv").read_text() == "a\nb\n"


KILLED = """
import os, signal, sys
from stockade_sandbox import Sandbox
with Sandbox(sys.argv[1]) as box:
    box.write_file("new", b"1")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_whoever_cleans_up(folder: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, folder], check=False).returncode == -signal.SIGKILL
    (left,) = boxes(folder)
    with Sandbox(folder) as box:
        box.write_file("other", b"2")
        lines = clean(left.parent.parent / "runs", (), lambda _run: False)
        assert [line for line in lines if str(left.parent) in line] == [f"removed {left}"]
        assert box.read_file("other") == b"2"
    assert boxes(folder) == []


NEVER_LEFT = """
from stockade_sandbox import Sandbox
box = Sandbox(folder="."); box.__enter__()
print(box.exec(["pwd"]).text)
"""


def test_a_sandbox_that_is_never_left_ends_with_the_process(folder: Path, tmp_path: Path) -> None:
    """As a framework may: the process ends, and nothing of the sandbox is left."""
    state = tmp_path / "own"
    command = ["env", f"XDG_STATE_HOME={state}", sys.executable, "-c", NEVER_LEFT]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("/workspace", "")
    assert list((state / "stockade" / "boxes").iterdir()) == []


def test_what_was_changed_on_the_host_meanwhile_is_not_written_over(folder: Path) -> None:
    with Sandbox(folder) as box:
        box.exec(shell="echo bot > data.csv")
        (folder / "data.csv").write_text("user\n")
        with pytest.raises(ChangedOnHost):
            box.apply()
    assert (folder / "data.csv").read_text() == "user\n"
    assert boxes(folder) == []


@pytest.mark.parametrize("end", ["apply", "close", "destroy"])
def test_with_a_network_too_each_call_ends_it(folder: Path, end: str) -> None:
    with Sandbox(folder, net=["pypi.org"]) as box:
        refused = box.exec(["curl", "-sS", "http://other.test/"])
        assert "other.test is not on the --net allow list" in refused.text
        box.write_file("new", b"1")
        with box.start(["cat"]) as program:
            program.close_stdin()
            assert program.wait() == 0
        getattr(box, end)()
        assert (folder / "new").exists() == (end == "apply")
    assert box.undo().left == {}
    assert [path.name for path in folder.iterdir()] == ["data.csv"]


@pytest.mark.anyio
async def test_with_a_network_the_task_that_entered_its_twin_ends_it(folder: Path) -> None:
    async with AsyncSandbox(folder, net=["pypi.org"]) as box:
        await box.write_file("new", b"1")
        with pytest.raises(ExceptionGroup) as raised:
            async with anyio.create_task_group() as group:
                group.start_soon(box.apply)
        assert raised.group_contains(UsageError, match="ended by the task that entered it")
        assert await box.read_file("new") == b"1"
        assert await box.apply() == ("new",)


@pytest.mark.anyio
async def test_its_twin_is_awaited_and_takes_a_policy(folder: Path) -> None:
    policy = Policy(folders=(FolderRule(host=str(folder), mode="ro", inside="/data"),))
    async with AsyncSandbox(policy=policy) as box:
        assert (await box.exec(["cat", "/data/data.csv"])).stdout == b"a\nb\n"
        assert await box.read_file("data.csv") == b"a\nb\n"
        assert await box.diff() == ""


def test_what_is_no_policy_is_refused_before_anything_runs(folder: Path) -> None:
    with pytest.raises(UsageError, match="no mode 'rx'"):
        Sandbox(f"{folder}:rx")
    with pytest.raises(UsageError, match="parts of a policy"):
        Sandbox(folder, policy=Policy())
    with pytest.raises(UsageError, match="no backend 'nothing'"):
        Sandbox(backend="nothing")
    with pytest.raises(UsageError, match="one text"):
        Sandbox(net="pypi.org")
    with pytest.raises(UsageError), Sandbox(net=["*"]):
        pass
    with pytest.raises(SandboxDied):
        Sandbox().exec(["true"])


def test_what_cannot_be_done_is_said(folder: Path) -> None:
    with Sandbox() as box:
        with pytest.raises(PolicyNotEnforceable, match="one user"):
            box.exec(["id"], user="root")
        with pytest.raises(UsageError, match="cwd= goes with argv"):
            box.exec(shell="pwd", cwd="/")
        with pytest.raises(UsageError, match="argv or shell="):
            box.exec()
        with pytest.raises(UsageError, match="not the name of a variable"):
            box.exec(["env"], env={"A=B": "x"})


def test_a_program_is_spoken_to_while_it_runs(folder: Path) -> None:
    with Sandbox(folder=folder) as box:
        with box.start(["sh", "-c", 'pwd; echo "$X"; while read x; do echo "<$x>"; echo no >&2; done; exit 5'],
                       cwd="/tmp", env={"X": "y"}) as program:  # fmt: skip
            said = b""
            while said.count(b"\n") < 2:
                said += program.read()
            assert said == b"/tmp\ny\n"
            program.write(b"one\n")
            assert (program.read(), program.read_error(), program.exit_code) == (b"<one>\n", b"no\n", None)
            program.write(b"two\n")
            program.close_stdin()
            assert b"".join(program) == b"<two>\n"
            assert (program.wait(), program.exit_code) == (5, 5)
            with pytest.raises(BrokenPipeError):
                program.write(b"x")
        with box.start(shell="echo $0; sleep 60") as program:
            assert program.read() == b"/bin/bash\n"
            with pytest.raises(TimeoutError):
                program.wait(0.05)
            program.kill()
            assert program.wait() in (137, 143, 124)
        with box.start(["sleep", "60"], timeout=0.2) as program:
            assert (program.wait(), program.timed_out) == (124, True)
        with box.start(["no-such-program"]) as program:
            assert program.wait() == 127


@pytest.mark.anyio
async def test_a_hundred_programs_at_once_and_one_that_is_ended(folder: Path) -> None:
    async with AsyncSandbox(folder=folder) as box, AsyncExitStack() as stack:
        programs = [await stack.enter_async_context(box.start(["cat"])) for _ in range(100)]
        await programs[7].kill()
        assert await programs[7].wait() != 0
        for number, program in enumerate(programs):
            if number != 7:
                await program.write(b"%d" % number)
        for number, program in enumerate(programs):
            if number != 7:
                assert await program.read() == b"%d" % number
                await program.close_stdin()
                assert await program.wait() == 0


@pytest.mark.anyio
async def test_programs_are_done_at_once_beside_the_shell(folder: Path) -> None:
    """Each tells when it began and ended; all begin before the first ends, and what they write is kept apart."""
    meet = "date +%s%N; echo $1 > new-$1; until [ -e go ]; do sleep 0.05; done; date +%s%N"
    stamps: list[list[int]] = []
    async with AsyncSandbox(folder=folder) as box:

        async def one(name: str) -> None:
            stamps.append([int(line) for line in (await box.exec(["sh", "-c", meet, "sh", name])).stdout.split()])

        async with anyio.create_task_group() as group:
            for name in "abcdef":
                group.start_soon(one, name)
            waits = "until [ $(ls | grep -c new-) = 6 ]; do sleep 0.05; done; : > go"
            assert (await box.exec(shell=waits)).exit_code == 0
        assert max(start for start, _ in stamps) < min(end for _, end in stamps)
        assert (await box.diff()).count("+++ b/new-") == 6


def test_further_shells_and_a_terminal_without_await() -> None:
    with Sandbox() as box:
        with box.shell("a") as one, box.shell("b") as other:
            assert one.exec("x=1; cd /tmp").exit_code == 0
            assert (other.exec("echo [$x]; pwd").text, one.exec("echo [$x]; pwd").text) == (
                "[]\n/workspace\n",
                "[1]\n/tmp\n",
            )
            with pytest.raises(UsageError, match="there is a shell 'a'"), box.shell("a"):
                pass
        with box.shell("a") as again:
            assert again.exec("echo [$x]").text == "[]\n"
        with box.start(["bash", "-c", "stty size; echo $TERM"], pty=(10, 20)) as program:
            assert b"".join(program) == b"10 20\r\nxterm\r\n"
            assert program.wait() == 0
        with pytest.raises(UsageError, match="no terminal has"), box.start(["cat"], pty=(0, 20)):
            pass
