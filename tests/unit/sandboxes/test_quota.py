"""The disk limit: floods of bytes and of files, in every way a folder can be written, and what hides from a count."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import SandboxFailed
from stockade_sandbox.backends.bubblewrap import sandbox as bubblewrap
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.limits.disk import DiskWatch, count, nothing_in, removed_but_open, spelled, written_places
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import GIB, KIB, MIB, CopyRule, FolderMode, FolderRule, Limits, Policy, file_limit
from stockade_sandbox.results import FolderLayer
from tests.conformance.ordinary_user import run_as_ordinary_user

ROOT = Path(__file__).parents[3]

BYTES = "for i in $(seq 40); do head -c 8M /dev/zero > flood-$i; done; sleep 30; echo survived"
FILES = "i=0; while [ $i -lt 60000 ]; do : > f$((i+=1)); done; sleep 30; echo survived"
UNLINKED = "for i in $(seq 40); do exec {fd}> gone; rm gone; head -c 8M /dev/zero >&$fd; done; sleep 30; echo survived"
CLOSED = "for i in $(seq 40); do mkdir d$i; head -c 8M /dev/zero > d$i/x; chmod 0 d$i; done; sleep 30; echo survived"
DEEP = "for i in $(seq 300); do mkdir d && cd -P d; done; head -c 8M /dev/zero > x; sleep 30; echo survived"
FLOODS = {"bytes": BYTES, "files": FILES, "removed but open": UNLINKED, "closed folders": CLOSED, "deep folders": DEEP}
LIMITS = Limits(disk_bytes=32 * MIB, command_timeout_s=60)


def kept(layer: FolderLayer) -> bool:
    """What a layer holds is still there for the review."""
    return layer.layer is None or Path(layer.layer).is_dir()


async def flooded(policy: Policy, base: Path, command: str) -> str:
    """Why the sandbox ended; the host folder and the layer are left."""
    layers = prepare_layers(policy, base)
    try:
        async with BubblewrapSandbox(policy, layers, base) as box:
            result = await box.run(command)
            return f"still there: {result.stdout!r} {result.stderr!r}"
    except SandboxFailed as ended:
        assert [layer for layer in layers if not kept(layer)] == []
        return str(ended)
    finally:
        for layer in layers:
            Review().discard(layer)


def copied(base: Path) -> Callable[[Path], str | None]:
    return lambda path: "the test wants a copy"


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("mode", ["overlay", "copy", "rw"])
def test_a_flood_ends_the_sandbox_by_name(
    mode: str, flood: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "copy":
        monkeypatch.setattr(bubblewrap, "overlay_check", copied)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "there").write_bytes(bytes(40 * MIB))  # what was there before does not count
    wanted: FolderMode = "rw" if mode == "rw" else "overlay"
    policy = Policy(folders=(FolderRule(host=str(folder), mode=wanted),), limits=LIMITS)
    words = anyio.run(flooded, policy, tmp_path / "run", FLOODS[flood])
    assert "disk limit" in words
    assert "--disk" in words
    if mode == "rw":
        assert count([folder]).size < 40 * MIB + 300 * MIB


@pytest.mark.root
def test_a_flood_by_an_ordinary_user_too() -> None:
    home = Path(tempfile.mkdtemp(prefix="stockade-user-"))
    try:
        chosen = [f"{Path(__file__).relative_to(ROOT)}", "-k", "ends_the_sandbox_by_name and not files"]
        options = ["-q", "-p", "no:cacheprovider", f"--basetemp={home}/t", f"--rootdir={ROOT}"]
        done = run_as_ordinary_user([sys.executable, "-m", "pytest", *options, *chosen], home)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "12 passed" in done.stdout
    finally:
        shutil.rmtree(home)


def test_a_flood_of_a_copy_too(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    policy = Policy(copies=(CopyRule(host=str(tmp_path / "given"), inside="/in"),), limits=LIMITS)
    assert "32 MiB" in anyio.run(flooded, policy, tmp_path / "run", f"cd /in; {BYTES}")
    assert list((tmp_path / "run").iterdir()) == []


def test_writing_within_the_limit_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    async def work() -> bytes:
        policy = Policy(folders=(FolderRule(host=str(folder)),), limits=LIMITS)
        layers = prepare_layers(policy, tmp_path / "run")
        async with BubblewrapSandbox(policy, layers, tmp_path / "run") as box:
            result = await box.run("for i in 1 2 3 4; do head -c 24M /dev/zero > x; sleep 0.3; done; stat -c %s x")
        Review().discard(layers[0])
        return result.stdout

    assert anyio.run(work) == b"25165824\n"


def test_count_takes_a_hard_link_once_and_follows_no_symlink(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(MIB))
    os.link(tmp_path / "a", tmp_path / "b")
    (tmp_path / "away").symlink_to("/usr")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 * MIB)
    found = count([tmp_path, tmp_path / "missing"])
    assert found.files == 3
    assert MIB <= found.size < 2 * MIB


def test_a_removed_file_is_found_while_it_is_open(tmp_path: Path) -> None:
    script = f"exec 5> {tmp_path}/x; rm {tmp_path}/x; head -c 1M /dev/zero >&5; echo; sleep 100"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert removed_but_open(process.pid, {tmp_path.stat().st_dev}).size >= MIB
        subprocess.run(["kill", *(str(pid) for pid in _children(process.pid)), str(process.pid)], check=True)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_nearly_full_disk_ends_it_without_any_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade_sandbox.limits.disk.floor_of", lambda _: 1 << 60)
    ended: list[str] = []
    watch = DiskWatch([tmp_path], 0, lambda: ended.append("now"), lambda: None)
    watch.start()
    watch._thread.join()
    assert ended == ["now"]
    assert "nearly full" in str(watch.reason)
    watch.stop()


def test_nothing_written_needs_no_places() -> None:
    watch = DiskWatch([], 100, lambda: None, lambda: None)
    watch.start()
    watch.stop()
    assert watch.reason is None


def test_nothing_in_folders_that_are_empty_and_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full/inner").mkdir(parents=True)
    assert nothing_in([tmp_path / "empty"])
    assert not nothing_in([tmp_path / "empty", tmp_path / "full"])
    assert not nothing_in([tmp_path / "missing"])


def test_written_places_hold_no_other(tmp_path: Path) -> None:
    inner = FolderLayer(host=str(tmp_path / "a"), inside="/a", mode="rw", strategy="direct")
    outer = FolderLayer(host=str(tmp_path), inside="/b", mode="rw", strategy="direct")
    read = FolderLayer(host="/usr", inside="/c", mode="ro", strategy="direct")
    assert written_places([inner, outer, read], []) == (tmp_path,)


def test_words() -> None:
    assert [spelled(2 * GIB), spelled(64 * MIB), spelled(1536 * KIB), spelled(12)] == [
        "2 GiB",
        "64 MiB",
        "1.5 MiB",
        "12 bytes",
    ]
    assert file_limit(2 * GIB) == 524_288
    assert file_limit(1) == 1024
