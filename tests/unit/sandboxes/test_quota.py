"""The disk limit: floods of bytes and of files, in every way a folder can be written, and what hides from a count."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from stockade_sandbox.backends.bubblewrap import sandbox as bubblewrap
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.limits.disk import (
    Bounds,
    DiskWatch,
    Room,
    count_closed,
    nothing_in,
    removed_but_open,
    spelled,
    written_places,
)
from stockade_sandbox.limits.usage import Usage, count
from stockade_sandbox.overlay import Review
from stockade_sandbox.overlay.watch import is_for_writing
from stockade_sandbox.policy import GIB, KIB, MIB, CopyRule, FolderMode, FolderRule, Limits, Policy, file_limit
from stockade_sandbox.processes import is_stopped, open_files, taken_files
from stockade_sandbox.results import FolderLayer
from tests.conformance.ordinary_user import run_as_ordinary_user

ROOT = Path(__file__).parents[3]

BYTES = "for i in $(seq 40); do head -c 8M /dev/zero > flood-$i; sleep 0.1; done; sleep 30; echo survived"
"""Slower than a disk: a watch that a loaded machine keeps waiting ends the sandbox, as it should."""
FILES = (
    "i=0; while [ $i -lt 60000 ]; do : > f$((i+=1)); [ $((i % 1000)) != 0 ] || sleep 0.1; done; sleep 30; echo survived"
)
_REMOVED = "exec {fd}> gone; rm gone; head -c 8M /dev/zero >&$fd; sleep 0.1"
UNLINKED = f"for i in $(seq 40); do {_REMOVED}; done; sleep 30; echo survived"
_SHUT = "mkdir d$i; head -c 8M /dev/zero > d$i/x; chmod 0 d$i; sleep 0.1"
CLOSED = f"for i in $(seq 40); do {_SHUT}; done; sleep 30; echo survived"
DEEP = f"for i in $(seq 300); do mkdir d && cd -P d; done; {BYTES}"
FLOODS = {"bytes": BYTES, "files": FILES, "removed but open": UNLINKED, "closed folders": CLOSED, "deep folders": DEEP}
LIMITS = Limits(disk_bytes=32 * MIB, command_timeout_s=60)


AGAIN = "cd /workspace; chmod -f u+rwx d*; rm -rf ./[!t]*; echo $kept > x && cat x"


async def flooded(policy: Policy, base: Path, command: str) -> str:
    """What the bot was told; that the sandbox goes on, with its shell's state, and can delete."""
    layers = prepare_layers(policy, base)
    try:
        async with BubblewrapSandbox(policy, layers, base) as box:
            await box.run("kept=again")
            result = await box.run(command)
            assert result.exit_code == 137, result
            assert not result.timed_out
            for _ in range(50):  # others write to this disk, too: where it cannot be counted, that is charged
                freed = await box.run(AGAIN)
                if freed.exit_code != 137:
                    break
            assert freed.stdout == b"again\n", freed
            return result.stdout.decode()
    finally:
        for layer in layers:
            Review().discard(layer)


def copied(base: Path) -> Callable[[Path], str | None]:
    return lambda path: "the test wants a copy"


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("mode", ["overlay", "copy", "rw"])
def test_a_flood_ends_the_command_by_name_and_the_sandbox_goes_on(
    mode: str, flood: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "copy":
        monkeypatch.setattr(bubblewrap, "overlay_check", copied)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "there").write_bytes(bytes(40 * MIB))  # what was there before does not count
    wanted: FolderMode = "rw" if mode == "rw" else "overlay"
    policy = Policy(folders=(FolderRule(host=str(folder), mode=wanted),), limits=LIMITS)
    words = anyio.run(flooded, policy, tmp_path / "run", FLOODS[flood])
    limit = "8192 files" if flood == "files" else "32 MiB"
    assert f"No space left (limit {limit})" in words
    assert "survived" not in words
    if mode == "rw":
        assert count([folder]).size < 41 * MIB


@pytest.mark.root
def test_a_flood_by_an_ordinary_user_too() -> None:
    home = Path(tempfile.mkdtemp(prefix="stockade-user-"))
    try:
        chosen = [f"{Path(__file__).relative_to(ROOT)}", "-k", "ends_the_command_by_name and not files"]
        options = ["-q", "-p", "no:cacheprovider", f"--basetemp={home}/t", f"--rootdir={ROOT}"]
        done = run_as_ordinary_user([sys.executable, "-m", "pytest", *options, *chosen], home)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "12 passed" in done.stdout
    finally:
        shutil.rmtree(home)


