"""What was applied is taken back, byte for byte; and applied again."""

import os
import random
import shutil
import stat
import subprocess
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stockade.core.errors import UsageError
from stockade_sandbox.overlay import TakenBack
from stockade_sandbox.overlay.journal import STAGING, all_journals, journals_of
from stockade_sandbox.overlay.undo import recover_folder
from stockade_sandbox.results import Decision, Moved
from tests.support.scale import scaled
from tests.unit.sandboxes.test_folders.children import become, cut_off_after, cut_off_at, in_child
from tests.unit.sandboxes.test_folders.conftest import MakeBench
from tests.unit.sandboxes.test_folders.helpers import ORDINARY, Bench
from tests.unit.sandboxes.test_folders.test_apply import OPERATION

RICH = """
echo a > a; mkdir -p d/e kept gone/deep; echo x > d/x; echo z > d/e/z; echo g > gone/deep/g; ln -s a link; ln a hard
mkfifo pipe; echo m > mode; chmod 640 mode; setfattr -n user.note -v kept a; setfattr -n user.folder -v f gone
printf 'n' > "$(printf 'not-\\377-utf8')"; chmod 711 gone; echo sub > sub
"""
WORK = """
echo b > a; rm -r gone; rm link; mkdir link; echo in > link/in; chmod 755 mode; rm -r d; echo file > d
mkdir new; echo n > new/n; printf '2' > "$(printf 'not-\\377-utf8')"; rm sub; ln -s a sub; chmod 700 kept
"""


def everything(root: Path) -> dict[bytes, object]:
    """Kind, mode, content, target, owner and attributes of all that is in a folder; which names are one file."""
    found: dict[bytes, object] = {}
    names: dict[int, list[bytes]] = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            seen, content, shown = os.lstat(path), b"", os.path.relpath(path, os.fsencode(root))
            if stat.S_ISREG(seen.st_mode):
                content = Path(os.fsdecode(path)).read_bytes()
                names.setdefault(seen.st_ino, []).append(shown)
            elif stat.S_ISLNK(seen.st_mode):
                content = os.readlink(path)
            xattrs = {
                one: os.getxattr(path, one, follow_symlinks=False) for one in os.listxattr(path, follow_symlinks=False)
            }
            found[os.path.relpath(path, os.fsencode(root))] = (seen.st_mode, content, seen.st_uid, seen.st_gid, xattrs)
    found[b"one file"] = sorted(sorted(same) for same in names.values() if len(same) > 1)
    return found


def written_at(root: Path) -> dict[Path, int]:
    """When each file and symlink was, in ns."""
    paths = (path for path in root.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path: path.lstat().st_mtime_ns for path in paths}


def done_with(bench: Bench) -> None:
    """As after a whole apply: the layer is gone, the journal stays."""
    bench.review.discard(bench.layer)


def fill(bench: Bench, script: str = RICH) -> dict[bytes, object]:
    subprocess.run(["bash", "-c", script], cwd=bench.host, check=True)
    bench.begin()
    return everything(bench.host)


@pytest.mark.parametrize("discarded", [True, False])
def test_all_comes_back_and_goes_again(bench: Bench, discarded: bool) -> None:
    before, times = fill(bench), written_at(bench.host)
    bench.bash(WORK)
    bench.review.seal(bench.layer)  # at its end: what the host had is on record from here
    decided: list[Decision] = []
    seen = bench.changes()
    bench.review.apply(bench.layer, seen, record=decided.append)
    after = everything(bench.host)
    assert after != before
    if discarded:
        done_with(bench)
    undone = bench.review.undo(bench.layer, record=decided.append)
    assert (everything(bench.host), undone.left) == (before, {})
    assert written_at(bench.host) == times
    assert set(undone.paths) == {change.path for change in seen}
    assert bench.review.undo(bench.layer).paths == []
    if discarded:
        assert set(bench.review.redo(bench.layer, record=decided.append).paths) == set(undone.paths)
    else:
        assert bench.changes() == seen
        bench.review.apply(bench.layer, seen, record=decided.append)
    assert everything(bench.host) == after
    assert [one.back for one in decided] == [False, True, False]
    assert bench.review.undo(bench.layer).left == {}
    assert everything(bench.host) == before
    assert [name for name in os.listdir(bench.host) if name.startswith(STAGING)] == []


