import os
from pathlib import Path

import pytest

from stockade_sandbox.overlay import Review
from stockade_sandbox.overlay.safe_fs import DirTree, decode_path, encode_path
from stockade_sandbox.results import Change, FolderLayer
from tests.unit.sandboxes.test_folders.helpers import Bench, times

OPERATIONS = {
    "nothing": ":",
    "add": "echo new > new.txt",
    "add in a folder": "echo new > sub/new.txt; mkdir -p x/y/z; echo z > x/y/z/f",
    "empty folder": "mkdir empty",
    "modify": "echo more >> a.txt",
    "replace with the same": "cat a.txt > t; mv t a.txt; touch b.txt",
    "same size": "printf ALPHA > a.txt",
    "truncate": "truncate -s 2 a.txt; : > b.txt",
    "delete": "rm a.txt",
    "delete a folder": "rm -r sub",
    "replace a folder": "rm -r sub && mkdir sub && echo fresh > sub/other",
    "replace a deep folder": "rm -r sub && mkdir -p sub/deep && echo fresh > sub/deep/g",
    "move a file": "mv a.txt moved.txt",
    "move a folder": "cp -a sub sub2; rm -r sub; mv sub2 other",
    "mode": "chmod 755 a.txt; chmod 700 sub",
    "mode and content": "echo x >> a.txt; chmod 600 a.txt",
    "file to folder": "rm a.txt && mkdir a.txt && echo in > a.txt/in",
    "folder to file": "rm -r sub && echo file > sub",
    "folder to symlink": "rm -r sub && ln -s b.txt sub",
    "symlink": "ln -s a.txt l; ln -s ../b.txt sub/up; ln -s nowhere dangling",
    "retarget": "ln -sfn b.txt link",
    "symlink to file": "rm link; echo now a file > link",
    "file to symlink": "rm a.txt; ln -s b.txt a.txt",
    "hard link": "ln a.txt hard; echo x >> hard",
    "no access": "mkdir d; echo x > d/f; chmod 000 d/f; chmod 000 d",
    "odd names": "touch $'new\\nline' $'esc\\e[31m' ' lead' 'tail ' '-rf' '..x' $'tab\\t' '\"q\"' 'a\\b'",
    "not UTF-8": "touch $'bad\\xff\\xfe'; mkdir $'\\x80d'; touch $'\\x80d/\\xc3'",
    "many": "mkdir many; for i in $(seq 300); do echo $i > many/$i; done; rm -r sub",
    "there and back": "mv sub away 2>/dev/null; mv away sub 2>/dev/null; rm a.txt; printf alpha > a.txt",
}


def _fill(bench: Bench) -> None:
    bench.write("a.txt", "alpha")
    bench.write("b.txt", "beta\n")
    bench.write("sub/c.txt", "gamma\n")
    bench.write("sub/deep/d.txt", "delta\n")
    bench.write("sub/deep/e.sh", "#!/bin/sh\n", 0o755)
    (bench.host / "link").symlink_to("a.txt")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_applying_makes_the_host_what_the_bot_saw(bench: Bench, operation: str) -> None:
    _fill(bench)
    bench.begin()
    before, when = bench.shown(), times(bench.host)
    merged = bench.bash(OPERATIONS[operation])
    changes = bench.changes()
    assert (bench.shown(), times(bench.host)) == (before, when)
    assert bool(changes) == (merged != before)
    assert list(bench.apply()) == [change.path for change in changes]
    assert bench.shown() == merged
    assert bench.changes() == ()
    assert not [name for name in os.listdir(bench.host) if name.startswith(".stockade")]


def test_each_kind_is_named(bench: Bench) -> None:
    _fill(bench)
    bench.bash(
        "echo two >> a.txt; rm b.txt; mkdir empty; chmod 755 sub/c.txt; rm -r sub/deep; echo f > sub/deep; "
        "ln -sfn b.txt link; printf 'x\\0y' > bin"
    )
    found = bench.by_path()
    assert {path: change.kind for path, change in found.items()} == {
        "a.txt": "modified",
        "b.txt": "deleted",
        "bin": "added",
        "empty": "added",
        "link": "modified",
        "sub/c.txt": "mode",
        "sub/deep": "type",
        "sub/deep/d.txt": "deleted",
        "sub/deep/e.sh": "deleted",
    }
    assert found["bin"].binary
    assert found["empty"].entry == "directory"
    assert found["link"].target == "b.txt"
    assert (found["a.txt"].added_lines, found["a.txt"].removed_lines, found["a.txt"].size) == (1, 1, 9)
    assert (found["b.txt"].added_lines, found["b.txt"].removed_lines) == (0, 1)
    assert found["sub/c.txt"].mode == 0o755


