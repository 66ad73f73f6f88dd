"""Conflicts by content: real overlays by root and user, and copies, with somebody working on the host meanwhile."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stockade.core.errors import ChangedOnHost, UsageError
from stockade_sandbox.overlay.base import DELETED_BYTES, GRAIN_NS, Base, base_of
from stockade_sandbox.overlay.prepare import prepare_layer
from stockade_sandbox.overlay.record import open_layer
from stockade_sandbox.overlay.restore import restore, share_snapshots
from stockade_sandbox.overlay.safe_fs import LARGE, digest_of
from stockade_sandbox.overlay.snapshots import Snapshots
from stockade_sandbox.overlay.store import BASE, KEPT
from stockade_sandbox.policy import FolderRule
from tests.unit.sandboxes.test_folders.children import cut_off_after, in_child, mount_small_disk
from tests.unit.sandboxes.test_folders.conftest import MakeBench
from tests.unit.sandboxes.test_folders.helpers import ORDINARY, Bench


def looked(bench: Bench, script: str) -> Snapshots:
    """What a run does: the bot acts, and what it wrote is looked at before it goes on."""
    snapshots = Snapshots(bench.layer)
    snapshots.take()
    bench.bash(script)
    snapshots.take()
    return snapshots


def tick(bench: Bench) -> None:
    """Until the file system stamps later than it did last: what is stamped alike has no order, and is told so."""
    probe = bench.top / "tick"
    probe.touch()
    last = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns <= last:
        probe.touch()


def git(folder: Path, *args: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "safe.directory=*"]
    subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True)


def base(bench: Bench) -> Base:
    with open_layer(bench.layer) as opened:
        return base_of(opened)


def kept_of(found: Base, path: str) -> bytes | None:
    entry = found.get(path)
    assert entry is not None
    return found.data(entry)


def test_a_checkout_and_back_is_no_conflict(bench: Bench) -> None:
    for path in ("a", "b", "d/in", "gone"):
        bench.write(path, "old\n")
    git(bench.host, "init", "-q")
    git(bench.host, "add", ".")
    git(bench.host, "commit", "-qm", "one")
    git(bench.host, "checkout", "-qb", "other")
    git(bench.host, "rm", "-rq", "d", "gone", "a")
    bench.write("b", "other\n")
    git(bench.host, "commit", "-qam", "two")
    git(bench.host, "checkout", "-q", "-")
    bench.begin()
    looked(bench, "echo new > a; echo new > b; echo new > d/in; rm gone; echo new > n")
    inode = (bench.host / "a").stat().st_ino, (bench.host / "a").stat().st_ctime_ns
    git(bench.host, "checkout", "-q", "other")
    git(bench.host, "checkout", "-q", "-")
    assert ((bench.host / "a").stat().st_ino, (bench.host / "a").stat().st_ctime_ns) != inode
    assert bench.apply() == ("a", "b", "d/in", "gone", "n")


def test_other_times_are_no_conflict(bench: Bench) -> None:
    bench.write("a", "old\n")
    bench.write("gone", "old\n")
    looked(bench, "echo new > a; rm gone")
    os.utime(bench.host / "a", (1, 1))
    os.utime(bench.host / "gone")
    assert bench.apply() == ("a", "gone")


CLASHES = {
    "the user changed it": ("echo bot > a", "echo mine > a"),
    "the user removed it": ("echo bot > a", "rm a"),
    "the bot removed it": ("rm a", "echo mine > a"),
    "both made it": ("echo bot > n", "echo mine > n"),
    "both made it a link": ("ln -s d n", "ln -s a n"),
    "another target": ("ln -sfn d l", "ln -sfn b l"),
    "another mode": ("echo bot > a", "chmod 755 a"),
    "both modes": ("chmod 600 a", "chmod 755 a"),
    "modes of a folder": ("chmod 700 d", "chmod 750 d"),
    "another kind": ("echo bot > a", "ln -sf d a"),
    "a folder now": ("echo bot > a", "rm a; mkdir a"),
    "in a removed folder": ("rm -r d", "echo mine > d/in"),
    "in a new folder of that name": ("rm -r d; mkdir d; echo bot > d/in", "echo mine > d/in"),
    "in what is a file now": ("rm -r d; echo bot > d", "echo mine > d/in"),
}


@pytest.mark.parametrize("name", CLASHES)
def test_both_changed_it(bench: Bench, name: str) -> None:
    script, mine = CLASHES[name]
    bench.write("a", "old\n")
    bench.write("d/in", "old\n")
    (bench.host / "l").symlink_to("a")
    looked(bench, script)
    subprocess.run(["bash", "-c", mine], cwd=bench.host, check=True)
    before = bench.shown()
    with pytest.raises(ChangedOnHost, match="changed on the host since the run began") as failed:
        bench.apply()
    assert failed.value.exit_status == 1
    assert bench.shown() == before


BOTH = ("echo same > a", "echo same > n", "rm a", "ln -sfn d l", "chmod 755 a")


@pytest.mark.parametrize("script", BOTH)
def test_both_did_the_same(bench: Bench, script: str) -> None:
    bench.write("a", "old\n")
    (bench.host / "l").symlink_to("a")
    looked(bench, f"{script}; echo more > m")
    subprocess.run(["bash", "-c", script], cwd=bench.host, check=True)
    assert bench.apply() == ("m",)


def test_a_folder_that_the_user_removed_does_not_come_back(bench: Bench) -> None:
    bench.write("d/in", "old\n")
    looked(bench, "echo bot > d/in")
    subprocess.run(["rm", "-r", bench.host / "d"], check=True)
    with pytest.raises(UsageError, match="'d'"):
        bench.apply()
    assert bench.shown() == {}


def test_what_only_the_user_changed_stays(bench: Bench) -> None:
    """The bot opened it to write, or changed it back: nothing of that is to be applied."""
    bench.write("a", "old\n")
    bench.write("b", "old\n")
    bench.write("d/in", "old\n")
    snapshots = looked(bench, "echo tmp > a; touch b; echo 1 > d/n")
    bench.bash("echo old > a")
    snapshots.take()
    bench.write("a", "mine\n")
    bench.write("b", "mine\n")
    (bench.host / "d").chmod(0o700)
    assert bench.apply() == ("d/n",)
    assert (bench.host / "a").read_text() == (bench.host / "b").read_text() == "mine\n"
    assert (bench.host / "d").stat().st_mode & 0o777 == 0o700


def test_what_changed_while_the_bot_changed_it_is_a_conflict_unless_equal(bench: Bench) -> None:
    """Before anybody looked: what it was before is not known where the host itself is shown, and not guessed."""
    for name in ("a", "b", "c", "gone"):
        bench.write(name, "old\n")
    bench.begin()
    bench.bash("echo bot > a; echo same > b; echo bot > c; echo bot > n; rm gone")
    bench.write("a", "mine\n")
    bench.write("b", "same\n")
    bench.write("n", "mine\n")
    bench.write("gone", "mine\n")
    bench.review.seal(bench.layer)
    with pytest.raises(ChangedOnHost, match="began: 'a', 'gone', 'n'"):
        bench.apply()
    assert bench.apply("c") == ("c",)


def test_what_the_bot_met_changed_is_no_conflict(upper_bench: Bench) -> None:
    """An overlay shows the host as it is: what was changed before the bot wrote to it is what it began with."""
    upper_bench.write("a", "old\n")
    snapshots = looked(upper_bench, "cat a")
    upper_bench.write("a", "mine\n")
    tick(upper_bench)
    upper_bench.bash("echo bot >> a")
    snapshots.take()
    assert upper_bench.apply() == ("a",)
    assert (upper_bench.host / "a").read_text() == "mine\nbot\n"


def test_what_came_and_went_is_no_base(upper_bench: Bench) -> None:
    snapshots = looked(upper_bench, "echo bot > n")
    upper_bench.bash("rm n")
    snapshots.take()
    upper_bench.write("n", "mine\n")
    tick(upper_bench)
    snapshots.take()
    upper_bench.bash("echo bot >> n")
    snapshots.take()
    assert upper_bench.apply() == ("n",)
    assert (upper_bench.host / "n").read_text() == "mine\nbot\n"


def test_a_mark_that_the_bot_made_itself_says_nothing(make_bench: MakeBench) -> None:
    """Where root mounts, the kernel's marks are trusted.*: a new file is one, whatever the bot says it came from."""
    bench = make_bench("root")
    bench.begin()
    bench.bash("echo bot > n; python3 -c \"import os; os.setxattr('n', 'user.overlay.origin', b'x')\"")
    tick(bench)
    bench.write("other", "mine\n")
    bench.review.seal(bench.layer)
    assert bench.apply("n") == ("n",)


