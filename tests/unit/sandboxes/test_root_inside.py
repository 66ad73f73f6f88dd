"""`user=`: a root that is one inside its sandbox only, its users, and the bot's shell, which stays as it is."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade_sandbox import Policy, Sandbox
from stockade_sandbox.backends.bubblewrap.process import shell_bytes
from stockade_sandbox.backends.host_info import sandbox_ids
from stockade_sandbox.backends.layers import container_layers
from stockade_sandbox.backends.remote.endpoint import remote_sandbox
from stockade_sandbox.backends.unconfined import ALLOW_ROOT, UnconfinedSandbox
from stockade_sandbox.errors import PolicyNotEnforceable, SandboxFailed, UsageError
from stockade_sandbox.policy import FolderMode, FolderRule, Limits
from stockade_sandbox.processes import descendants
from tests.conformance.ordinary_user import UID, run_as_ordinary_user
from tests.support.engines import small_rootfs

ROOT = Path(__file__).parents[3]
ADD = ["adduser", "--comment", "", "--disabled-password", "anne"]
RIGHTS = ["sh", "-c", "id -u; grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | cut -f2 | sort -u"]
PROGRAM = """
import sys
from stockade_sandbox import Policy, Sandbox
with Sandbox(policy=Policy(root=True)) as box, box.start(["sh", "-c", "echo; sleep 1000"], user="root") as program:
    program.read()
    print(box.live.host_pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(policy=Policy(root=True)) as found:
        yield found


def test_root_is_root_inside_and_nobody_outside(box: Sandbox) -> None:
    assert box.exec(["whoami"], user="root").text == "root\n"
    with box.start(["sleep", "1000"], user="root"):
        sleeping: list[int] = []
        while not sleeping:
            inside = descendants(box.live.host_pid)  # type: ignore[attr-defined]
            sleeping = [one for one in inside if Path(f"/proc/{one}/cmdline").read_bytes().startswith(b"sleep")]
        assert [os.stat(f"/proc/{one}").st_uid in (0, os.geteuid()) for one in sleeping] == [False]


def test_what_the_bot_runs_has_no_right_and_root_few(box: Sandbox) -> None:
    assert box.exec(RIGHTS).text == "1000\n0000000000000000\n"
    assert box.exec(shell=" ".join(f"'{word}'" if "'" not in word else f'"{word}"' for word in RIGHTS)).text.startswith(
        "1000\n"
    )
    assert box.exec(RIGHTS, user="root").text == "0\n00000000000005fb\n"


def test_the_bot_finds_all_that_it_finds_elsewhere(tmp_path: Path) -> None:
    folders = "for d in / /[!r]* /run /.stockade/bin /var/tmp; do ls $d >/dev/null || echo not $d; done"
    look = f"python --version >/dev/null && {folders} && touch /var/tmp/x ~/x"
    folder = FolderRule(host=str(tmp_path), mode="ro", inside="/far/below/data")
    found = []
    for root in (True, False):
        with Sandbox(policy=Policy(root=root, folders=(folder,))) as box:
            done = box.exec(shell=f"ls -d /far/below/data; {look}")
            found.append((done.exit_code, done.text))
    assert found == [(0, "/far/below/data\n")] * 2


def test_users_are_added_used_and_removed(box: Sandbox) -> None:
    added = box.exec(ADD, user="root")
    assert added.exit_code == 0, added.stderr
    assert box.exec(RIGHTS, user="anne").text == "1001\n0000000000000000\n"
    assert box.exec(["sh", "-c", "cd; pwd; echo $USER"], user="1001").text == "/home/anne\nanne\n"
    assert box.exec(["ls", "/home/agent"], user="anne").exit_code == 2
    assert box.exec(["userdel", "-r", "anne"], user="root").exit_code == 0
    gone = box.exec(["whoami"], user="anne")
    assert (gone.exit_code, gone.stderr) == (125, b"there is no user anne\n")


def test_its_input_variables_and_folder_are_its_own(box: Sandbox) -> None:
    done = box.exec(["sh", "-c", 'cat; echo "$HOME $A"; pwd'], user="root", stdin=b"in ", env={"A": "b"}, cwd="/tmp")
    assert done.text == "in /root b\n/tmp\n"
    assert box.exec(["cat"], user="root").stdout == b""


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_its_time_is_over_whoever_it_is(box: Sandbox, user: str) -> None:
    done = box.exec(["sh", "-c", "trap '' TERM; echo on; sleep 1000"], user=user, timeout=0.2)
    assert (done.exit_code, done.timed_out, done.stdout) == (124, True, b"on\n")


def test_on_a_terminal_and_in_a_shell_of_its_own(box: Sandbox) -> None:
    for user, uid in (("root", 0), (None, 1000)):
        with box.start(["sh", "-c", 'stat -c %u "$(tty)"; echo on > "$(tty)"'], user=user, pty=True) as program:
            assert b"".join(program).split() == [str(uid).encode(), b"on"]
    with box.shell("root's", user="root") as shell:
        shell.exec("cd /root; X=1")
        assert shell.exec('id -u; pwd; echo "$X"').text == "0\n/root\n1\n"
        assert "Permission denied" in shell.exec("ls /proc/$$/fd").text
    assert box.exec(shell="id -u").text == "1000\n"


def test_what_cannot_be_is_said(box: Sandbox) -> None:
    with pytest.raises(UsageError, match="user= goes with argv"):
        box.exec(shell="id", user="root")
    with pytest.raises(UsageError, match="root's or the bot's"), box.shell("x", user="anne"):
        pass
    with Sandbox() as plain:
        with pytest.raises(PolicyNotEnforceable, match="one user"), plain.start(["id"], user="root"):
            pass
        with pytest.raises(PolicyNotEnforceable, match="one user"), plain.shell("x", user="root"):
            pass


def test_other_kinds_of_sandbox_refuse_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_ROOT, "1")
    for prepare in (container_layers, UnconfinedSandbox.prepared):
        with pytest.raises(PolicyNotEnforceable, match="this kind of sandbox"):
            prepare(Policy(root=True), tmp_path)
    with pytest.raises(PolicyNotEnforceable, match="this kind of sandbox"):
        remote_sandbox(Policy(root=True), "http://127.0.0.1:1")


