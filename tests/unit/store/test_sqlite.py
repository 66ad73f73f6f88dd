"""SQLite alone: two processes, kill -9, newer and damaged files, a full disk."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from stockade.core.errors import StoreFailed, UsageError
from stockade.core.events import OLDEST_SCHEMA_VERSION, SCHEMA_VERSION, RunEvent, to_json
from stockade.runtime import records
from stockade.store.database import migrations
from stockade.store.opening import open_store, read_index, read_store
from stockade.store.record import SQLRecord
from stockade.store.sqlite import SQLiteDatabase, SQLiteStore
from stockade.testing.conformance.store import first, some

pytestmark = pytest.mark.anyio

WRITER = """
import asyncio, sys
from pathlib import Path
from stockade.store.sqlite import SQLiteStore
from stockade.testing.conformance.store import first, some

async def main() -> None:
    store, name = SQLiteStore(Path(sys.argv[1])), sys.argv[2]
    await store.append(name, [first(name)])
    for turn in range(int(sys.argv[3])):
        await store.append(name, some(turn))
        print(turn, flush=True)

asyncio.run(main())
"""


def writer(path: Path, name: str, turns: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(turns)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("version", "words"),
    [(OLDEST_SCHEMA_VERSION - 1, "was recorded before the first release (record schema 1; those from 2 on are read)"),
     (SCHEMA_VERSION + 1, "was recorded by a newer Stockade")],
)  # fmt: skip
async def test_a_run_of_another_schema_of_events_is_refused_by_name(tmp_path: Path, version: int, words: str) -> None:
    path, old = tmp_path / "runs.db", {**json.loads(to_json(first("old"))), "schema_version": version, "strange": 1}
    async with SQLiteStore(path) as store:
        await store.append("old", [first("old")])
    body = json.dumps(old, separators=(",", ":"))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE events SET body=?, crc=NULL", (body,))
    db.close()
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreFailed, match=re.escape(f"run old {words}")):
            await store.events("old")
        await store.remove("old")
        assert await store.runs() == []


@pytest.mark.parametrize("kill_after", [1, 7, 23])
async def test_kill_9_loses_nothing_acknowledged(tmp_path: Path, kill_after: int) -> None:
    path = tmp_path / "runs.db"
    with writer(path, "r", 100_000) as process:
        assert process.stdout is not None
        acknowledged = 0
        for line in process.stdout:
            acknowledged = int(line) + 1
            if acknowledged == kill_after:
                process.send_signal(signal.SIGKILL)
    async with SQLiteStore(path) as store:
        events = await store.events("r")
    assert len(events) >= 1 + 3 * acknowledged
    assert (len(events) - 1) % 3 == 0


async def test_two_processes_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    processes = [writer(path, name, 40) for name in ("a", "b", "c")]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    async with SQLiteStore(path) as store:
        for name in ("a", "b", "c"):
            assert len(await store.events(name)) == 1 + 3 * 40


async def test_a_new_file_that_another_is_making_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.2, other.execute, ["ROLLBACK"]).start()
    async with SQLiteStore(path) as store:
        await store.append("r", [first("r")])
    other.close()


async def test_many_runs_of_one_process(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "runs.db") as store:

        async def one(name: str) -> None:
            await store.append(name, [first(name)])
            for turn in range(3):
                await store.append(name, some(turn))

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(one, f"run{number:03}")
        assert len(await store.runs()) == 100
        assert len(await store.events("run042")) == 10


async def test_a_newer_schema_is_refused_politely(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await SQLiteStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version={len(migrations('sqlite')) + 1}")
    db.close()
    with pytest.raises(StoreFailed, match="newer Stockade"):
        SQLiteStore(path)


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to look at" * 50, b"SQLite format 3\0" + b"\7" * 9000]
)
async def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "runs.db"
    path.write_bytes(content)
    with pytest.raises(StoreFailed, match=r"runs\.db"):
        SQLiteStore(path)
    assert path.read_bytes() == content


async def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with SQLiteStore(path) as store:
        await store.append("r", [first("r"), *some(1)])
        with sqlite3.connect(path) as db:
            db.execute('UPDATE events SET body=\'{"type": "evil"}\' WHERE seq=2')
        db.close()
        with pytest.raises(StoreFailed, match="event 2"):
            await store.events("r")
        with sqlite3.connect(path) as db:
            db.execute("DELETE FROM events WHERE seq=2")
        db.close()
        with pytest.raises(StoreFailed, match="event 2 is missing"):
            await store.events("r")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE runs SET started='x'", "started: "),
        ("UPDATE runs SET started=9e300", "started: "),
        ("UPDATE runs SET turns='many'", "turns: "),
        ("UPDATE runs SET status='odd'", "status: "),
        ("UPDATE runs SET task=x'80ff'", "task: "),
        ("UPDATE runs SET run_id='../../b'", "run_id: "),
        ("UPDATE runs SET run_id=x'ff'", "run_id: "),
        ("UPDATE leases SET holder='{bad'", "its lease"),
        ("UPDATE leases SET seen='soon'", "its lease"),
        ("UPDATE leases SET fence='x'", "its lease"),
    ],
)
async def test_one_damaged_row_is_named_and_the_other_runs_are_listed(tmp_path: Path, change: str, why: str) -> None:
    """On 90cacfa every `runs list` failed."""
    path = tmp_path / "runs.db"
    async with SQLiteStore(path) as store:
        for name in ("a", "b", "c"):
            async with store.driving(name):
                await store.append(name, [first(name)])
        with sqlite3.connect(path) as db:
            db.execute(f"{change} WHERE run_id='b'")
        db.close()
        listed = await store.runs()
        assert [run.status for run in listed] == ["running", "damaged", "running"]
        assert [run.run_id for run in (listed[0], listed[2])] == ["c", "a"]
        assert listed[1].problem is not None
        assert why in listed[1].problem
        if "leases" in change:
            with pytest.raises(StoreFailed, match=r"run b: its lease in .* is damaged"):
                await store.append("b", some(1))


async def test_a_record_of_before_keeps_its_order(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with sqlite3.connect(path) as db:
        for statement in [one for numbered in migrations("sqlite")[:2] for one in numbered]:
            db.execute(statement)
        rows = [(name, at, "", "", "", "done", 1) for name, at in (("a", 3.0), ("b", 1.0), ("c", 2.0))]
        db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        ends = [("a", 1, '{"verified": true}'), ("a", 5, '{"verified": false}'), ("b", 1, '{"verified": true}'),
                ("c", 1, "[")]  # fmt: skip
        db.executemany("INSERT INTO events (run_id, seq, at, type, body) VALUES (?, ?, 1, 'run_finished', ?)", ends)
        db.execute("PRAGMA user_version=2")
    db.close()
    async with SQLiteStore(path) as store:
        listed = [(run.run_id, run.verified) for run in await store.runs()]
        assert listed == [("a", False), ("c", None), ("b", True)]
        await store.append("d", [first("d", 0.5)])
        assert await store.find("last") == "d"


async def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(StoreFailed, match="cannot be opened"):
        SQLiteStore(blocker / "runs.db")


async def test_a_state_folder_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(StoreFailed, match=r"cannot be opened: .*Not a directory"):
        records.open_store(None)


async def test_a_full_disk_is_a_clear_error_and_the_record_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with SQLiteStore(path) as store:
        await store.append("r", [first("r")])
        store._db.execute("PRAGMA max_page_count=16")
        written: list[RunEvent] = [first("r")]

        async def fill() -> None:
            for turn in range(1000):
                await store.append("r", some(turn))
                written.extend(some(turn))

        with pytest.raises(StoreFailed, match="make room"):
            await fill()
        assert await store.events("r") == written


async def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    await SQLiteStore(tmp_path / "state" / "runs.db").close()
    assert os.stat(tmp_path / "state").st_mode & 0o077 == 0


class Watched(SQLiteDatabase):
    """Notes with which of SQLite's levels each transaction began: 2 syncs its commit, 1 does not."""

    def __init__(self, path: Path) -> None:
        self.levels: list[int] = []
        super().__init__(path)

    def begin(self, *, durable: bool = True) -> None:
        super().begin(durable=durable)
        self.levels.append(self.execute("PRAGMA synchronous")[0][0])