def test_a_large_file_is_known_by_its_hash(bench: Bench) -> None:
    for name in ("a", "b"):
        with (bench.host / name).open("wb") as out:
            out.write(b"begin")
            out.truncate(LARGE + 5)
    looked(bench, "echo bot >> a; echo bot >> b")
    assert kept_of(base(bench), "a") is None
    assert sum(path.stat().st_size for path in (bench.place / BASE).iterdir()) < 10_000
    whole = (bench.host / "a").read_bytes()
    (bench.host / "a").unlink()
    (bench.host / "a").write_bytes(whole)
    with (bench.host / "b").open("r+b") as out:
        out.seek(LARGE)
        out.write(b"mine")
    with pytest.raises(ChangedOnHost, match="began: 'b'"):
        bench.apply()
    assert bench.apply("a") == ("a",)


def test_the_same_bytes_have_the_same_hash_however_they_lie(tmp_path: Path) -> None:
    size = LARGE + 3_000_000
    data = bytearray(size)
    data[5:9], data[40_000_000:40_000_004], data[-1:] = b"one.", b"two.", b"3"
    (tmp_path / "dense").write_bytes(data)
    with (tmp_path / "sparse").open("wb") as out:
        for at, text in ((5, b"one."), (40_000_000, b"two."), (size - 1, b"3")):
            out.seek(at)
            out.write(text)
    data[41_000_000] = 1
    (tmp_path / "other").write_bytes(data)
    dense, sparse, other = (_hash(tmp_path / name) for name in ("dense", "sparse", "other"))
    assert dense == sparse != other
    assert (tmp_path / "sparse").stat().st_blocks < (tmp_path / "dense").stat().st_blocks


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return digest_of(file.fileno())


