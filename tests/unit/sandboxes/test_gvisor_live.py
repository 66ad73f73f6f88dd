"""gVisor for real: its own bounds, its ends, its refusals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.core.errors import PolicyNotEnforceable, SandboxDied, UsageError
from stockade_sandbox.backends.containers.gvisor import STATE, GVisorSandbox, find_runsc, refuse, sweep
from stockade_sandbox.backends.containers.host_stage import BASE
from stockade_sandbox.backends.layers import container_layers
from stockade_sandbox.doctor.probe import report_channel
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import MIB, FolderMode, FolderRule, Limits, Policy
from tests.support.engines import need, small_rootfs

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _runsc() -> None:
    need("runsc")


def _box(base: Path, policy: Policy) -> GVisorSandbox:
    return GVisorSandbox(policy, container_layers(policy, base / "run"), base / "run")


def _folder(base: Path, mode: FolderMode = "overlay", limits: Limits | None = None) -> Policy:
    (base / "folder").mkdir()
    (base / "folder/a.txt").write_text("alpha\n")
    return Policy(folders=(FolderRule(host=str(base / "folder"), mode=mode),), limits=limits or Limits())


async def test_an_overlay_is_reviewed(tmp_path: Path) -> None:
    async with _box(tmp_path, _folder(tmp_path)) as box:
        assert (
            await box.run("echo more >> a.txt && mkdir d && echo n > d/new && cat a.txt")
        ).stdout == b"alpha\nmore\n"
        (layer,) = box.layers
    assert (tmp_path / "folder/a.txt").read_text() == "alpha\n"
    assert {change.path for change in Review().changes(layer)} == {"a.txt", "d", "d/new"}
    Review().discard(layer)


async def test_it_is_said_that_the_shell_can_be_opened(tmp_path: Path) -> None:
    async with _box(tmp_path, Policy()) as box:
        assert [line for line in box.guarantees if "shell's descriptors" in line and line.startswith("NOT HELD")]
        assert (await report_channel(box)).held is False


async def test_a_file_is_bounded(tmp_path: Path) -> None:
    policy = _folder(tmp_path, limits=Limits(file_bytes=4 * MIB))
    async with _box(tmp_path, policy) as box:
        assert (await box.run("head -c 8M /dev/zero > big")).exit_code != 0
        assert int((await box.run("wc -c < big")).stdout) <= 4 * MIB
    Review().discard(box.layers[0])


async def test_scratch_is_bounded_in_total(tmp_path: Path) -> None:
    places = "/tmp /dev/shm /var/tmp /home/agent"
    async with _box(tmp_path, Policy(limits=Limits(disk_bytes=16 * MIB))) as box:
        await box.run(f"for d in {places}; do head -c 10M /dev/zero > $d/x; done")
        sizes = (await box.run(f"for d in {places}; do wc -c < $d/x; done")).stdout.split()
    assert 8 * MIB < sum(int(size) for size in sizes) <= 16 * MIB


async def test_a_memory_hog_ends_the_sandbox_by_name(tmp_path: Path) -> None:
    async with _box(tmp_path, Policy(limits=Limits(memory_bytes=256 * MIB))) as box:
        with pytest.raises(SandboxDied):
            await box.run("head -c 600M /dev/zero | tail -c 500M | wc -c", 60)


async def test_the_hosts_kernel_is_not_seen(tmp_path: Path) -> None:
    async with _box(tmp_path, Policy()) as box:
        assert os.uname().release not in (await box.run("uname -r; cat /proc/version")).output.decode()
        status = (await box.run("grep -E '^Cap(Eff|Bnd)' /proc/self/status; id -u")).stdout.split()
    assert status[:4] == [b"CapEff:", b"0" * 16, b"CapBnd:", b"0" * 16]
    assert status[4] != b"0"


async def test_a_root_file_system_directory(tmp_path: Path) -> None:
    root = small_rootfs(tmp_path / "root")
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    async with _box(tmp_path, Policy(rootfs=str(root))) as box:
        assert (await box.run("cat /marker; echo x > /marker; echo y > /tmp/y; cat /tmp/y")).stdout.split(b"\n")[
            ::2
        ] == [b"small", b"y"]
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before


def test_what_cannot_be_had_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="directory"):
        refuse(Policy(rootfs="debian:12"))


def test_an_old_release_is_refused_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runsc").write_text("#!/bin/sh\necho runsc version 0.0~20221219.0\n")
    (tmp_path / "runsc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    find_runsc.cache_clear()
    try:
        with pytest.raises(PolicyNotEnforceable, match=r"20221219 is too old.*bookworm-backports"):
            GVisorSandbox.prepared(Policy(), tmp_path)
    finally:
        find_runsc.cache_clear()


async def test_process_one_is_not_to_be_looked_into(tmp_path: Path) -> None:
    """gVisor shows maps and descriptors of any process; those of the agent are hidden."""
    async with _box(tmp_path, Policy(streams="separate")) as box:
        assert (await box.run("ls -A /proc/1 /sys /dev/net; cat /proc/1/maps; ls /dev/fuse")).stdout.split() == [
            b"/dev/net:", b"/proc/1:", b"/sys:"
        ]  # fmt: skip


async def test_processes_are_bounded_in_total(tmp_path: Path) -> None:
    async with _box(tmp_path, Policy(limits=Limits(processes=20))) as box:
        count = "import os, time\nfor n in range(99):\n    if not os.fork(): time.sleep(60)\n    print(n, flush=True)"
        started = (await box.run(f"python3 -c '{count}'; kill $(jobs -p)", 20)).stdout.split()
        started = [word for word in started if word.isdigit()]
        assert 5 <= len(started) <= 30


_HOLDER = """
import sys
from pathlib import Path
import anyio
from stockade_sandbox.policy import FolderRule, Policy
from stockade_sandbox.backends.containers.gvisor import GVisorSandbox
from stockade_sandbox.backends.layers import container_layers

async def main():
    base = Path(sys.argv[2])
    policy = Policy(folders=(FolderRule(host=sys.argv[1]),))
    async with GVisorSandbox(policy, container_layers(policy, base), base) as box:
        await box.run("(setsid nohup sleep 4321 >/dev/null 2>&1 &); sleep 4322 &")
        print(box.name, box.host_pid, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def test_a_killed_stockade_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    command = [sys.executable, "-c", _HOLDER, str(tmp_path / "folder"), str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        name, pid = holder.stdout.readline().split()
        holder.send_signal(signal.SIGKILL)
    subprocess.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=30, check=True)
    sweep(find_runsc()[0])
    assert not (BASE / name).exists()
    assert not list(STATE.glob(f"*{name}*"))
    assert name not in Path("/proc/self/mounts").read_text()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{name}"))
