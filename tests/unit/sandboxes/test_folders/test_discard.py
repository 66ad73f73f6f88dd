import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stockade.core.errors import LayerLost, UsageError
from stockade_sandbox.overlay.discard import in_runs, remove_entry, remove_tree, sweep_tombstones
from tests.unit.sandboxes.test_folders.children import cut_off_after
from tests.unit.sandboxes.test_folders.helpers import Bench, times


def test_a_layer_goes_and_the_host_stays(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    bench.write("a", "1")
    bench.begin()
    when = times(bench.host)
    bench.bash(
        f"rm a; ln -s {tmp_path} out; mkdir -p x/y; echo z > x/y/z; chmod 000 x/y; chmod 000 x; mkfifo p; "
        "mkdir .discarded-0"
    )
    bench.review.discard(bench.layer)
    assert not bench.place.exists()
    assert times(bench.host) == when
    assert (tmp_path / "precious").exists()
    with pytest.raises(UsageError, match="is gone"):
        bench.changes()
    with pytest.raises(UsageError, match="is gone"):
        bench.review.discard(bench.layer)


def test_a_layer_of_another_folder_is_not_removed(bench: Bench) -> None:
    bench.bash("touch a")
    other = replace(bench.layer, host="/somewhere/else")
    with pytest.raises(UsageError, match="not a layer of /somewhere/else"):
        bench.review.discard(other)
    with pytest.raises(UsageError, match="is gone"):
        bench.review.discard(replace(bench.layer, layer=str(bench.host)))
    assert bench.place.exists()


def test_a_cut_off_discard_goes_on(bench: Bench) -> None:
    """The layer is there whole or not at all; what is left of its tombstone goes with the next sweep."""
    steps, died = 0, True
    while died:
        bench.begun = None
        bench.bash("touch a; mkdir -p d/e; touch d/e/f")
        died = cut_off_after(steps, lambda: bench.review.discard(bench.layer))
        if not bench.place.exists():
            with pytest.raises(LayerLost, match="is gone"):
                bench.changes()
            sweep_tombstones(bench.place.parent)
            assert list(bench.place.parent.iterdir()) == []
        else:
            assert "a" in bench.kinds()
            bench.review.discard(bench.layer)
        steps += 1
    assert steps > 5


@pytest.mark.parametrize("what", ["upper/a", "upper", "layer.json", "."])
def test_a_layer_that_is_not_whole_is_never_taken_for_changes(bench: Bench, what: str) -> None:
    """On 90cacfa what is missing in a copy is a deletion, and a missing upper layer an OSError of another command."""
    for name in ("a", "b"):
        bench.write(name, "1")
    bench.bash("echo 2 > a; echo 3 > n; ln -s a l")
    seen = bench.changes()
    bench.begun = replace(bench.layer, seal=bench.review.seal(bench.layer))
    assert bench.changes() == seen
    written = bench.layer.written
    assert written is not None
    gone = bench.place / what.replace("upper", written.name)
    remove_tree(gone) if gone.is_dir() else gone.unlink()
    before = bench.shown()
    with pytest.raises(LayerLost, match="is gone" if what in ("layer.json", ".") else "is not whole"):
        bench.changes()
    with pytest.raises(LayerLost):
        bench.review.apply(bench.layer, seen, force=True)
    assert bench.shown() == before
    if what == "upper/a":
        bench.review.discard(bench.layer)
        assert not bench.place.exists()


def test_immutable_entries_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "layer"
    (folder / "d").mkdir(parents=True)
    (folder / "d/f").touch()
    subprocess.run(["chattr", "+i", folder / "d/f", folder / "d"], check=True)
    remove_tree(folder)
    assert not folder.exists()


def test_removing_an_entry_follows_nothing(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target/f").touch()
    (tmp_path / "link").symlink_to("target")
    at = os.open(tmp_path, os.O_RDONLY)
    try:
        remove_entry(at, "link")
        remove_entry(at, "nothing")
    finally:
        os.close(at)
    assert (tmp_path / "target/f").exists()
    assert not (tmp_path / "link").is_symlink()


def test_runs_that_go_while_they_are_looked_at_stop_nobody(tmp_path: Path) -> None:
    for name in ("a", "b", ".removed-c"):
        (tmp_path / name / ".removed-0").mkdir(parents=True)
    doomed, removed = tmp_path / "a", list[Path]()

    def removing(event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.scandir" and not removed and Path(str(arguments[0])) == doomed:
            removed.append(doomed)
            shutil.rmtree(doomed)

    sys.addaudithook(removing)
    assert in_runs(tmp_path, ".removed-*") == [tmp_path / "b" / ".removed-0"]
    assert removed == [doomed]
    assert in_runs(tmp_path / "nowhere", "*") == []
