import fcntl
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stockade.core.errors import SandboxFailed, UsageError
from stockade_sandbox.locks import try_lock
from stockade_sandbox.overlay import prepare_layer
from stockade_sandbox.overlay.journal import STAGING
from stockade_sandbox.overlay.record import open_layer
from stockade_sandbox.policy import FolderRule
from stockade_sandbox.results import Change, FolderLayer
from tests.support.scale import scaled
from tests.unit.sandboxes.test_folders.children import become, cut_off_after, in_child, mount_small_disk
from tests.unit.sandboxes.test_folders.conftest import MakeBench
from tests.unit.sandboxes.test_folders.helpers import ORDINARY, Bench, times

NAMES = ["a", "b", "c", "d", "d/x", "d/y", "e", "e/f", "e/f/z"]
NAME = st.sampled_from(NAMES)
OPERATION = st.one_of(
    st.builds("echo {1} > {0}".format, NAME, st.sampled_from(["one", "two"])),
    st.builds("rm -rf {}".format, NAME),
    st.builds("mkdir -p {}".format, NAME),
    st.builds("mv {} {}".format, NAME, NAME),
    st.builds("cp -r {} {}".format, NAME, NAME),
    st.builds("ln -sfn a {}".format, NAME),
    st.builds("ln {} {}".format, NAME, NAME),
    st.builds("chmod {1} {0}".format, NAME, st.sampled_from(["600", "755", "700", "000"])),
    st.builds("truncate -s {1} {0}".format, NAME, st.sampled_from(["0", "4", "9"])),
    st.builds("rm -rf {0}; mkdir {0}".format, NAME),
    st.builds("touch {}".format, NAME),
)


