import os
import subprocess
from pathlib import Path

import pytest

from stockade.core.errors import UsageError
from stockade.sandboxes.folders.discard import remove_entry, remove_tree
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
    with pytest.raises(UsageError, match="discarded"):
        bench.changes()
    with pytest.raises(UsageError, match="discarded"):
        bench.review.discard(bench.layer)


def test_a_layer_of_another_folder_is_not_removed(bench: Bench) -> None:
    bench.bash("touch a")
    other = bench.layer.model_copy(update={"host": "/somewhere/else"})
    with pytest.raises(UsageError, match="not a layer of /somewhere/else"):
        bench.review.discard(other)
    with pytest.raises(UsageError, match="is gone"):
        bench.review.discard(bench.layer.model_copy(update={"layer": str(bench.host)}))
    assert bench.place.exists()


def test_a_cut_off_discard_goes_on(bench: Bench) -> None:
    bench.bash("touch a; mkdir d")
    written = bench.place / ("copy" if bench.how == "copy" else "upper")
    remove_tree(written)
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