def test_a_flood_of_a_copy_too(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    policy = Policy(copies=(CopyRule(host=str(tmp_path / "given"), inside="/workspace"),), limits=LIMITS)
    assert "32 MiB" in anyio.run(flooded, policy, tmp_path / "run", f"cd /workspace; {BYTES}")
    assert list((tmp_path / "run").iterdir()) == []


def test_writing_within_the_limit_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    async def work() -> bytes:
        policy = Policy(folders=(FolderRule(host=str(folder)),), limits=LIMITS)
        layers = prepare_layers(policy, tmp_path / "run")
        async with BubblewrapSandbox(policy, layers, tmp_path / "run") as box:
            result = await box.run("for i in 1 2 3 4; do head -c 24M /dev/zero > x; sleep 0.3; done; stat -c %s x")
        Review().discard(layers[0])
        return result.stdout

    assert anyio.run(work) == b"25165824\n"


def test_count_takes_a_hard_link_once_and_follows_no_symlink(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(MIB))
    os.link(tmp_path / "a", tmp_path / "b")
    (tmp_path / "away").symlink_to("/usr")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 * MIB)
    found = count([tmp_path, tmp_path / "missing"])
    assert found.files == 3
    assert MIB <= found.size < 2 * MIB


def _deep(folder: Path, depth: int) -> None:
    """A chain of folders with a file of 1 MiB at its end, which no path reaches."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    with open(os.open("x", os.O_WRONLY | os.O_CREAT, dir_fd=at), "wb") as file:
        file.write(bytes(MIB))
    os.close(at)


def test_count_goes_as_deep_as_folders_are_nested(tmp_path: Path) -> None:
    _deep(tmp_path, 1200)
    (tmp_path / "beside").write_bytes(bytes(MIB))
    found = count([tmp_path])
    assert (found.files, found.blind) == (1202, False)
    assert found.size >= 2 * MIB
    subprocess.run(["rm", "-r", tmp_path / "d"], check=True)


def test_count_does_not_lose_its_way_where_a_deep_folder_is_moved(tmp_path: Path) -> None:
    """The way up then leads elsewhere: what is there is not counted, and it is said that something was missed."""
    place = tmp_path / "place"
    place.mkdir()
    _deep(place, 300)
    (tmp_path / "elsewhere/e").mkdir(parents=True)
    (tmp_path / "elsewhere/e/f").mkdir()
    here = place / "/".join("d" * 280)

    def move(usage: Usage) -> bool:
        if usage.files > 300 and here.exists():
            here.rename(tmp_path / "elsewhere/moved")
        return False

    found = count([place], move)
    assert found.blind
    assert found.files == 301


def test_closed_folders_are_counted_by_their_owner(tmp_path: Path) -> None:
    (tmp_path / "closed/inner").mkdir(parents=True)
    (tmp_path / "closed/inner/x").write_bytes(bytes(MIB))
    (tmp_path / "closed").chmod(0)
    everything = Bounds(1 << 40, 1 << 40)
    found = count_closed([tmp_path], everything, lambda: False)
    assert found is not None
    assert (found.files, found.blind) == (3, False)
    assert found.size >= MIB
    assert count_closed([tmp_path], everything, lambda: True) is None
    (tmp_path / "closed").chmod(0o700)


def test_what_is_written_while_others_free_as_much_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = (Room(used, 0, GIB) for used in itertools.count(1 << 50, -1))
    monkeypatch.setattr(Room, "of", lambda _: next(rooms))
    told = threading.Event()
    watch = DiskWatch([tmp_path], 16 * MIB, lambda _: told.set(), lambda: None, lambda: None)
    watch.start()
    (tmp_path / "x").write_bytes(bytes(20 * MIB))
    assert told.wait(60)
    watch.stop()


def test_what_was_stopped_stays_so_when_it_has_been_counted(tmp_path: Path) -> None:
    told = threading.Event()
    stopped, running = (subprocess.Popen(["sleep", "1000"]) for _ in range(2))
    try:
        stopped.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        pids = (stopped.pid, running.pid)
        watch = DiskWatch([tmp_path], 16 * MIB, lambda _: told.set(), lambda: None, lambda: None, lambda: pids)
        watch.start()
        (tmp_path / "x").write_bytes(bytes(20 * MIB))
        assert told.wait(60)
        watch.stop()
        assert (is_stopped(stopped.pid), is_stopped(running.pid)) == (True, False)
    finally:
        stopped.kill()
        running.kill()
        stopped.wait(), running.wait()


def test_a_removed_file_is_found_while_it_is_open(tmp_path: Path) -> None:
    script = f"exec 5> {tmp_path}/x; rm {tmp_path}/x; head -c 1M /dev/zero >&5; echo; sleep 100"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert removed_but_open(process.pid, {tmp_path.stat().st_dev}).size >= MIB
        subprocess.run(["kill", *(str(pid) for pid in _children(process.pid)), str(process.pid)], check=True)


def test_copies_of_descriptors_tell_what_a_list_of_them_tells(tmp_path: Path) -> None:
    """An ordinary user has no list of those of a sandbox's shell."""
    with subprocess.Popen(["bash", "-c", f"exec 7> {tmp_path}/x; echo; read"], stdin=-1, stdout=-1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        found = [
            {(os.stat(path).st_ino, is_for_writing(described)) for path, described in files}
            for files in (open_files(process.pid), taken_files(process.pid))
        ]
        assert found[0] == found[1]
        assert (os.stat(tmp_path / "x").st_ino, True) in found[1]
        process.stdin.close()


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_nearly_full_disk_ends_it_without_any_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade_sandbox.limits.disk.floor_of", lambda _: Bounds(1 << 60, 0))
    ended: list[str] = []
    watch = DiskWatch([tmp_path], 0, lambda _: None, lambda: ended.append("now"), lambda: None)
    watch.start()
    watch._thread.join()
    assert ended == ["now"]
    assert "nearly full" in str(watch.reason)
    watch.stop()


def test_commands_are_ended_while_the_host_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [100 * MIB]
    monkeypatch.setattr("stockade_sandbox.limits.disk.floor_of", lambda _: Bounds(64 * MIB, 0))
    monkeypatch.setattr(Room, "of", lambda _: Room(0, 0, free[0]))
    told = []

    def fill(words: str) -> None:
        told.append(words)
        free[0] -= MIB if len(told) == 1 else 8 * MIB  # not enough to be ended again; then enough

    watch = DiskWatch([tmp_path], 0, fill, lambda: told.append("the end"), lambda: None)
    for free[0] in (100 * MIB, 60 * MIB, 59 * MIB, 40 * MIB, 30 * MIB):
        watch._look_at_host(watch._rooms())
    assert [words.partition(":")[0] for words in told] == ["No space left (the host's disk is nearly full"] * 2
    assert watch.reason == f"the host's disk is nearly full: 30 MiB left where {tmp_path} is"


def test_the_hosts_files_run_out_as_its_bytes_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade_sandbox.limits.disk.floor_of", lambda _: Bounds(0, 1600))
    told = list[str]()
    watch = DiskWatch([tmp_path], 0, told.append, lambda: None, lambda: None)
    for left in (2000, 1500, 1450, 1350, 700):
        monkeypatch.setattr(Room, "of", lambda _, left=left: Room(0, 0, GIB, left))
        watch._look_at_host(watch._rooms())
    words = "the host's disk is nearly full: room for {} files left where " + f"{tmp_path} is"
    assert told == [f"No space left ({words.format(1500)})", f"No space left ({words.format(1350)})"]
    assert watch.reason == words.format(700)


@pytest.mark.parametrize(("free", "bound"), [(300 * MIB, 300 * MIB), (0, 41 * MIB), (1 << 50, 2 * GIB)])
def test_a_disk_is_looked_at_before_it_can_be_full(
    free: int, bound: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 8 GiB a second, more than disks of today take, but not more often than every 5 ms."""
    monkeypatch.setattr(Room, "of", lambda _: Room(0, 0, free))
    pauses = list[float]()

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0)
            return len(pauses) > 2

    for limit in (0, 2 * GIB):
        watch = DiskWatch([tmp_path], limit, lambda _: None, lambda: None, lambda: None)
        watch._floors = dict.fromkeys(watch._floors, Bounds(0, 0))
        watch._stop = Stop()
        watch._watch()
        assert 0.005 <= pauses[-1] <= bound / (8 * GIB)
        pauses.clear()


def test_who_fights_the_limit_loses_the_sandbox(tmp_path: Path) -> None:
    """64 MiB beyond it: nobody ends what writes here."""
    ended = threading.Event()
    watch = DiskWatch([tmp_path], MIB, lambda _: None, ended.set, lambda: None)
    watch.start()
    for number in range(70):
        (tmp_path / f"{number}").write_bytes(bytes(MIB))
    assert ended.wait(60)
    assert watch.reason == "the disk limit of 1 MiB is used up by what the bot wrote"
    watch.stop()


def test_what_is_full_and_made_empty_can_be_filled_again(tmp_path: Path) -> None:
    acted, told = threading.Semaphore(0), set()

    def act(words: str) -> None:
        told.add(words)
        acted.release()

    watch = DiskWatch([tmp_path], 16 * MIB, act, lambda: None, lambda: None)
    watch.start()
    for _ in range(2):
        (tmp_path / "x").write_bytes(bytes(20 * MIB))
        assert acted.acquire(timeout=60)
        (tmp_path / "x").unlink()
        while watch._counted.size > 16 * MIB:
            time.sleep(0.01)
        while acted.acquire(blocking=False):  # it was ended more than once while it wrote
            pass
    assert told == {"No space left (limit 16 MiB)"}
    assert watch.reason is None
    watch.stop()


@pytest.mark.anyio
async def test_programs_are_told_too(tmp_path: Path) -> None:
    """With streams or with a result; those that ended before are not."""
    (tmp_path / "folder").mkdir()
    policy = Policy(folders=(FolderRule(host=str(tmp_path / "folder")),), limits=LIMITS)
    layers = prepare_layers(policy, tmp_path / "run")
    words = "stockade: No space left (limit 32 MiB): what ran was ended; deleting makes room"
    async with BubblewrapSandbox(policy, layers, tmp_path / "run") as box:
        before = await box.exec(["sh", "-c", "kill -9 $$"])
        result = await box.exec(["bash", "-c", BYTES])
        await box.exec(["sh", "-c", "rm *"])
        async with box.program(["bash", "-c", BYTES]) as program:
            reason = await program.exit_reason()
    Review().discard(layers[0])
    assert (before.exit_code, before.stderr) == (137, b"")
    assert (result.exit_code, result.stderr.decode()) == (137, f"{words}\n")
    assert (program.status, reason) == (137, words)


@pytest.mark.anyio
async def test_allocating_without_writing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    attempt = "os.posix_fallocate(fd, 0, 1 << 20)"
    script = f"import os; fd = os.open('x', os.O_RDWR | os.O_CREAT); {attempt}; print(os.fstat(fd).st_size)"
    policy = Policy(folders=(FolderRule(host=str(tmp_path / "folder")),))
    layers = prepare_layers(policy, tmp_path / "run")
    async with BubblewrapSandbox(policy, layers, tmp_path / "run") as box:
        written = await box.exec(["python3", "-c", script])  # libc writes where it is refused
        refused = await box.exec(["fallocate", "-l", "1M", "y"])
        punched = await box.exec(["fallocate", "-p", "-o", "0", "-l", "4096", "x"])
    Review().discard(layers[0])
    assert written.stdout == b"1048576\n"
    assert b"not supported" in refused.stderr
    assert punched.exit_code == 0, punched


def test_nothing_written_needs_no_places() -> None:
    watch = DiskWatch([], 100, lambda _: None, lambda: None, lambda: None)
    watch.start()
    watch.stop()
    assert watch.reason is None


def test_nothing_in_folders_that_are_empty_and_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full/inner").mkdir(parents=True)
    assert nothing_in([tmp_path / "empty"])
    assert not nothing_in([tmp_path / "empty", tmp_path / "full"])
    assert not nothing_in([tmp_path / "missing"])


def test_written_places_hold_no_other(tmp_path: Path) -> None:
    inner = FolderLayer(host=str(tmp_path / "a"), inside="/a", mode="rw", strategy="direct")
    outer = FolderLayer(host=str(tmp_path), inside="/b", mode="rw", strategy="direct")
    read = FolderLayer(host="/usr", inside="/c", mode="ro", strategy="direct")
    assert written_places([inner, outer, read], []) == (tmp_path,)


def test_words() -> None:
    assert [spelled(2 * GIB), spelled(64 * MIB), spelled(1536 * KIB), spelled(12)] == [
        "2 GiB",
        "64 MiB",
        "1.5 MiB",
        "12 bytes",
    ]
    assert file_limit(2 * GIB) == 524_288
    assert file_limit(1) == 1024