@pytest.mark.parametrize("how", ["root", "user", "copy"])
@settings(max_examples=scaled(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.lists(OPERATION, max_size=8), operations=st.lists(OPERATION, min_size=1, max_size=12))
def test_whatever_was_done_the_host_becomes_what_the_bot_saw(
    make_bench: MakeBench, how: str, first: list[str], operations: list[str]
) -> None:
    bench = make_bench(how)
    script = "\n".join(["echo a > a; mkdir -p d e/f; echo x > d/x; echo z > e/f/z", *first])
    subprocess.run(["bash", "-c", script], cwd=bench.host, capture_output=True, check=False)
    bench.begin()
    before, when = bench.shown(), times(bench.host)
    merged = bench.bash("\n".join(operations))
    bench.changes()
    bench.diff()
    assert (bench.shown(), times(bench.host)) == (before, when)
    bench.apply()
    assert bench.shown() == merged
    assert bench.changes() == ()


def test_only_what_was_chosen_is_written(bench: Bench) -> None:
    bench.write("a", "1")
    bench.write("gone", "1")
    bench.bash("echo 2 > a; echo 3 > b; rm gone; mkdir -p x/y; echo z > x/y/z; echo w > x/w")
    assert bench.apply("a", "x/y/z") == ("a", "x/y/z")
    assert set(bench.shown()) == {"a", "gone", "x", "x/y", "x/y/z"}
    assert set(bench.kinds()) == {"b", "gone", "x/w"}


def test_changes_that_need_another_say_which(bench: Bench) -> None:
    bench.write("d/in", "1")
    bench.write("f", "1")
    bench.bash("rm -r d; echo file > d; rm f; mkdir f; echo in > f/in")
    before = bench.shown()
    with pytest.raises(UsageError, match="'d' cannot be removed: the host still has 'd/in'"):
        bench.apply("d")
    with pytest.raises(UsageError, match="'f' is a file on the host"):
        bench.apply("f/in")
    assert bench.shown() == before


def test_a_refused_change_stops_all(bench: Bench) -> None:
    bench.bash("echo x > a; ln -s /etc/passwd l; mkfifo pipe")
    with pytest.raises(UsageError, match="'l' is a symlink to an absolute path"):
        bench.apply()
    assert bench.shown() == {}
    innocent = [replace(change, refused=None) for change in bench.changes()]
    with pytest.raises(UsageError, match="cannot be applied"):
        bench.review.apply(bench.layer, innocent)
    assert bench.apply("a") == ("a",)


def test_a_layer_that_changed_after_the_look_is_not_applied(bench: Bench) -> None:
    bench.bash("echo x > a")
    seen = bench.changes()
    written = bench.place / ("copy" if bench.how == "copy" else "upper")
    (written / "a").write_text("something else")
    with pytest.raises(UsageError, match="changed since it was looked at: 'a'"):
        bench.review.apply(bench.layer, seen)
    assert bench.shown() == {}


def test_invented_changes_do_nothing(bench: Bench) -> None:
    bench.write("keep", "1")
    bench.bash("echo x > a")
    for path in ("../../etc/x", "/etc/x", "keep", "a/../keep"):
        assert bench.review.apply(bench.layer, [Change(path=path, kind="deleted")]) == ()
    assert set(bench.shown()) == {"keep"}


def test_a_host_that_changed_is_a_conflict(bench: Bench) -> None:
    bench.write("a", "1")
    bench.write("b", "1")
    bench.write("c", "1")
    bench.bash("echo 2 > a; echo 2 > b; echo new > n; rm c")
    bench.write("a", "person")
    bench.write("n", "person")
    bench.write("c", "person")
    before = bench.shown()
    with pytest.raises(UsageError, match="changed on the host since the run began: 'a', 'c', 'n'"):
        bench.apply()
    assert bench.shown() == before
    assert bench.apply("b") == ("b",)
    assert bench.apply(force=True) == ("a", "c", "n")
    assert (bench.host / "a").read_text() == "2\n"


def test_what_we_applied_ourselves_is_no_conflict(bench: Bench) -> None:
    bench.write("a", "1")
    bench.bash("echo 2 > a; echo 2 > b; echo left > c")
    bench.apply("a", "b")
    bench.bash("echo 3 > a; echo 3 > b")
    assert bench.apply() == ("a", "b", "c")


def test_a_new_host_file_keeps_its_folder(bench: Bench) -> None:
    bench.write("d/in", "1")
    bench.bash("rm -r d")
    seen = bench.changes()
    bench.write("d/person", "1")
    with pytest.raises(UsageError, match="the host still has 'd/person'"):
        bench.review.apply(bench.layer, seen)
    assert set(bench.shown()) == {"d", "d/in", "d/person"}


@pytest.mark.parametrize("trap", ["d", "d/e"])
def test_a_symlink_on_the_host_is_not_followed(bench: Bench, tmp_path: Path, trap: str) -> None:
    bench.write("d/e/f", "1")
    bench.bash("echo evil > d/e/f; echo evil > d/e/g")
    seen = bench.changes()
    (tmp_path / "e").mkdir()
    (bench.host / trap).rename(bench.top / "away")
    (bench.host / trap).symlink_to(tmp_path if trap == "d" else tmp_path / "e")
    with pytest.raises(UsageError):
        bench.review.apply(bench.layer, seen, force=True)
    assert list((tmp_path / "e").iterdir()) == []


def test_another_folder_in_its_place_is_refused(bench: Bench) -> None:
    bench.bash("echo x > a")
    bench.host.rename(bench.top / "away")
    bench.host.mkdir()
    with pytest.raises(UsageError, match="another folder"):
        bench.apply()


def test_a_mount_below_is_left_alone(upper_bench: Bench) -> None:
    (upper_bench.host / "m").mkdir()
    upper_bench.bash("rmdir m; touch a")

    def mounted() -> object:
        mount_small_disk(upper_bench.host / "m", "1m")
        (upper_bench.host / "m/precious").touch()
        return [(change.path, change.refused) for change in upper_bench.changes()]

    why = "another file system is mounted there on the host"
    assert in_child(mounted) == str([("a", None), ("m", why), ("m/precious", why)])


@pytest.mark.parametrize("how", ["root", "copy"])
def test_owner_mode_and_attributes_are_those_of_the_host(make_bench: MakeBench, how: str) -> None:
    bench = make_bench(how)
    bench.write("a", "1", 0o640)
    bench.begin()
    os.chown(bench.host / "a", 1234, 1235)
    os.setxattr(bench.host / "a", "user.note", b"kept")
    os.chown(bench.host, 1236, 1237)
    bench.bash("cat a > t; echo 2 >> t; cat t > a; rm t; mkdir d; echo n > d/n; ln -s a l")
    bench.apply(force=True)
    found = {path: (bench.host / path).lstat() for path in ("a", "d", "d/n", "l")}
    owners = {path: (entry.st_uid, entry.st_gid) for path, entry in found.items()}
    assert owners["d"] == owners["d/n"] == owners["l"] == (1236, 1237)
    assert owners["a"] == (1234, 1235)
    assert os.getxattr(bench.host / "a", "user.note") == b"kept"


def test_a_full_disk_changes_nothing(make_bench: MakeBench) -> None:
    bench = make_bench("copy")

    def full() -> object:
        mount_small_disk(bench.host, "1m")
        bench.write("a", "old")
        bench.bash("echo new > a; head -c 700000 /dev/urandom > b; head -c 700000 /dev/urandom > c", look=False)
        before = bench.shown()
        with pytest.raises(SandboxFailed, match="No space left") as failed:
            bench.apply()
        assert bench.shown() == before
        assert bench.apply("a", "b") == ("a", "b")
        return failed.value.hint

    assert "free some space there, or where /" in in_child(full)


def test_cut_off_anywhere_and_applied_again(make_bench: MakeBench) -> None:
    steps, died = 0, True
    while died:
        bench = make_bench("copy")
        bench.write("a", "old a")
        bench.write("dir/in", "old")
        bench.write("file", "old")
        bench.write("gone", "old")
        merged = bench.bash(
            "echo new > a; rm gone; rm -r dir; echo now a file > dir; rm file; mkdir file; "
            "echo in > file/in; ln -s a link; chmod 700 file"
        )
        old, seen = bench.shown(), bench.changes()
        died = cut_off_after(steps, partial(bench.review.apply, bench.layer, seen))
        now = {path: entry for path, entry in bench.shown().items() if not path.startswith(STAGING)}
        for path, entry in now.items():
            assert entry in (old.get(path), merged.get(path)) or entry[0] == "directory"
        assert now["a"] in (old["a"], merged["a"])
        bench.review.apply(bench.layer, seen)
        assert bench.shown() == merged
        assert bench.changes() == ()
        steps += 1
    assert steps > 20


def test_an_ordinary_user_reviews_what_nobody_may_read(make_bench: MakeBench) -> None:
    bench = make_bench("user")
    bench.write("locked/f", "1")
    bench.begin()
    (bench.host / "locked").chmod(0o555)
    bench.host.chmod(0o555)
    merged = bench.bash(
        "chmod 755 locked; echo 2 > locked/f; chmod 555 locked; mkdir d; echo x > d/f; chmod 000 d/f; chmod 300 d; "
        "mkdir n; touch n/x; chmod 0 n"
    )

    def apply() -> object:
        found = bench.changes()
        again = bench.changes()
        assert found == again
        return bench.review.apply(bench.layer, found)

    bench.place.parent.chmod(0o755)
    os.chown(bench.place / "layer.json", ORDINARY, ORDINARY)
    said = in_child(apply, lambda: become(ORDINARY))
    assert said == str(("d", "d/f", "locked/f", "n", "n/x"))
    assert in_child(bench.changes, lambda: become(ORDINARY)) == "()"
    assert bench.shown() == merged
    assert bench.host.stat().st_mode & 0o777 == 0o555
    bench.host.chmod(0o755)


def test_the_whole_way_of_an_ordinary_user(make_bench: MakeBench) -> None:
    bench = make_bench("user")
    bench.write("a", "1")
    subprocess.run(["chown", "-R", f"{ORDINARY}:{ORDINARY}", bench.top], check=True)

    def prepare() -> object:
        layer = prepare_layer(
            FolderRule(host=str(bench.host)), bench.top / "l", sandbox_uid=None, can_overlay=lambda _: None
        )
        return json.dumps(asdict(layer))

    bench.begun = FolderLayer(**json.loads(in_child(prepare, lambda: become(ORDINARY))))
    assert bench.begun.strategy == "overlay"
    (bench.place / "m").mkdir()
    merged = bench.bash("echo 2 > a; mkdir d; chmod 0 d; rm -f nothing")
    assert in_child(bench.apply, lambda: become(ORDINARY)) == "('a', 'd')"
    assert bench.shown() == merged
    in_child(lambda: bench.review.discard(bench.layer), lambda: become(ORDINARY))
    assert not bench.place.exists()


def test_another_apply_to_the_same_folder_is_waited_for(bench: Bench) -> None:
    """One that is under way has staged its content in the folder: it must not be swept away as a leftover."""
    bench.begin()
    bench.bash("echo new > n")
    staged = bench.host / f"{STAGING}0123"
    other = os.open(bench.host, os.O_RDONLY | os.O_DIRECTORY)
    with ThreadPoolExecutor(1) as pool:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = pool.submit(bench.apply)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.3)
        staged.mkdir()
        assert not (bench.host / "n").exists()
        staged.rmdir()
        os.close(other)
        assert waiting.result(timeout=30) == ("n",)
    assert (bench.host / "n").read_text() == "new\n"


def test_who_reads_the_layer_is_waited_for_and_who_applies_it_too(bench: Bench) -> None:
    bench.begin()
    bench.bash("echo new > n")
    other = os.open(bench.place, os.O_RDONLY | os.O_DIRECTORY)
    with ThreadPoolExecutor(1) as pool:
        for held, command in ((fcntl.LOCK_EX, bench.changes), (fcntl.LOCK_SH, bench.apply)):
            fcntl.flock(other, held)
            waiting = pool.submit(command)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
            fcntl.flock(other, fcntl.LOCK_UN)
            waiting.result(timeout=30)
    os.close(other)
    assert (bench.host / "n").read_text() == "new\n"


def test_a_child_forked_while_a_layer_is_read_does_not_hold_it(bench: Bench) -> None:
    """Another thread's, until it becomes its program: it has every open file of this process."""
    bench.begin()
    waits, go = os.pipe()
    with open_layer(bench.layer):
        child = os.fork()
        if child == 0:
            os.read(waits, 1)
            os._exit(0)
    other = os.open(bench.place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert try_lock(other)
    finally:
        os.write(go, b".")
        os.waitpid(child, 0)
        for descriptor in (waits, go, other):
            os.close(descriptor)
