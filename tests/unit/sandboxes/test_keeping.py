"""Snapshots of all layers of a run, and waiting for a sandbox that is not gone yet."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from stockade_sandbox.overlay import prepare_layer
from stockade_sandbox.overlay.restore import HOLDER, await_gone, note_holder
from stockade_sandbox.overlay.snapshots import LayerSnapshots
from stockade_sandbox.policy import FolderRule
from stockade_sandbox.processes import start_time


@pytest.mark.anyio
async def test_only_layers_of_their_own_are_kept_and_only_when_they_change(tmp_path: Path) -> None:
    layers = []
    for name, mode in (("one", "overlay"), ("two", "rw"), ("three", "overlay")):
        (tmp_path / name).mkdir()
        rule = FolderRule(host=str(tmp_path / name), mode="rw" if mode == "rw" else "overlay", inside=f"/{name}")
        layers.append(prepare_layer(rule, tmp_path / "run", sandbox_uid=0, can_overlay=lambda _: None))
    snapshots = LayerSnapshots(layers)
    assert await snapshots.keep() == (None, None, None)
    upper = Path(str(layers[2].layer)) / "upper"
    (upper / "file").write_text("1")
    first = await snapshots.keep()
    assert first[:2] == (None, None)
    assert first[2] is not None
    assert await snapshots.keep() == first
    again = LayerSnapshots(layers, first)
    assert await again.keep() == first
    (upper / "file").write_text("2")
    assert (await again.keep())[2] != first[2]


def test_a_sandbox_that_lives_on_is_ended_first(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "300"]) as lingering:
        note_holder(tmp_path, lingering.pid)
        await_gone(tmp_path)
        assert lingering.wait() == -9
    assert not (tmp_path / HOLDER).exists()


def test_another_process_of_that_number_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "300"]) as other:
        start = start_time(other.pid)
        assert start is not None
        (tmp_path / HOLDER).write_text(json.dumps({"pid": other.pid, "start": start - 1}))
        await_gone(tmp_path)
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("noted", ["", "{}", "[]", '{"pid": "x", "start": 1}', '{"pid": 4194304999, "start": 1}'])
def test_a_note_that_says_nothing_is_passed_over(tmp_path: Path, noted: str) -> None:
    (tmp_path / HOLDER).write_text(noted)
    await_gone(tmp_path)
    assert os.getpid()
