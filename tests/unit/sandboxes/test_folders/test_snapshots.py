"""Snapshots of what a bot wrote, and layers brought back to them: real overlays by root and user, and copies."""

import os
import random
from pathlib import Path

import pytest

from stockade.core.errors import SandboxFailed, UsageError
from stockade_sandbox.overlay.prepare import prepare_layer
from stockade_sandbox.overlay.restore import restore
from stockade_sandbox.overlay.snapshots import Snapshots
from stockade_sandbox.overlay.store import KEPT
from stockade_sandbox.policy import FolderRule
from tests.unit.sandboxes.test_folders.helpers import ORDINARY, Bench

FILL = """
mkdir -p deep/er/down gone links; printf 'one\\n' > a; printf 'two\\n' > b; echo kept > deep/er/down/c
printf 'x%.0s' $(seq 1 70000) > big; ln -s a links/to-a; touch empty; echo old > gone/old; chmod 750 deep
"""
STEPS = (
    "echo new > new; echo more >> a",
    "rm b; rm -r gone; mkdir gone; echo other > gone/other",
    "mv deep shallow; chmod 600 a; ln -sf big links/to-a",
    "rm -rf links; echo file > links; truncate -s 5000000 sparse; printf end >> sparse",
    "printf y | dd of=big conv=notrunc bs=1 seek=3 status=none; mkfifo pipe; ln a hard",
    "rm -rf ./*; echo all > gone",
    "rm -rf ./*; mkdir a; echo in > a/in; chmod 500 a",
)


@pytest.fixture
def filled(bench: Bench) -> Bench:
    (bench.host / "x").mkdir()
    os.system(f"cd {bench.host} && {FILL}")
    bench.begin()
    return bench


def test_every_step_can_be_come_back_to(filled: Bench) -> None:
    snapshots = Snapshots(filled.layer)
    begun = filled.bash("true")
    names, pictures = [snapshots.take()], [begun]
    for step in STEPS:
        pictures.append(filled.bash(step))
        names.append(snapshots.take())
    assert names[0] is None
    assert len(set(names)) == len(names)
    order = list(range(len(names)))
    random.Random(1).shuffle(order)
    highest = max(order)
    for number in [highest, *(number for number in order if number != highest)]:
        _restore_keeping(filled, names[number])
        assert filled.bash("true") == pictures[number], f"step {number}"


def _restore_keeping(bench: Bench, name: str | None) -> None:
    """Later segments are kept for the test, as a branch keeps its parent's."""
    saved = {path: path.read_bytes() for path in (bench.place / KEPT).iterdir()}
    restore(bench.layer, name)
    for path, data in saved.items():
        path.write_bytes(data)


def test_a_snapshot_of_nothing_new_is_the_same_one(filled: Bench) -> None:
    snapshots = Snapshots(filled.layer)
    filled.bash("echo 1 > a")
    name = snapshots.take()
    assert name is not None
    filled.bash("cat a")
    assert snapshots.take() == name
    filled.bash("touch -d '2001-01-01' big; chmod +x big; chmod -x big")
    snapshots.take()
    kept = sorted(path.name for path in (filled.place / KEPT).iterdir())
    assert kept
    assert all(name.isdecimal() for name in kept)


def test_going_on_from_a_snapshot_writes_no_data_twice(filled: Bench) -> None:
    first = Snapshots(filled.layer)
    filled.bash("head -c 300000 /dev/urandom > noise; echo 1 > a")
    name = first.take()
    filled.bash("echo 2 > a; rm noise")
    restore(filled.layer, name)
    second = Snapshots(filled.layer, name)
    second.take()
    filled.bash("mkdir other; cp noise other/again; echo 3 > a")
    last = second.take()
    assert last is not None
    assert last != name
    assert sum(path.stat().st_size for path in (filled.place / KEPT).iterdir()) < 320_000
    restore(filled.layer, last)
    with_noise = filled.bash("cmp noise other/again && rm other/again")
    assert not any("again" in str(path) for path in with_noise)


def test_a_cut_write_leaves_the_snapshot_before_it(filled: Bench) -> None:
    snapshots = Snapshots(filled.layer)
    picture = filled.bash("echo 1 > a")
    name = snapshots.take()
    filled.bash("echo 2 > a")
    snapshots.take()
    (filled.place / KEPT / "3.part").write_bytes(b"half")
    restore(filled.layer, name)
    assert sorted(path.name for path in (filled.place / KEPT).iterdir()) == ["1"]
    assert filled.bash("true") == picture


