"""The record under real faults: kill -9 while it is written, its server's too, and a disk that is full.

A failing one names its seed.
"""

import random
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest

from stockade.core.events import RunEvent
from stockade.runtime.records import open_store
from stockade.store.sqlite import SQLiteStore, large_outputs
from tests.support.postgres import Server, server
from tests.support.scale import scaled
from tests.unit.store.conftest import where

__all__ = ["where"]
pytestmark = pytest.mark.anyio
KILLS = scaled(12)

WRITER = """
import sys, anyio
from stockade.runtime.records import open_store
from stockade.core.actions import FileContent
from stockade.core.events import ActionFinished
from stockade.testing.conformance.store import first, some

async def run(store, name, turns):
    async with store.driving(name):
        await store.append(name, [first(name)])
        for turn in range(turns):
            await store.append(name, some(turn))
            print(name, 1 + 3 * turn + 3 + turn // 5, flush=True)
            if turn % 5 == 4:  # a large output, its own each time
                text = f"{name} {turn} " * 9000
                file = FileContent(path="x", text=text, first=1, last=1, total=1)
                await store.append(name, [ActionFinished(at=3.0, turn=turn, step=0, observation=file)])

async def main():
    store = open_store(sys.argv[1])
    async with anyio.create_task_group() as group:
        for number in range(int(sys.argv[2])):
            group.start_soon(run, store, f"r{number}", int(sys.argv[3]))
    await store.close()

anyio.run(main)
"""


