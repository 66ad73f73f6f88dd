"""Some of what a bot did is thrown away: it is no change any more, and not there once the layer is brought back."""

from dataclasses import replace

import pytest

from stockade.changes import Pending, thrown_away
from stockade.core.errors import UsageError
from stockade_sandbox.overlay.restore import restore
from stockade_sandbox.overlay.safe_fs import decode_path
from stockade_sandbox.overlay.snapshots import Snapshots
from tests.unit.sandboxes.test_folders.helpers import Bench

DOES = """
echo 1 > new; mkdir -p made/deep; echo 2 > made/deep/one; echo 3 > made/deep/two
echo more >> edited; mv old.txt renamed.txt; rm -r gone; chmod 700 dir; echo 4 > dir/in
rm file; mkdir file; echo 5 > file/a; echo 6 > file/b; rm -r turned; echo 7 > turned
"""
WORDS = "The same words of a file that is long enough to be known again under another name, line by line.\n" * 5


@pytest.mark.parametrize(
    ("ways", "thrown"),
    [
        ("new", "new"),
        ("made/deep/one", "made/deep/one"),
        ("made", "made made/deep made/deep/one made/deep/two"),
        ("made/deep/one made/deep/two", "made made/deep made/deep/one made/deep/two"),
        ("edited renamed.txt", "edited old.txt renamed.txt"),
        ("gone/sub/y", "gone gone/sub gone/sub/y"),
        ("dir", "dir dir/in"),
        ("dir/in gone", "dir/in gone gone/sub gone/sub/y gone/x"),
        ("file/a", "file/a"),
        ("file", "file file/a file/b"),
        ("turned/t", "turned turned/t"),
        (".", ""),
    ],
)
def test_the_rest_is_left(bench: Bench, ways: str, thrown: str) -> None:
    for path in ("gone/x", "gone/sub/y", "dir/had", "file", "turned/t", "turned/u"):
        bench.write(path, path)
    bench.write("edited", "edited\n")
    bench.write("old.txt", WORDS)
    bench.begin()
    bench.bash(DOES)
    name = Snapshots(bench.layer).take()
    every = bench.by_path()
    paths = thrown_away(bench.review, [Pending(bench.layer, tuple(every.values()))], ways.split())
    assert sorted(paths) == (thrown.split() or sorted(every))
    left = {path: change for path, change in every.items() if path not in paths}
    assert {one.path: one for one in bench.review.changes(replace(bench.layer, without=paths))} == left
    for _ in range(2):
        restore(bench.layer, name, without=[decode_path(path) for path in paths])
        assert bench.by_path() == left
    bench.apply()
    assert bench.changes() == ()
    with pytest.raises(UsageError, match="nothing was changed at other"):
        thrown_away(bench.review, [Pending(bench.layer, tuple(every.values()))], ["other", ways.split()[0]])
