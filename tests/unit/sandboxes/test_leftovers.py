"""What killed processes left is found and removed; what somebody may still want is not."""

import os
import time
from functools import partial
from pathlib import Path

import pytest

from stockade_sandbox.leftovers import DAY_S, clean, remove_stale
from stockade_sandbox.overlay import prepare_layer
from stockade_sandbox.policy import FolderRule
from stockade_sandbox.processes import COPIES, private_folder


def age(path: Path) -> None:
    old = time.time() - 2 * DAY_S
    os.utime(path, (old, old))


def test_only_what_the_dead_made_is_removed(tmp_path: Path) -> None:
    ours = private_folder(COPIES, tmp_path)
    for name in ("copies-999999-5-abc", "trial-999999-5-abc", "copies-of-mine", "other"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep").chmod(0)
    (tmp_path / "copies-999999-5-link").symlink_to(tmp_path / "other")
    removed = remove_stale(tmp_path)
    assert sorted(path.name for path in removed) == ["copies-999999-5-abc", "trial-999999-5-abc"]
    assert ours.is_dir()
    assert (tmp_path / "copies-of-mine").is_dir()
    assert (tmp_path / "copies-999999-5-link").is_symlink()
    assert remove_stale(tmp_path / "none") == []


def test_runs_that_never_began_go_and_work_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    runs = tmp_path / "runs"
    for name in ("recorded", "young", "alive", "empty", "work", "copy"):
        (runs / name / "0" / "upper").mkdir(parents=True)
    (runs / "work/0/upper/file").touch()
    (runs / "copy/0/upper").rmdir()
    (runs / "recorded/0/upper/file").touch()
    (runs / "recorded/copies-999999-5-abc").mkdir()
    for name in ("recorded", "alive", "empty", "work", "copy"):
        age(runs / name)
    lines = clean(runs, {"recorded"}, lambda run: run == "alive")
    assert sorted(path.name for path in runs.iterdir()) == ["alive", "copy", "recorded", "work", "young"]
    assert not (runs / "recorded/copies-999999-5-abc").exists()
    assert sum("holds changes" in line for line in lines) == 2
    assert sum("nothing was written" in line for line in lines) == 1
    assert clean(tmp_path / "none", (), lambda run: False) == []


@pytest.mark.parametrize("state", ["whole", "half", "written"])
def test_a_copy_that_no_bot_has_touched_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """Of a run that was killed before it was on record."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    runs, host = tmp_path / "runs", tmp_path / "host"
    (host / "deep").mkdir(parents=True)
    (host / "deep" / "file").write_text("of the host\n")
    copies = partial(prepare_layer, FolderRule(host=str(host)), runs / "r", can_overlay=lambda _: "asked to copy")
    place = Path(str(copies(sandbox_uid=None).layer))
    if state == "written":
        (place / "copy/deep/file").write_text("of the bot\n")
    elif state == "half":
        for name in ("layer.json", "manifest"):
            (place / name).unlink()
    age(runs / "r")
    lines = clean(runs, (), lambda run: False)
    assert (runs / "r").exists() is (state == "written")
    assert [("holds changes" in line) for line in lines] == [state == "written"]
