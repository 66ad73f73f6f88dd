"""Damaged records: named when they are used, and read as far as possible by what the documentation says."""

import os
import re
import sqlite3
from pathlib import Path

import pytest

from stockade.core.actions import FileContent
from stockade.core.errors import StoreFailed
from stockade.core.events import ActionFinished, RunEvent
from stockade.store.sqlite import SQLiteStore, large_outputs
from stockade.testing.conformance.store import first, some

pytestmark = pytest.mark.anyio
RUNS, TURNS, PAGE = 4, 40, 4096


def _long(turn: int) -> RunEvent:
    """Longer than a page, not large."""
    file = FileContent(path="x", text=f"{turn} é " * 6000, first=1, last=1, total=1)
    return ActionFinished(at=2.0, turn=turn, step=0, observation=file)


async def _record(path: Path) -> dict[str, list[RunEvent]]:
    runs: dict[str, list[RunEvent]] = {}
    async with SQLiteStore(path) as store:
        for number in range(RUNS):
            name = f"r{number}"
            runs[name] = [first(name, float(number))]
            for turn in range(TURNS):
                runs[name] += some(turn)
            runs[name].append(_long(number))
            await store.append(name, runs[name])
    return runs


async def _read(path: Path) -> dict[str, list[RunEvent]]:
    async with SQLiteStore(path) as store:
        return {run.run_id: await store.events(run.run_id) for run in await store.runs()}


def _changed(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as db:
        assert db.execute(statement).rowcount
    db.close()


async def _refusal(path: Path) -> StoreFailed:
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreFailed) as caught:
            await store.events("r2")
    return caught.value


async def test_a_destroyed_head_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await _record(path)
    data = bytearray(path.read_bytes())
    data[:PAGE] = os.urandom(PAGE)
    path.write_bytes(data)
    with pytest.raises(StoreFailed, match="is damaged") as caught:
        SQLiteStore(path)
    assert f"sqlite3 {path} .recover" in str(caught.value.hint)
    assert path.read_bytes() == data


async def test_damage_that_only_reading_meets_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await _record(path)
    data = bytearray(path.read_bytes())
    for number in range(4, len(data) // PAGE):
        data[number * PAGE : number * PAGE + 8] = b"\xff" * 8
    path.write_bytes(data)
    refused = await _refusal(path)
    assert "is damaged" in refused.message
    assert f"sqlite3 {path} .recover" in str(refused.hint)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE events SET body=replace(body, 'DROP', 'drop') WHERE run_id='r2' AND seq=5", "event 5 in .* checksum"),
        ("DELETE FROM events WHERE run_id='r2' AND seq=5", "event 5 is missing from"),
    ],
)
async def test_a_run_is_read_up_to_what_is_lost_as_the_documentation_says(
    tmp_path: Path, statement: str, message: str
) -> None:
    path = tmp_path / "runs.db"
    runs = await _record(path)
    _changed(path, statement)
    refused = await _refusal(path)
    assert re.search(message, refused.message)
    assert "docs/store.md" in str(refused.hint)
    page = (Path(__file__).parents[3] / "docs" / "store.md").read_text()
    found = re.search(r"DELETE FROM events WHERE run_id = 'RUN' AND seq >= NUMBER", page)
    assert found
    _changed(path, found[0].replace("RUN", "r2").replace("NUMBER", "5"))
    assert await _read(path) == runs | {"r2": runs["r2"][:5]}


async def test_a_record_of_the_first_schema(tmp_path: Path) -> None:
    """Rows without checksums; opening such a record brings it up to date."""
    path = tmp_path / "runs.db"
    runs = await _record(path)
    with sqlite3.connect(path) as db:
        db.executescript(
            "CREATE TABLE old (run_id TEXT NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, type TEXT NOT NULL,"
            " body TEXT NOT NULL, PRIMARY KEY (run_id, seq)) WITHOUT ROWID;"
            "INSERT INTO old SELECT run_id, seq, at, type, body FROM events; DROP TABLE events; DROP TABLE leases;"
            "DROP TABLE removed; DROP TABLE said; DROP TABLE words; ALTER TABLE runs DROP COLUMN folder;"
            "ALTER TABLE old RENAME TO events; PRAGMA user_version=1;"
        )
    db.close()
    assert await _read(path) == runs


async def test_a_lost_large_output_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    file = FileContent(path="x", text="large " * 20_000, first=1, last=1, total=1)
    async with SQLiteStore(path) as store:
        await store.append("r2", [first("r2"), ActionFinished(at=2.0, turn=1, step=0, observation=file)])
    for name in large_outputs(path).rglob("*"):
        if name.is_file():
            name.unlink()
    assert re.search(r"event 1 in .* large output .* \(120000 bytes\) is missing", (await _refusal(path)).message)