def writer(where: str, runs: int, turns: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, where, str(runs), str(turns)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


async def check(where: str, acknowledged: dict[str, int], note: str) -> None:
    """Every acknowledged event is there, nothing is there by halves, and the run can be driven on."""
    store = open_store(where)
    for name, count in acknowledged.items():
        events = await store.events(name)
        assert len(events) >= count, f"{note}: {name} lost {count - len(events)} events"
        assert _whole_turns(events), f"{note}: {name} has half an append"
        async with store.driving(name):
            await store.append(name, events[-1:])
    await store.close()


def _whole_turns(events: list[RunEvent]) -> bool:
    """Appends were of one event, three, one large one after each fifth three."""
    rest, turn = len(events) - 1, 0
    while rest >= 3:
        rest, turn = rest - 3, turn + 1
        if turn % 5 == 0 and rest:
            rest -= 1
    return rest == 0


@pytest.mark.parametrize("seed", range(KILLS))
async def test_a_writer_killed_at_any_time_loses_nothing(where: str, seed: int) -> None:
    chance = random.Random(seed)
    acknowledged: dict[str, int] = {}
    with writer(where, runs=chance.randint(1, 8), turns=100_000) as process:
        assert process.stdout is not None
        for _ in range(chance.randint(1, 60)):
            name, count = process.stdout.readline().split()
            acknowledged[name] = int(count)
        threading.Event().wait(chance.random() * 0.01)
        process.kill()
        for line in process.stdout:
            if line.endswith("\n"):
                name, count = line.split()
                acknowledged[name] = int(count)
    assert acknowledged
    await check(where, acknowledged, f"seed {seed}")


@pytest.mark.parametrize("seed", range(max(2, KILLS // 6)))
async def test_a_database_server_killed_at_any_time_loses_nothing(seed: int) -> None:
    """The writer waits for it to come back and goes on; nothing is written twice."""
    chance = random.Random(seed)
    turns = 40
    with server() as running:
        where = running.new_database()
        with writer(where, runs=4, turns=turns) as process:
            assert process.stdout is not None
            for _ in range(3):
                for _ in range(chance.randint(1, 30)):
                    process.stdout.readline()
                _cut_power(running, chance)
            process.stdout.read()
            assert process.stderr is not None
            assert process.wait() == 0, f"seed {seed}: {process.stderr.read()}"
        store = open_store(where)
        for number in range(4):
            assert len(await store.events(f"r{number}")) == 1 + 3 * turns + turns // 5, f"seed {seed}"
        await store.close()


def _cut_power(running: Server, chance: random.Random) -> None:
    threading.Event().wait(chance.random() * 0.02)
    running.kill()
    running.start()


FULL = """
import ctypes, subprocess, sys, anyio
from pathlib import Path
from stockade.core.actions import FileContent
from stockade.core.errors import StoreFailed
from stockade.core.events import ActionFinished
from stockade.store.sqlite import SQLiteStore
from stockade.testing.conformance.store import first, some

folder, large = Path(sys.argv[1]), sys.argv[2] == "large"
assert ctypes.CDLL(None).unshare(0x00020000) == 0
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(folder)], check=True)

def events(turn):
    file = FileContent(path="x", text=f"{turn} " * 40000, first=1, last=1, total=1)
    return [ActionFinished(at=1.0, turn=turn, step=0, observation=file)] if large else some(turn)

async def main():
    store = SQLiteStore(folder / "runs.db")
    written = [first("r")]
    async with store.driving("r"):
        await store.append("r", written)
        for turn in range(10_000):
            try:
                await store.append("r", events(turn))
            except StoreFailed as error:
                print("refused:", error)
                break
            written += events(turn)
        assert await store.events("r") == written
    await store.close()
    again = SQLiteStore(folder / "runs.db")  # what is there can be read with the disk still full
    assert await again.events("r") == written
    await again.close()
    subprocess.run(["mount", "-o", "remount,size=8m", str(folder)], check=True)
    again = SQLiteStore(folder / "runs.db")
    async with again.driving("r"):
        await again.append("r", events(77_777))
    assert await again.events("r") == [*written, *events(77_777)]
    await again.close()
    print("whole", len(written))

anyio.run(main)
"""


@pytest.mark.parametrize("what", ["small", "large"])
def test_a_full_disk_is_one_clear_line_and_nothing_is_lost(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run([sys.executable, "-c", FULL, str(folder), what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    refused, whole = done.stdout.splitlines()
    assert refused.startswith("refused: the record ")
    assert "(make room on the disk)" in refused
    assert int(whole.split()[1]) > 3


async def test_a_kill_between_a_large_file_and_its_event_leaves_a_record_that_can_be_read(tmp_path: Path) -> None:
    """At every step of the writing: a file that no event names is all that may be left."""
    steps = 0
    for steps in range(1, 60):
        path = tmp_path / f"{steps}.db"
        done = await anyio.run_process([sys.executable, "-c", STEP, str(path), str(steps)], check=False)
        async with SQLiteStore(path) as store:
            count = len(await store.events("r"))
        assert count == 1 + (done.returncode == 0)
        if done.returncode == 0:
            break
        assert done.returncode == -9, done.stderr.decode()
    assert steps > 3
    assert any(large_outputs(tmp_path / f"{steps}.db").rglob("*"))


BEAT = """
import os, signal, sys, anyio
from pathlib import Path
from stockade.store.sqlite import SQLiteStore
from stockade.testing.conformance.store import first, some

left = int(sys.argv[2])

def hook(event, arguments):
    global left
    if event == "stockade.step" and arguments[0] == "lease.beat":
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with SQLiteStore(Path(sys.argv[1]), beat_s=0.01) as store, store.driving("r"):
        await store.append("r", [first("r"), *some(1)])
        sys.addaudithook(hook)
        await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.mark.parametrize("time", range(10))
async def test_a_lease_whose_heartbeat_was_cut_is_taken_over(tmp_path: Path, time: int) -> None:
    path = tmp_path / "runs.db"
    with anyio.fail_after(120):
        done = await anyio.run_process([sys.executable, "-c", BEAT, str(path), str(time)], check=False)
    assert done.returncode == -9, done.stderr.decode()
    await check(str(path), {"r": 4}, f"heartbeat {time}")


STEP = """
import os, signal, sys, anyio
from pathlib import Path
from stockade.core.actions import FileContent
from stockade.core.events import ActionFinished
from stockade.store.sqlite import SQLiteStore
from stockade.testing.conformance.store import first

left = int(sys.argv[2])

def hook(event, _):
    global left
    if event in ("open", "os.mkdir", "os.rename"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with SQLiteStore(Path(sys.argv[1])) as store:
        await store.append("r", [first("r")])
        file = FileContent(path="x", text="large " * 20000, first=1, last=1, total=1)
        event = ActionFinished(at=3.0, turn=1, step=0, observation=file)
        sys.addaudithook(hook)
        await store.append("r", [event])
        global left
        left = -1

anyio.run(main)
"""