def test_all_its_users_together_keep_to_the_limit_of_processes() -> None:
    """Each has a limit of its own by rlimit: their namespace's or a control group's bounds them all."""
    script = (
        "for u in 1001 1002 1003; do setpriv --reuid $u -- sh -c 'for i in $(seq 30); do sleep 100 & done' & done; wait"
    )
    with Sandbox(policy=Policy(root=True, limits=Limits(processes=40))) as box:
        with box.start(["sh", "-c", f"({script}) 2>/dev/null; sleep 100"], user="root"):
            time.sleep(1)
            count = len(list(descendants(box.live.host_pid)))  # type: ignore[attr-defined]
            assert 20 < count < 70
    with Sandbox(policy=Policy(root=True, limits=Limits(processes=200))) as box:
        with box.start(["sh", "-c", f"({script}) 2>/dev/null; sleep 100"], user="root"):
            while len(list(descendants(box.live.host_pid))) < 90:  # type: ignore[attr-defined]
                time.sleep(0.05)


def test_a_kept_one_has_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with Sandbox(policy=Policy(root=True), keep=True) as box:
        try:
            assert box.exec(["id", "-u"], user="root").text == "0\n"
            with box.start(["id", "-u"], user="root") as program:
                assert b"".join(program) == b"0\n"
        finally:
            box.destroy()


def test_nothing_of_it_outlives_its_maker() -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        inside = list(descendants(int(maker.stdout.readline())))
        assert len(inside) > 3
        maker.send_signal(signal.SIGKILL)
    while any(os.path.exists(f"/proc/{one}") for one in inside):
        time.sleep(0.01)