async def test_a_commit_is_synced_to_the_disk_unless_it_need_not_be(tmp_path: Path) -> None:
    """What kill -9 cannot show; tests/faults/test_power_cut.py cuts the power."""
    db = Watched(tmp_path / "runs.db")
    async with SQLRecord(db) as store:
        assert store._db.execute("PRAGMA journal_mode") == [("wal",)]
        db.levels.clear()
        await store.append("r", [first("r")])
        for durable in (False, True, False, False, True):
            await store.append("r", some(1), durable=durable)
        assert db.levels == [2, 1, 2, 1, 1, 2]


async def test_what_is_committed_together_is_synced_when_one_of_it_must_be(tmp_path: Path) -> None:
    db = Watched(tmp_path / "runs.db")
    async with SQLRecord(db) as store:
        for durable, level in ((True, 2), (False, 1)):
            db.levels.clear()
            go_on = threading.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(store._writer.read, go_on.wait)  # the next ones meet in the queue
                await anyio.lowlevel.checkpoint()
                group.start_soon(partial(store.append, f"a{level}", [first("a")], durable=False))
                group.start_soon(partial(store.append, f"b{level}", [first("b")], durable=durable))
                await anyio.lowlevel.checkpoint()
                go_on.set()
            assert db.levels == [level]


def test_a_new_record_is_its_owners_alone_whatever_folder_it_lies_in(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    store = SQLiteStore(tmp_path / "runs.db")
    anyio.run(store.append, "a", [first("a")])
    modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(modes, 0)
    assert {"runs.db", "runs.db-wal"} <= modes.keys()
    anyio.run(store.close)


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    for opened in (open_store, read_store, read_index):
        with pytest.raises(UsageError, match="no record can have the name"):
            opened(f"{tmp_path}/a\0b")
