"""Sandboxes that outlive their maker, and those that do not: with real kills of makers, clients and holders."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from stockade_sandbox import AsyncSandbox, Sandbox
from stockade_sandbox.backends.bubblewrap.sandbox import BACKEND
from stockade_sandbox.errors import SandboxDied, UsageError
from stockade_sandbox.keeping import is_held, kept, look
from stockade_sandbox.leftovers import clean

MAKER = """
import os, signal, sys
from stockade_sandbox import Sandbox
with Sandbox(sys.argv[1], keep=sys.argv[2] == "keep") as box:
    box.exec(shell="cd /tmp; KEPT=yes; sleep {mark} & echo new > /workspace/new")
    print(box.id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
CLIENT = """
import sys
from stockade_sandbox import Sandbox
with Sandbox.attach(sys.argv[1]) as box, box.start(["sleep", sys.argv[2]]):
    print("begun", flush=True)
    sys.stdin.read()
"""
STRANGER = """
import os, socket, sys
os.chdir(sys.argv[1])
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
one = socket.socket(socket.AF_UNIX)
one.connect("socket")
try:
    one.sendall(b"\\0")
    print(one.recv(100))
except (ConnectionResetError, BrokenPipeError):
    print(b"")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def runs(mark: str) -> bool:
    """Whether a `sleep` of so long runs anywhere on this machine."""
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if one.read_bytes() == f"sleep\0{mark}\0".encode():
                return True
        except OSError:
            continue
    return False


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def made_by_a_killed(folder: Path, kind: str, mark: str) -> str:
    script = MAKER.replace("{mark}", mark)
    done = subprocess.run([sys.executable, "-c", script, folder, kind], stdout=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL
    return done.stdout.decode().strip()


def test_one_that_is_kept_outlives_its_killed_maker_and_goes_on_where_it_was(folder: Path) -> None:
    name = made_by_a_killed(folder, "keep", "70001")
    until(lambda: runs("70001"))
    with Sandbox.attach(name) as box:
        assert box.id == name
        assert box.exec(shell="pwd; echo $KEPT; jobs -r").text.startswith("/tmp\nyes\n[1]")
        assert box.read_file("/workspace/new") == b"new\n"
        assert "+new" in box.diff()
        box.destroy()
    assert not runs("70001")
    assert kept() == list((folder.parent / "state/stockade/boxes").iterdir()) == []


def test_any_other_ends_with_its_maker(folder: Path) -> None:
    name = made_by_a_killed(folder, "not", "70002")
    until(lambda: not runs("70002"))
    with pytest.raises(UsageError, match="there is no kept sandbox"):
        Sandbox.attach(name)


def test_leaving_lets_go_and_destroy_ends(folder: Path) -> None:
    with Sandbox(folder, keep=True) as box:
        box.exec(shell="MINE=1")
        base = kept()[0]
        assert base.stat().st_mode & 0o777 == 0o700
    with pytest.raises(SandboxDied):
        box.exec(["true"])
    other = Sandbox.attach(box.id)
    other.__enter__()
    assert other.exec(shell="echo $MINE").text == "1\n"
    other.close()
    other.close()
    with Sandbox.attach(box.id) as again:
        again.destroy()
    assert not base.exists()
    with Sandbox(folder) as plain:
        plain.destroy()
        with pytest.raises(SandboxDied):
            plain.exec(["true"])


def test_two_clients_at_once_have_one_sandbox(folder: Path) -> None:
    with Sandbox(keep=True) as one, Sandbox.attach(one.id) as two:
        with one.start(["sh", "-c", "read line; echo got $line"]) as program:
            assert two.exec(shell="echo from two > /tmp/said; NAME=two").exit_code == 0
            assert one.exec(shell="cat /tmp/said; echo $NAME").text == "from two\ntwo\n"
            two.close()
            program.write(b"it\n")
            assert (program.read(), program.wait(30)) == (b"got it\n", 0)
        one.destroy()


@pytest.mark.anyio
async def test_programs_of_two_clients_run_beside_each_other_without_await_or_with(folder: Path) -> None:
    meet = "touch /tmp/$1; until [ -e /tmp/a ] && [ -e /tmp/b ]; do sleep 0.02; done"
    async with AsyncSandbox(keep=True) as one, AsyncSandbox.attach(one.id) as two:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for box, name in ((one, "a"), (two, "b")):
                    group.start_soon(box.exec, ["sh", "-c", meet, "sh", name])
        assert (found := await look(one.base)) is not None
        assert found.clients == 2
        await one.destroy()


def test_a_killed_client_takes_along_what_it_ran_and_nothing_else(folder: Path) -> None:
    with Sandbox(keep=True) as box, box.start(["sleep", "70004"]):
        argv = [sys.executable, "-c", CLIENT, box.id, "70003"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"begun\n"
            until(lambda: runs("70003"))
            client.kill()
        until(lambda: not runs("70003"))
        until(lambda: runs("70004"))
        assert box.exec(shell="echo on").text == "on\n"
        box.destroy()


def test_a_killed_holder_takes_its_sandbox_along_and_what_it_left_is_cleaned_up(folder: Path) -> None:
    with Sandbox(folder, keep=True) as box:
        box.exec(shell="sleep 70005 & echo 1 > new")
        (base,) = kept()
        os.kill(int(base.name.split("-")[1]), signal.SIGKILL)
        with pytest.raises(SandboxDied, match=f"the holder of the sandbox {box.id} is gone"):
            box.exec(["true"])
    until(lambda: not runs("70005"))
    until(lambda: not is_held(base))
    assert anyio.run(look, base) is None
    with pytest.raises(SandboxDied), Sandbox.attach(box.id):
        pass
    lines = clean(base.parent.parent / "runs", (), lambda _run: False)
    assert [line for line in lines if str(base) in line] == [f"removed {base}"]
    assert kept() == []


def test_one_that_nobody_uses_expires(folder: Path) -> None:
    with Sandbox(folder, keep=True, expires_s=0.3) as box:
        (base,) = kept()
        assert box.exec(["sleep", "1"]).exit_code == 0  # whoever is attached uses it
    until(lambda: not base.exists())


def test_apply_ends_it_and_undo_takes_that_back(folder: Path) -> None:
    with Sandbox(folder, keep=True) as box:
        box.write_file("new", b"1")
        assert box.apply() == ("new",)
        with pytest.raises(SandboxDied):
            box.exec(["true"])
    assert (folder / "new").read_bytes() == b"1"
    assert kept() == []
    assert box.undo().paths == ["new"]
    assert list(folder.iterdir()) == []


@pytest.mark.root
def test_another_user_is_not_let_in_even_where_the_folder_is_open(folder: Path, tmp_path: Path) -> None:
    """The folder keeps others out; and where it does not, the holder asks the kernel who it is."""
    with Sandbox(keep=True) as box:
        (base,) = kept()
        argv = [sys.executable, "-c", STRANGER, str(base)]
        assert b"PermissionError" in subprocess.run(argv, capture_output=True, check=False).stderr
        for one in (base, *base.parents):
            if one.is_relative_to(tmp_path.parents[1]):
                one.chmod(0o755)
        (base / "socket").chmod(0o777)
        done = subprocess.run(argv, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (0, b"b''\n"), done.stderr
        assert box.exec(["true"]).exit_code == 0
        box.destroy()


def test_what_is_not_possible_is_said_at_once() -> None:
    with pytest.raises(UsageError, match="there is no kept sandbox"):
        Sandbox.attach("../../x")
    with pytest.raises(UsageError, match="name of a backend"):
        Sandbox(keep=True, backend=BACKEND)
    with pytest.raises(UsageError, match="is no time"):
        Sandbox(keep=True, expires_s=0)
    with pytest.raises(UsageError, match="not given to bots"), Sandbox("/", keep=True):
        pass