@pytest.mark.parametrize("mode", ["overlay", "rw"])
def test_folders_that_are_written_where_what_root_writes_can_be_told(mode: FolderMode, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    policy = Policy(root=True, folders=(FolderRule(host=str(tmp_path / "data"), mode=mode),))
    if mode == "rw" or os.geteuid():
        with pytest.raises(PolicyNotEnforceable, match="nobody's"), Sandbox(policy=policy):
            pass
        return
    with Sandbox(policy=policy) as box:
        box.exec(["sh", "-c", "umask 077; echo 1 > roots; chown 5:5 roots; echo 2 > /workspace/others"], user="root")
        assert sorted(box.apply()) == ["others", "roots"]
    assert (tmp_path / "data" / "roots").read_text() == "1\n"
    assert {one.stat().st_uid for one in (tmp_path / "data").iterdir()} == {0}


def test_the_shell_is_read_inside_its_root(tmp_path: Path) -> None:
    """An image's links lead nowhere else."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bash").symlink_to("/../../../bin/real")
    (tmp_path / "bin" / "real").write_bytes(b"\x7fELF of the image")
    assert shell_bytes(str(tmp_path), "/bin/bash") == b"\x7fELF of the image"
    (tmp_path / "bin" / "real").write_bytes(b"#!/bin/sh\n")
    with pytest.raises(SandboxFailed, match="no program"):
        shell_bytes(str(tmp_path), "/bin/bash")
    with pytest.raises(SandboxFailed, match="cannot be read"):
        shell_bytes(str(tmp_path), "/bin/sh")


@pytest.mark.root
def test_an_image_need_not_know_its_root(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "image").mkdir()
    with Sandbox(policy=Policy(root=True, rootfs=str(small_rootfs(tmp_path / "image")))) as box:
        assert (
            box.exec(["sh", "-c", "id -u; echo $HOME; echo x > /root/x && cat /root/x"], user="root").text
            == "0\n/root\nx\n"
        )
        assert box.exec(["id"], user="anne").exit_code == 125
        assert "Permission denied" in box.exec(shell="ls /proc/$$/fd").text


def accounts(folder: Path, ids: str) -> Path:
    """Files of /etc that know the ordinary user, and such further ids."""
    folder.chmod(0o755)
    (folder / "etc").mkdir()
    passwd = Path("/etc/passwd").read_text() + f"tester:x:{UID}:{UID}::/nonexistent:/bin/sh\n"
    for name, text in {"passwd": passwd, "subuid": ids, "subgid": ids}.items():
        (folder / "etc" / name).write_text(text)
    return folder / "etc"


@pytest.fixture
def folders() -> Iterator[tuple[Path, Path]]:
    """A home and what replaces files of /etc, where an ordinary user comes by."""
    made = [Path(tempfile.mkdtemp(prefix=f"stockade-{name}-")) for name in ("user", "etc")]
    yield made[0], made[1]
    for one in made:
        shutil.rmtree(one)


@pytest.mark.root
def test_all_of_it_by_an_ordinary_user_with_ids_to_give(folders: tuple[Path, Path]) -> None:
    home, etc = folders
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={home}/t", f"--rootdir={ROOT}"]
    command = [sys.executable, "-m", "pytest", *options, str(Path(__file__).relative_to(ROOT))]
    done = run_as_ordinary_user(command, home, etc=accounts(etc, "tester:200000:65536\n"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


REFUSED = """
from stockade_sandbox import Policy, Sandbox
from stockade_sandbox.errors import PolicyNotEnforceable
try:
    Sandbox(policy=Policy(root=True)).__enter__()
except PolicyNotEnforceable as error:
    print(error.rule, "|", error.hint)
"""


@pytest.mark.root
@pytest.mark.parametrize("ids", ["", "tester:200000:100\n", "other:200000:65536\n", "nonsense\ntester:x:65536\n"])
def test_without_such_ids_it_is_refused_with_the_way_out(folders: tuple[Path, Path], ids: str) -> None:
    home, etc = folders
    done = run_as_ordinary_user([sys.executable, "-c", REFUSED], home, etc=accounts(etc, ids))
    rule, _, hint = done.stdout.partition(" | ")
    assert (rule, done.stderr) == ("user", "")
    assert hint.endswith("usermod --add-subuids 100000-165535 --add-subgids 100000-165535 tester\n")


@pytest.mark.root
def test_the_ids_of_two_runs_are_others_and_no_account_s() -> None:
    first, second = sandbox_ids(), sandbox_ids()
    assert first.first != second.first
    assert first.first >= 0x71000000
    assert first.first + first.length < 2**32 - 1
    assert first.lines(7, 1000) == f"0 {first.first} 1000\n1000 7 1\n1001 {first.first + 1000} {first.length - 1001}\n"