def test_direct_folders_have_no_changes(tmp_path: Path) -> None:
    layer = FolderLayer(host=str(tmp_path), inside="/workspace", mode="rw", strategy="direct")
    review = Review()
    assert review.changes(layer) == ()
    assert review.apply(layer, [Change(path="a", kind="added")]) == ()
    assert review.unified_diff(layer, Change(path="a", kind="added")) == ""
    review.discard(layer)
    assert tmp_path.exists()


def test_marks_a_bot_sets_itself_mean_nothing(upper_bench: Bench) -> None:
    _fill(upper_bench)
    script = (
        "import os; os.setxattr('sub','user.overlay.opaque',b'y'); os.setxattr('sub/c.txt','user.overlay.metacopy',b'')"
    )
    merged = upper_bench.bash(f'/usr/bin/python3 -c "{script}"; : > sub/c.txt')
    assert upper_bench.kinds() == {"sub/c.txt": "modified"}
    upper_bench.apply()
    assert upper_bench.shown() == merged


def test_content_kept_elsewhere_is_refused(upper_bench: Bench) -> None:
    _fill(upper_bench)
    upper_bench.bash("chmod 600 a.txt; mkdir d")
    os.setxattr(upper_bench.place / "upper/a.txt", "trusted.overlay.metacopy", b"")
    os.setxattr(upper_bench.place / "upper/d", "trusted.overlay.redirect", b"sub")
    found = upper_bench.by_path()
    assert "metacopy" in (found["a.txt"].refused or "")
    assert "redirect" in (found["d"].refused or "")


def test_marks_that_are_files(upper_bench: Bench) -> None:
    _fill(upper_bench)
    upper_bench.bash(":")
    whiteout = upper_bench.place / "upper/a.txt"
    whiteout.touch()
    os.setxattr(whiteout, "trusted.overlay.whiteout", b"")
    assert upper_bench.kinds() == {"a.txt": "deleted"}


def test_ten_thousand_files(upper_bench: Bench) -> None:
    merged = upper_bench.bash("for d in $(seq 100); do mkdir $d; (cd $d; touch $(seq 100)); done")
    assert len(upper_bench.changes()) == 10_100
    upper_bench.apply()
    assert upper_bench.shown() == merged


def test_deep_folders_are_refused_and_discarded(bench: Bench) -> None:
    _fill(bench)
    deep = "/".join(["d"] * 900)
    bench.bash(f"mkdir -p {deep}; cd {deep}; mkdir -p {deep}; echo x > f", look=False)
    refused = [change for change in bench.changes() if change.refused]
    assert ["folders deep" in (change.refused or "") for change in refused] == [True]
    bench.review.discard(bench.layer)
    assert not bench.place.exists()


def test_a_sparse_giant_is_not_read(bench: Bench) -> None:
    _fill(bench)
    bench.bash("truncate -s 10G giant; echo x >> giant")
    change = bench.by_path()["giant"]
    assert (change.size, change.added_lines) == ((10 << 30) + 2, 0)
    assert "giant" in bench.diff()
    bench.apply()
    assert (bench.host / "giant").stat().st_blocks < 1000
    assert bench.changes() == ()


@pytest.mark.parametrize("path", ["plain", "a/b", "\udcff", "\uf7ff", "\uf780x\udc80", "é\n\x1b"])
def test_spelling_is_reversible(path: str) -> None:
    encode_path(path).encode()
    assert decode_path(encode_path(path)) == path


def test_spellings_differ() -> None:
    assert len({encode_path("\udcff"), encode_path("\uf7ff"), encode_path("ÿ")}) == 3


def test_a_tree_does_not_follow_symlinks(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/f").write_text("x")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").symlink_to("real/f")
    os.mkfifo(tmp_path / "pipe")
    with DirTree(tmp_path) as tree:
        assert tree.node("link/f") is None
        assert tree.read("real/f", 10) == b"x"
        with pytest.raises(OSError, match="not a regular"):
            tree.read("file", 10)
        with pytest.raises(OSError, match="not a regular"):
            tree.read("pipe", 10)
        with pytest.raises(OSError, match="link"):
            tree.names("link")
