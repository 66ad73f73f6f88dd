"""Nothing of a sandbox outlives a stockade that was killed, at any moment."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stockade_sandbox.leftovers import clean
from stockade_sandbox.limits.cgroups import places, sweep

HOLDER = """
import sys, tempfile
from pathlib import Path
import anyio
from stockade_sandbox.policy import Policy
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox

async def main():
    async with BubblewrapSandbox(Policy(), (), Path(tempfile.gettempdir())) as box:
        await box.run("(setsid nohup sleep 4321 >/dev/null 2>&1 &); sleep 4322 & (trap '' TERM HUP; sleep 4323) &")
        print("ready", flush=True)
        await anyio.sleep_forever()

print("begun", flush=True)
anyio.run(main)
"""


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _parents() -> dict[int, int]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                found[int(name)] = int(_fields(int(name))[1])
    return found


def _descendants(root: int) -> set[int]:
    parents = _parents()
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def in_groups_of(maker: int) -> set[str]:
    """Processes in control groups that `maker` made; every process of a sandbox joins them first of all."""
    found: set[str] = set()
    for place in places():
        for folder in place.path.glob(f"stockade-{maker}-*"):
            found |= set((folder / "cgroup.procs").read_text().split())
    return found


def await_ends(pids: set[int]) -> set[int]:
    left = set()
    for pid in pids:
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            if not select.select([pidfd], [], [], 10)[0]:
                left.add(pid)
            os.close(pidfd)
    return left


@pytest.fixture
def holder() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_killed_while_working(holder: "subprocess.Popen[str]") -> None:
    assert holder.stdout is not None
    assert holder.stdout.readline() + holder.stdout.readline() == "begun\nready\n"
    inside = _descendants(holder.pid)
    assert len(inside) >= 6
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert await_ends(inside) == set()
    assert in_groups_of(holder.pid) == set()
    sweep()
    assert not [folder for place in places() for folder in place.path.glob(f"stockade-{holder.pid}-*")]


@pytest.mark.parametrize("delay_ms", [0, 2, 4, 6, 8, 10, 13, 16, 20, 25, 30, 40])
def test_killed_while_starting(holder: "subprocess.Popen[str]", delay_ms: int) -> None:
    """Wherever the start has come to by then: the delays need not hit anything exactly."""
    assert holder.stdout is not None
    assert holder.stdout.readline() == "begun\n"
    threading.Event().wait(delay_ms / 1000)
    holder.send_signal(signal.SIGSTOP)
    inside = _descendants(holder.pid)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert await_ends(inside) == set()
    assert await_ends({int(pid) for pid in in_groups_of(holder.pid)}) == set()
    assert in_groups_of(holder.pid) == set()
    sweep()


def test_killed_guard_takes_everything_with_it(holder: "subprocess.Popen[str]") -> None:
    assert holder.stdout is not None
    assert holder.stdout.readline() + holder.stdout.readline() == "begun\nready\n"
    inside = _descendants(holder.pid)
    guards = {pid for pid, parent in _parents().items() if parent == holder.pid}
    assert len(guards) == 1
    os.kill(guards.pop(), signal.SIGKILL)
    assert await_ends({pid for pid in inside if Path(f"/proc/{pid}").exists()} - _zombies(inside)) == set()


@pytest.fixture
def own_places(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Where groups are looked for and nobody else cleans: tests beside this one do, in the machine's."""
    mine = [place._replace(path=place.path / f"of-a-test-{os.urandom(4).hex()}") for place in places()]
    for place in mine:
        place.path.mkdir()
    monkeypatch.setattr("stockade_sandbox.limits.cgroups.places", lambda: mine)
    yield [place.path for place in mine]
    for place in mine:
        place.path.rmdir()


def test_a_group_whose_process_is_still_ending_is_cleaned_all_the_same(tmp_path: Path, own_places: list[Path]) -> None:
    """What `doctor --clean` meets behind a stockade that was killed a moment ago."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    with subprocess.Popen(["sleep", "0.7"]) as ending:
        groups = [place / f"stockade-{gone.pid}-1-{os.urandom(4).hex()}" for place in own_places]
        for group in groups:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(ending.pid))
        lines = clean(tmp_path, (), lambda _: False)
    assert {f"removed the control group {group}" for group in groups} <= set(lines)
    assert not [group for group in groups if group.exists()]


def _zombies(pids: set[int]) -> set[int]:
    found = set()
    for pid in pids:
        with suppress(OSError):
            if _fields(pid)[0] == "Z":
                found.add(pid)
    return found