def test_restoring_twice_or_after_a_cut_gives_the_same(filled: Bench) -> None:
    snapshots = Snapshots(filled.layer)
    picture = filled.bash(STEPS[0])
    name = snapshots.take()
    filled.bash(STEPS[5])
    restore(filled.layer, name)
    filled.bash("rm -rf deep")  # as if it had been cut half-way
    restore(filled.layer, name)
    restore(filled.layer, name)
    assert filled.bash("true") == picture


@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_a_damaged_snapshot_is_named(filled: Bench, harm: str) -> None:
    snapshots = Snapshots(filled.layer)
    filled.bash("echo 1 > a")
    name = snapshots.take()
    segment = filled.place / KEPT / "1"
    data = segment.read_bytes()
    if harm == "gone":
        segment.unlink()
    else:
        segment.write_bytes(data[:-5] if harm == "cut" else data.replace(b'"mode"', b'"mood"'))
    filled.bash("echo 2 > a")
    with pytest.raises(SandboxFailed, match="snapshot"):
        restore(filled.layer, name)


def test_past_the_limit_old_data_goes_and_the_last_two_stay(filled: Bench) -> None:
    snapshots = Snapshots(filled.layer, limit_bytes=250_000)
    names, pictures = [], []
    for number in range(6):
        pictures.append(filled.bash(f"head -c 100000 /dev/urandom > noise; echo {number} > count"))
        names.append(snapshots.take())
    assert sum(path.stat().st_size for path in (filled.place / KEPT).iterdir()) < 330_000
    with pytest.raises(SandboxFailed, match="not kept any more"):
        _restore_keeping(filled, names[0])
    _restore_keeping(filled, names[4])
    assert filled.bash("true") == pictures[4]


def test_a_full_disk_is_named_and_the_snapshot_before_stays(filled: Bench, tmp_path: Path) -> None:
    snapshots = Snapshots(filled.layer)
    picture = filled.bash("echo 1 > a")
    name = snapshots.take()
    kept = filled.place / KEPT
    aside = tmp_path / "aside"
    aside.mkdir()
    for path in kept.iterdir():
        (aside / path.name).write_bytes(path.read_bytes())
    os.system(f"mount -t tmpfs -o size=64k tmpfs {kept} && cp {aside}/* {kept}/")
    try:
        filled.bash("head -c 200000 /dev/urandom > noise")
        with pytest.raises(SandboxFailed, match="disk is full"):
            snapshots.take()
        assert sorted(path.name for path in kept.iterdir()) == ["1"]
        restore(filled.layer, name)
    finally:
        os.system(f"umount {kept}")
    assert filled.bash("true") == picture


def test_another_layer_of_the_folder_can_start_from_it(filled: Bench) -> None:
    snapshots = Snapshots(filled.layer)
    picture = filled.bash(STEPS[1])
    name = snapshots.take()
    source = filled.place
    filled.bash(STEPS[5])
    other = Bench(filled.top, filled.how)
    other.begun = prepare_layer(
        FolderRule(host=str(filled.host)), filled.top / "branch",
        sandbox_uid=ORDINARY if filled.how == "user" else 0,
        can_overlay=lambda _: "asked to copy" if filled.how == "copy" else None,
    )  # fmt: skip
    (filled.top / "branch").chmod(0o755)
    if filled.how != "copy":
        (other.place / "m").mkdir()
    restore(other.layer, name, source)
    assert other.bash("true") == picture


def test_a_copy_cannot_get_back_what_changed_on_the_host(filled: Bench) -> None:
    snapshots = Snapshots(filled.layer)
    filled.bash("echo 1 > new")
    name = snapshots.take()
    filled.bash("echo 2 > big")
    (filled.host / "big").write_text("by somebody else")
    if filled.how == "copy":
        with pytest.raises(UsageError, match="changed in the folder"):
            restore(filled.layer, name)
    else:
        restore(filled.layer, name)


def test_hostile_names_links_and_sockets(filled: Bench) -> None:
    snapshots = Snapshots(filled.layer)
    secret = filled.top / "secret"
    secret.write_text("untouched")
    script = f"""
    ln -s {secret} way; ln -s .. up; printf x > $'new\\nline'; printf y > $'\\377bytes';
    mkdir -p "$(printf 'd/%.0s' {{1..100}})"
    python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
    """
    filled.bash(script)
    name = snapshots.take()
    filled.bash("rm way; mkdir way; echo 1 > way/in; rm up; rm sock")
    restore(filled.layer, name)
    assert secret.read_text() == "untouched"
    seen = filled.bash("rm -f sock")
    assert any(b"bytes" in os.fsencode(str(path)) for path in seen)
