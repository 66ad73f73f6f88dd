"""The files as the bot sees them: what the listing says is what is seen from inside."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from stockade.changes import Pending, thrown_away
from stockade_sandbox.overlay.discard import discard_layer
from stockade_sandbox.overlay.listing import list_folder, read_file
from stockade_sandbox.overlay.safe_fs import decode_path, join
from stockade_sandbox.results import FolderLayer
from tests.unit.sandboxes.test_folders.helpers import Bench
from tests.unit.sandboxes.test_folders.pictures import Picture

LIMIT = 1 << 20
BYTES = os.fsdecode(b"odd\xff\xfename")
DOES = """
echo 1 > new; mkdir -p made/deep; echo 2 > made/deep/one; ln -s /etc/passwd link; ln -s made way
echo more >> edited; rm -r gone; chmod 700 dir; echo 4 > dir/in; rm dir/had
rm file; mkdir file; echo 5 > file/a; rm -r turned; echo 7 > turned
rm -r again; mkdir again; echo 8 > again/new; mkfifo pipe; mkdir empty; rm -r left/sub; mv moved/a moved/b
printf x > $'odd\\xfd'; rm -r twice; mkdir -p twice/in; echo 9 > twice/in/it
"""


def seen(layer: FolderLayer, folder: str = "") -> Picture:
    """As pictures.picture draws it, without modes."""
    found = list_folder(layer, folder)
    assert found is not None, folder
    out: Picture = {}
    for entry in found:
        path = join(folder, decode_path(entry.name))
        if entry.kind == "directory":
            out |= seen(layer, path)
        data = read_file(layer, path, LIMIT) if entry.kind == "file" else None
        assert data is None or len(data) == entry.size
        target = decode_path(entry.target) if entry.target is not None else ""
        out[path] = [entry.kind, target if data is None else hashlib.sha256(data).hexdigest()]
    return out


def drawn(picture: Picture) -> Picture:
    return {path: [kind, "" if kind == "special" else content] for path, (kind, _, content) in picture.items()}


def fill(bench: Bench) -> None:
    names = ("gone/x", "gone/sub/y", "dir/had", "dir/more", "file", "turned/t", "again/old", "left/sub/z", "left/b")
    for path in (*names, "moved/a", BYTES, "twice/in/was", "twice/other"):
        bench.write(path, path.encode(errors="surrogateescape"))
    bench.write("edited", "edited\n")


def test_the_listing_is_what_is_seen_from_inside(bench: Bench) -> None:
    fill(bench)
    bench.begin()
    for script in ("true", DOES):
        inside = drawn(bench.bash(script))
        assert seen(bench.layer) == inside


def test_what_was_thrown_away_is_the_folders_again(bench: Bench) -> None:
    fill(bench)
    bench.begin()
    bench.bash(DOES)
    work = [Pending(bench.layer, bench.changes())]
    for ways in (["again", "gone", "file", "turned", "dir/in"], ["."]):
        thrown = thrown_away(bench.review, work, ways)
        layer = replace(bench.layer, without=thrown or tuple(bench.by_path()))
        found = seen(layer)
        assert ("gone/sub/y" in found, "again/old" in found, "again/new" in found) == (True, True, False)
        assert found["file"][0] == "file"
        assert found["turned"][0] == "directory"
        assert ("new" in found) == (ways != ["."])


def test_what_is_gone_is_shown_as_the_host_has_it(bench: Bench) -> None:
    fill(bench)
    bench.begin()
    bench.bash(DOES)
    discard_layer(bench.layer)
    assert seen(bench.layer) == drawn(bench.shown())


@pytest.mark.parametrize(
    "path", ["link", "way/deep/one", "made", "pipe", "none", "new/below", "gone/x", "big", "file/a/b"]
)
def test_only_files_are_read(bench: Bench, path: str) -> None:
    fill(bench)
    bench.begin()
    bench.bash(f"{DOES}\nhead -c {LIMIT + 1} /dev/zero > big")
    assert read_file(bench.layer, path, LIMIT) is None
    assert read_file(bench.layer, "made/deep/one", LIMIT) == b"2\n"


@pytest.mark.parametrize("folder", ["link", "way", "new", "none", "gone", "turned", "pipe", "edited/x"])
def test_what_is_no_folder(bench: Bench, folder: str) -> None:
    fill(bench)
    bench.begin()
    bench.bash(DOES)
    assert list_folder(bench.layer, folder) is None


def test_a_folder_of_the_host_itself(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").write_text("text")
    direct = FolderLayer(host=str(tmp_path), inside="/data", mode="rw", strategy="direct")
    assert [(one.name, one.kind, one.size) for one in list_folder(direct) or ()] == [
        ("b", "directory", 0),
        ("a", "file", 4),
    ]
    assert read_file(direct, "a", 4) == b"text"