@pytest.mark.parametrize("how", ["root", "copy"])
@settings(max_examples=scaled(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.lists(OPERATION, max_size=8), operations=st.lists(OPERATION, min_size=1, max_size=12))
def test_whatever_was_done_comes_back(make_bench: MakeBench, how: str, first: list[str], operations: list[str]) -> None:
    bench = make_bench(how)
    script = "\n".join(["echo a > a; mkdir -p d e/f; echo x > d/x; echo z > e/f/z", *first, "true"])
    subprocess.run(["bash", "-c", script], cwd=bench.host, capture_output=True, check=False)
    bench.begin()
    before = everything(bench.host)
    bench.bash("\n".join(operations))
    bench.apply()
    after = everything(bench.host)
    done_with(bench)
    assert bench.review.undo(bench.layer).left == {}
    assert everything(bench.host) == before
    assert bench.review.redo(bench.layer).left == {}
    assert everything(bench.host) == after


@settings(max_examples=scaled(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(OPERATION, max_size=8), st.lists(OPERATION, min_size=1, max_size=12), st.randoms())
def test_some_come_back_and_then_the_rest(
    make_bench: MakeBench, first: list[str], operations: list[str], chance: random.Random
) -> None:
    bench = make_bench("root")
    script = "\n".join(["echo a > a; mkdir -p d e/f; echo x > d/x; echo z > e/f/z", *first, "true"])
    subprocess.run(["bash", "-c", script], cwd=bench.host, capture_output=True, check=False)
    bench.begin()
    before = everything(bench.host)
    bench.bash("\n".join(operations))
    applied = bench.apply()
    after = everything(bench.host)
    done_with(bench)
    some = {path for path in applied if chance.random() < 0.5}
    found = bench.review.undo(bench.layer, some)
    now = everything(bench.host)
    assert some <= {*found.paths, *found.left}
    assert set(found.left.values()) <= {"it is a folder with something in it now", "its folder is gone"}
    kinds = {path: (before.get(os.fsencode(path)), now.get(os.fsencode(path))) for path in found.paths}
    assert all((was is None) == (one is None) for was, one in kinds.values())
    assert bench.review.undo(bench.layer).left == {}
    assert everything(bench.host) == before
    assert bench.review.redo(bench.layer).left == {}
    assert everything(bench.host) == after


def test_one_of_them_comes_back_with_its_other_name_and_its_folder(bench: Bench) -> None:
    fill(bench, "mkdir -p d/e; echo 1 > d/e/one; echo 2 > d/e/two; echo old > old; echo k > kept")
    bench.bash("rm -r d; mv old new; echo 2 > kept; mkdir fresh; echo f > fresh/f")
    bench.apply()
    done_with(bench)
    assert bench.review.undo(bench.layer, {"nothing"}) == Moved()
    assert set(bench.review.undo(bench.layer, {"d/e/one"}).paths) == {"d", "d/e", "d/e/one"}
    assert sorted(str(path.relative_to(bench.host)) for path in bench.host.rglob("*")) == [
        "d", "d/e", "d/e/one", "fresh", "fresh/f", "kept", "new"
    ]  # fmt: skip
    assert set(bench.review.undo(bench.layer, {"new"}).paths) == {"new", "old"}
    assert bench.review.undo(bench.layer, {"fresh"}).left == {"fresh": "it is a folder with something in it now"}
    assert (bench.host / "kept").read_text() == "2\n"
    found = bench.review.undo(bench.layer)
    assert (set(found.paths), found.left) == ({"d/e/two", "kept", "fresh", "fresh/f"}, {})


def test_a_folder_whose_files_go_to_its_group_comes_back_as_one(bench: Bench) -> None:
    fill(bench, "mkdir -p shared/plain; chmod 2775 shared; chmod 00755 shared/plain; echo 1 > shared/f")
    before = {path: path.stat().st_mode for path in (bench.host / "shared", bench.host / "shared/plain")}
    assert before[bench.host / "shared"] & 0o7777 == 0o2775
    bench.bash("rm -r shared; mkdir -p shared2")
    bench.apply()
    assert not (bench.host / "shared").exists()
    assert bench.review.undo(bench.layer).left == {}
    assert {path: path.stat().st_mode for path in before} == before


def test_what_was_edited_since_stays_and_is_named(bench: Bench) -> None:
    fill(bench, "echo 1 > a; echo 1 > b; echo 1 > gone; mkdir d; echo 1 > m")
    bench.bash("echo 2 > a; echo 2 > b; rm gone; echo n > d/n; mkdir new; chmod 755 m")
    bench.apply()
    done_with(bench)
    bench.write("a", "mine")
    bench.write("gone", "mine")
    bench.write("new/mine", "mine")
    (bench.host / "d/n").touch()
    found = bench.review.undo(bench.layer)
    edited = "it was edited since"
    assert found.left == {"a": edited, "gone": edited, "new": "it is a folder with something in it now"}
    assert set(found.paths) == {"b", "d/n", "m"}
    assert (bench.host / "a").read_text() == (bench.host / "gone").read_text() == "mine"
    assert (bench.host / "b").read_text() == "1\n"
    assert bench.review.undo(bench.layer).paths == []
    assert set(bench.review.undo(bench.layer, force=True).paths) == {"a", "gone"}
    assert (bench.host / "a").read_text() == (bench.host / "gone").read_text() == "1\n"
    bench.review.redo(bench.layer)
    assert (bench.host / "a").read_text() == (bench.host / "gone").read_text() == "mine"


def test_an_undo_by_hand_is_no_edit(bench: Bench) -> None:
    fill(bench, "echo 1 > a; echo 1 > b")
    bench.bash("echo 2 > a; echo 2 > b")
    bench.apply()
    done_with(bench)
    bench.write("a", "1\n")
    found = bench.review.undo(bench.layer)
    assert (found.paths, found.left) == (["b"], {})


def test_an_undo_by_hand_can_be_applied_again(bench: Bench) -> None:
    """As long as the layer is there; without it, what the bot wrote was replaced by hand, and that is said."""
    fill(bench, "echo 1 > a; echo 1 > b; echo 1 > c")
    bench.bash("echo 2 > a; echo 2 > b; echo 2 > c")
    bench.apply("a", "b")
    for name in ("a", "b"):
        bench.write(name, "1\n")
    assert bench.review.undo(bench.layer).paths == []
    assert set(bench.kinds()) == {"a", "b", "c"}
    assert bench.review.conflicts(bench.layer, bench.changes()) == {}
    assert bench.apply() == ("a", "b", "c")
    assert (bench.host / "a").read_text() == "2\n"
    done_with(bench)
    bench.write("a", "1\n")
    bench.review.undo(bench.layer)
    found = bench.review.redo(bench.layer)
    assert found.paths == ["b", "c"]
    assert found.left == {"a": "what was kept of it was written to since, or is gone"}


def test_what_would_be_applied_again_is_shown(bench: Bench) -> None:
    """Also without the layer; as a patch that git takes."""
    fill(bench, "seq 3 > a; echo x > gone; echo m > mode; ln -s a link; mkdir -p d; echo in > d/in; cp a ' odd'")
    work = "seq 4 > a; rm gone; chmod 755 mode; ln -sfn gone link; rm -r d; echo file > d; rm ' odd'"
    bench.bash(f"{work}; echo n > new; printf '\\0' > bin")
    wanted, patch = bench.changes(), bench.diff()
    bench.apply()
    done_with(bench)
    bench.review.undo(bench.layer)
    again = TakenBack()
    assert {one.path: (one.kind, one.entry, one.mode, one.added_lines, one.removed_lines, one.binary, one.target)
            for one in again.changes(bench.layer)} == {
        one.path: (one.kind, one.entry, one.mode, one.added_lines, one.removed_lines, one.binary, one.target)
        for one in wanted
    }  # fmt: skip
    assert "".join(again.unified_diff(bench.layer, one) for one in again.changes(bench.layer)) == patch
    bench.review.redo(bench.layer)
    assert TakenBack().changes(bench.layer) == ()


@pytest.mark.parametrize("step", ["decided", "done", "cleaned"])
def test_what_was_applied_is_the_base_also_after_a_kill(bench: Bench, step: str) -> None:
    """The user goes on from there, and the bot's side of it is no change of theirs."""
    fill(bench, "echo 1 > a; echo 1 > b")
    bench.bash("echo 2 > a; echo 2 > b")
    cut_off_at(step, lambda: bench.apply("a"))
    bench.review.recover(bench.layer)
    bench.write("a", "2\nmine\n")
    assert set(bench.kinds()) == {"b"}
    assert bench.apply() == ("b",)
    assert (bench.host / "a").read_text() == "2\nmine\n"
    assert bench.changes() == ()
    bench.write("b", "mine\n")
    assert bench.changes() == ()


def test_a_new_layer_begins_with_what_is_there(bench: Bench) -> None:
    """Not with what was applied from the one before it, in whose place it is."""
    fill(bench, "echo 1 > a")
    bench.bash("echo 2 > a")
    bench.apply()
    place = bench.layer.layer
    done_with(bench)
    bench.write("a", "mine\n")
    assert bench.begin().layer == place
    bench.bash("echo 3 >> a")
    assert bench.review.conflicts(bench.layer, bench.changes()) == {}
    assert bench.apply() == ("a",)
    assert (bench.host / "a").read_text() == "mine\n3\n"


@pytest.mark.parametrize("how", ["root", "copy"])
def test_a_file_with_other_names_is_one_with_them_again(make_bench: MakeBench, how: str) -> None:
    """Unless they were written to: then what it was is what counts."""
    bench = make_bench(how)
    before = fill(bench, "echo 1 > a; ln a b; echo 1 > c; ln c e; echo 1 > m; ln m n")
    bench.bash("rm a; echo 2 > a; rm c; echo 2 > c; chmod 700 m")
    bench.apply("a", "c", "m")
    done_with(bench)
    (bench.host / "e").write_text("in place\n")
    bench.review.undo(bench.layer)
    assert (bench.host / "c").read_text() == "1\n"
    assert (bench.host / "e").read_text() == "in place\n"
    (bench.host / "e").unlink()
    os.link(bench.host / "c", bench.host / "e")
    assert everything(bench.host) == before


def test_what_is_kept_and_was_written_to_is_not_passed_off(make_bench: MakeBench) -> None:
    """A program that has the old file open goes on writing to what is kept of it."""
    bench = make_bench("copy")
    fill(bench, "echo 1 > a")
    bench.bash("echo 2 > a")
    with (bench.host / "a").open("a") as opened:
        bench.apply()
        opened.write("more\n")
    found = bench.review.undo(bench.layer)
    assert found.left == {"a": "what was kept of it was written to since, or is gone"}
    assert (bench.host / "a").read_text() == "2\n"


def test_a_part_at_a_time_and_all_of_it_back(bench: Bench) -> None:
    before = fill(bench, "echo 1 > a; echo 1 > b")
    bench.bash("echo 2 > a; echo 2 > b; mkdir -p x/y; echo z > x/y/z")
    bench.apply("a", "x/y/z")
    bench.apply()
    assert len(all_journals(journals_of(bench.layer))) == 2
    assert set(bench.review.undo(bench.layer).paths) == {"a", "b", "x", "x/y", "x/y/z"}
    assert everything(bench.host) == before
    assert all_journals(journals_of(bench.layer)) == []
    assert set(bench.kinds()) == {"a", "b", "x", "x/y", "x/y/z"}


@dataclass
class Runs:
    """Two runs of one folder, one after the other."""

    first: Bench
    second: Bench
    shown: list[str] = field(default_factory=list)

    def text(self) -> str:
        return (self.first.host / "a").read_text()


@pytest.fixture
def runs(bench: Bench) -> Runs:
    bench.write("a", "0\n")
    bench.begin()
    bench.bash("echo 1 > a; echo own > b")
    bench.apply()
    done_with(bench)
    other = Bench(bench.top, bench.how)
    layers, second = bench.top / "layers", bench.top / "second"
    layers.rename(bench.top / "first")
    layers.mkdir()
    other.begin()
    other.bash("echo 2 > a")
    other.apply()
    layers.rename(second)
    (bench.top / "first").rename(layers)
    other.begun = replace(other.layer, layer=str(second / "0"))
    return Runs(bench, other)


def test_several_runs_are_undone_newest_first(runs: Runs) -> None:
    runs.second.review.undo(runs.second.layer)
    assert runs.text() == "1\n"
    assert runs.first.review.undo(runs.first.layer).left == {}
    assert runs.text() == "0\n"


def test_an_older_run_names_the_newer_one(runs: Runs) -> None:
    found = runs.first.review.undo(runs.first.layer)
    assert found.left == {"a": "run second was applied over it: undo that one first"}
    assert (found.paths, runs.text()) == (["b"], "2\n")
    runs.second.review.undo(runs.second.layer)
    assert runs.first.review.undo(runs.first.layer).paths == ["a"]
    assert runs.text() == "0\n"


@pytest.mark.parametrize("what", ["undo", "redo"])
def test_cut_off_anywhere_and_completed_by_a_new_run(make_bench: MakeBench, what: str) -> None:
    """Of undo and of apply after it; whoever comes next to the folder knows nothing of the run."""
    steps, died, trees = 0, True, []
    while died:
        bench = make_bench("root")
        before = fill(bench)
        bench.bash(WORK)
        bench.apply()
        after = everything(bench.host)
        done_with(bench)
        act = partial(bench.review.undo, bench.layer)
        if what == "redo":
            act()
            act = partial(bench.review.redo, bench.layer)
        died = cut_off_after(steps, act)
        recover_folder(bench.host, bench.top)
        trees.append(everything(bench.host))
        assert trees[-1] in (before, after)
        act()
        assert everything(bench.host) == (before if what == "undo" else after)
        assert [name for name in os.listdir(bench.host) if name.startswith(STAGING)] == []
        shutil.rmtree(bench.top)
        bench.top.mkdir()
        steps += 3
    assert len({str(tree) for tree in trees}) == 2


def test_a_failure_in_the_middle_leaves_the_folder_as_it_was(make_bench: MakeBench) -> None:
    bench = make_bench("copy")
    before = fill(bench)
    bench.bash(WORK)
    decided: list[Decision] = []
    subprocess.run(["chattr", "+i", bench.host / "mode"], check=True)
    try:
        with pytest.raises(UsageError, match="Operation not permitted"):
            bench.review.apply(bench.layer, bench.changes(), record=decided.append)
    finally:
        subprocess.run(["chattr", "-i", bench.host / "mode"], check=True)
    assert everything(bench.host) == before
    assert [one.back for one in decided] == [False, True]
    assert bench.review.undo(bench.layer).paths == []
    bench.apply()
    bench.review.undo(bench.layer)
    assert everything(bench.host) == before


def test_what_was_taken_back_is_no_conflict_of_the_next_apply(make_bench: MakeBench) -> None:
    """In an overlay whose base nobody had noted before; but for the file that was changed on the host since."""
    bench = make_bench("root")
    fill(bench)
    bench.bash(WORK)
    subprocess.run(["chattr", "+i", bench.host / "mode"], check=True)
    try:
        with pytest.raises(UsageError, match="Operation not permitted"):
            bench.apply(force=True)
    finally:
        subprocess.run(["chattr", "-i", bench.host / "mode"], check=True)
    assert list(bench.review.conflicts(bench.layer, bench.changes())) == ["mode"]


def test_what_cannot_be_recorded_is_not_done(make_bench: MakeBench) -> None:
    bench = make_bench("copy")
    before = fill(bench)
    bench.bash(WORK)

    def refuse(_: Decision) -> None:
        raise UsageError("somebody else drives this run")

    with pytest.raises(UsageError, match="somebody else"):
        bench.review.apply(bench.layer, bench.changes(), record=refuse)
    assert everything(bench.host) == before
    bench.apply()
    assert everything(bench.host) != before


def test_an_ordinary_user_takes_back_what_is_in_closed_folders(make_bench: MakeBench) -> None:
    bench = make_bench("user")
    bench.write("locked/f", "1")
    bench.begin()
    (bench.host / "locked").chmod(0o555)
    bench.host.chmod(0o555)
    before = bench.shown()
    bench.bash("chmod 755 locked; echo 2 > locked/f; rm -f x; chmod 555 locked; mkdir d; echo x > d/f; chmod 000 d")
    for path in (bench.place.parent, bench.top):
        path.chmod(0o777)
    os.chown(bench.place / "layer.json", ORDINARY, ORDINARY)
    in_child(bench.apply, lambda: become(ORDINARY))
    assert bench.shown() != before
    assert "Moved(paths=['d', 'd/f', 'locked/f'], left={})" in in_child(
        lambda: bench.review.undo(bench.layer), lambda: become(ORDINARY)
    )
    assert bench.shown() == before
    assert bench.host.stat().st_mode & 0o777 == 0o555
    bench.host.chmod(0o755)


def test_across_file_systems_it_is_copied(make_bench: MakeBench) -> None:
    """The state on another file system than the folder: nothing can be linked."""
    bench = make_bench("copy")
    shutil.rmtree(bench.host)
    shm = Path("/dev/shm") / f"stockade-{os.getpid()}"
    shm.mkdir()
    try:
        bench.host.symlink_to(shm)
        before, times = fill(bench), written_at(shm)
        assert os.stat(shm).st_dev != os.stat(bench.top).st_dev
        bench.bash(WORK)
        bench.apply()
        done_with(bench)
        assert bench.review.undo(bench.layer).left == {}
        same = {**before, b"one file": everything(shm)[b"one file"]}
        assert everything(shm) == same
        assert written_at(shm) == times
    finally:
        shutil.rmtree(shm)