def test_bytes_are_kept_once_and_come_back(bench: Bench) -> None:
    noise = os.urandom(3_000_000)
    for name in ("a", "b", "d/c"):
        bench.write(name, noise)
    bench.write("small", "old\n")
    bench.write("empty", "")
    looked(bench, "echo bot >> a; echo bot >> b; rm -r d; rm small; echo bot > empty; echo bot > n")
    found = base(bench)
    kept = {name: kept_of(found, name) for name in ("a", "b", "d/c", "small", "empty", "n")}
    assert kept == {"a": noise, "b": noise, "d/c": noise, "small": b"old\n", "empty": b"", "n": None}
    assert sum(path.stat().st_size for path in (bench.place / BASE).iterdir()) < 3_100_000


def test_of_much_that_is_removed_the_hash_is_kept(bench: Bench) -> None:
    for number in range(3):
        (bench.host / f"d{number}").mkdir()
        (bench.host / f"d{number}/big").write_bytes(os.urandom(DELETED_BYTES // 2))
    looked(bench, "rm -r d*")
    found = base(bench)
    assert sum(kept_of(found, f"d{number}/big") is None for number in range(3)) == 1
    data = (bench.host / "d2/big").read_bytes()
    (bench.host / "d2/big").write_bytes(data)
    assert len(bench.apply()) == 6


def test_a_removed_tree_is_known_down_to_its_leaves(bench: Bench) -> None:
    for number in range(40):
        bench.write(f"d/{number % 4}/{number}/f", f"{number}\n")
    looked(bench, "rm -r d; mkdir -p d/1/1; echo bot > d/1/1/f; echo bot > d/2")
    subprocess.run(["cp", "-a", bench.host / "d", bench.top / "aside"], check=True)
    subprocess.run(["rm", "-r", bench.host / "d"], check=True)
    subprocess.run(["cp", "-a", bench.top / "aside", bench.host / "d"], check=True)
    assert "d/3/3/f" in bench.apply()


def test_the_base_is_on_disk_before_the_snapshot(make_bench: MakeBench) -> None:
    steps, died, both = 0, True, 0
    while died:
        bench = make_bench("copy")
        bench.write("a", "old\n")
        snapshots = Snapshots(bench.layer)
        snapshots.take()
        bench.bash("echo new > a")
        died = cut_off_after(steps, snapshots.take)
        if (bench.place / KEPT / "2").exists() or (bench.place / KEPT / "1").exists():
            both += 1
            assert kept_of(base(bench), "a") == b"old\n"
        again = Snapshots(bench.layer)
        again.take()
        assert kept_of(base(bench), "a") == b"old\n"
        steps += 1
    assert steps > 3
    assert both


def test_no_room_for_the_base_is_said(make_bench: MakeBench) -> None:
    bench = make_bench("root")
    bench.write("a", os.urandom(600_000))
    snapshots = looked(bench, "true")
    bench.bash("echo small > a")

    def full() -> object:
        (bench.place / BASE).mkdir()
        mount_small_disk(bench.place / BASE, "64k")
        return snapshots.take()

    assert "the disk is full" in in_child(full)


def test_brought_back_it_knows_no_more_than_then(bench: Bench) -> None:
    bench.write("a", "old\n")
    bench.write("b", "old\n")
    snapshots = looked(bench, "echo bot > a")
    name = snapshots.name
    bench.bash("echo bot > b")
    snapshots.take()
    assert not base(bench).is_new("b")
    restore(bench.layer, name)
    found = base(bench)
    assert (found.is_new("a"), found.is_new("b")) == (False, True)
    assert len(list((bench.place / BASE).iterdir())) == 1
    bench.write("a", "mine\n")
    with pytest.raises(ChangedOnHost, match="'a'"):
        bench.apply()


@pytest.mark.parametrize("shared", [True, False])
def test_another_layer_of_the_folder_has_it_too(bench: Bench, shared: bool) -> None:
    bench.write("a", "old\n")
    bench.write("b", "old\n")
    snapshots = looked(bench, "echo bot > a")
    name = snapshots.name
    assert name is not None
    bench.bash("echo bot > b")
    snapshots.take()
    bench.write("a", "mine\n")
    other = Bench(bench.top, bench.how)
    other.begun = prepare_layer(
        FolderRule(host=str(bench.host)), bench.top / "branch",
        sandbox_uid=ORDINARY if bench.how == "user" else 0,
        can_overlay=lambda _: "asked to copy" if bench.how == "copy" else None,
    )  # fmt: skip
    if shared:
        share_snapshots(bench.layer, other.layer, name)
        restore(other.layer, name)
    else:
        restore(other.layer, name, bench.place)
        Snapshots(other.layer).take()
    found = base(other)
    assert (found.is_new("a"), found.is_new("b")) == (False, True)
    assert kept_of(found, "a") == b"old\n"
    with pytest.raises(ChangedOnHost, match="'a'"):
        other.apply()


def test_a_look_costs_by_what_is_new_in_the_layer(make_bench: MakeBench) -> None:
    def opened(files: int) -> str:
        bench = make_bench("root")
        for number in range(files):
            bench.write(f"d{number % 7}/{number}", "old\n")
        snapshots = looked(bench, "echo bot > d0/0; rm d1/1")
        time.sleep(3 * GRAIN_NS / 1e9)
        snapshots.take()
        bench.bash("echo bot > d2/2")
        time.sleep(3 * GRAIN_NS / 1e9)  # what is younger is looked at twice
        counts = [0, 0]

        def count() -> object:
            asked = {"open", "os.listdir", "os.scandir", "os.listxattr", "os.getxattr"}
            sys.addaudithook(lambda event, _: counts.__setitem__(0, counts[0] + (event in asked)))
            snapshots.take()
            counts[1] = counts[0]
            snapshots.take()
            return counts[1], counts[0] - counts[1]

        return in_child(count)

    assert opened(14) == opened(1400)


def test_a_folder_that_moved_is_named_at_the_end(bench: Bench) -> None:
    bench.write("a", "old\n")
    snapshots = looked(bench, "true")
    bench.host.rename(bench.top / "away")
    (bench.place / ("copy" if bench.how == "copy" else "upper") / "a").write_text("bot\n")
    assert snapshots.take() is not None
    (bench.top / "away").rename(bench.host)
    assert bench.apply() == ("a",)
