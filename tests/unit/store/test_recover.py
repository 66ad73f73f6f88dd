"""Damaged records: found out when they are used, and what is readable of them saved."""

import json
import os
import random
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stockade.core.actions import FileContent
from stockade.core.errors import StoreFailed, UsageError
from stockade.core.events import ActionFinished, RunEvent, from_json
from stockade.store.carve import Pages
from stockade.store.recover import Recovered, loose_events, recover
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


async def test_a_whole_record_comes_back_whole(tmp_path: Path) -> None:
    runs = await _record(tmp_path / "runs.db")
    done = await recover(tmp_path / "runs.db", tmp_path / "new.db")
    assert (done.runs, done.events, done.loose, done.damaged) == (RUNS, sum(map(len, runs.values())), 0, 0)
    assert await _read(tmp_path / "new.db") == runs


async def test_one_that_is_in_use_and_half_in_its_log_too(tmp_path: Path) -> None:
    runs = await _record(tmp_path / "runs.db")
    async with SQLiteStore(tmp_path / "runs.db") as store:
        await store.append("r1", some(77))
        await store.append("r1", [_long(78)])
        await recover(tmp_path / "runs.db", tmp_path / "new.db")
    assert (await _read(tmp_path / "new.db"))["r1"] == [*runs["r1"], *some(77), _long(78)]


@pytest.mark.parametrize("seed", range(6))
async def test_destroyed_pages_cost_only_what_was_on_them(tmp_path: Path, seed: int) -> None:
    path, chance = tmp_path / "runs.db", random.Random(seed)
    runs = await _record(path)
    data = bytearray(path.read_bytes())
    for number in chance.sample(range(len(data) // PAGE), 4):
        data[number * PAGE : (number + 1) * PAGE] = chance.choice([bytes(PAGE), chance.randbytes(PAGE)])
    path.write_bytes(data)
    done = await recover(path, tmp_path / "new.db")
    saved = await _read(tmp_path / "new.db") if done.runs else {}
    for name, events in saved.items():
        assert events == runs[name][: len(events)]
    loose = [json.loads(line) for line in _lines(done)]
    for line in loose:
        assert from_json(json.dumps(line["event"])) == runs[line["run_id"]][line["seq"]]
    assert len(loose) == done.loose
    assert done.events + done.loose > sum(map(len, runs.values())) // 2
    assert path.read_bytes() == data


def _lines(done: Recovered) -> list[str]:
    return Path(done.loose_file).read_text().splitlines() if done.loose_file else []


async def test_a_destroyed_head_is_named_and_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    runs = await _record(path)
    data = bytearray(path.read_bytes())
    data[:PAGE] = os.urandom(PAGE)
    path.write_bytes(data)
    with pytest.raises(StoreFailed, match="is damaged") as caught:
        SQLiteStore(path)
    assert "runs recover" in str(caught.value.hint)
    await recover(path, tmp_path / "new.db")
    assert await _read(tmp_path / "new.db") == runs


async def test_damage_that_only_reading_meets_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await _record(path)
    data = bytearray(path.read_bytes())
    for number in range(4, len(data) // PAGE):
        data[number * PAGE : number * PAGE + 8] = b"\xff" * 8
    path.write_bytes(data)
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreFailed, match=r"is damaged|is missing") as caught:
            await store.events("r2")
    assert "runs recover" in str(caught.value.hint)


async def test_a_changed_event_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    runs = await _record(path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE events SET body=replace(body, 'DROP', 'drop') WHERE run_id='r2' AND seq=5")
    db.close()
    done = await recover(path, tmp_path / "new.db")
    assert done.damaged == 1
    assert (await _read(tmp_path / "new.db"))["r2"] == runs["r2"][:5]
    assert done.loose == len(runs["r2"]) - 6


async def test_a_record_of_the_first_schema(tmp_path: Path) -> None:
    """Rows without checksums, and opening such a record brings it up to date."""
    path = tmp_path / "runs.db"
    runs = await _record(path)
    with sqlite3.connect(path) as db:
        db.executescript(
            "CREATE TABLE old (run_id TEXT NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, type TEXT NOT NULL,"
            " body TEXT NOT NULL, PRIMARY KEY (run_id, seq)) WITHOUT ROWID;"
            "INSERT INTO old SELECT run_id, seq, at, type, body FROM events; DROP TABLE events; DROP TABLE leases;"
            "ALTER TABLE old RENAME TO events; PRAGMA user_version=1;"
        )
    db.close()
    await recover(path, tmp_path / "new.db")
    assert await _read(tmp_path / "new.db") == runs
    assert await _read(path) == runs


async def test_a_lost_large_output_is_said_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    file = FileContent(path="x", text="large " * 20_000, first=1, last=1, total=1)
    async with SQLiteStore(path) as store:
        await store.append("r", [first("r"), ActionFinished(at=2.0, turn=1, step=0, observation=file)])
    for name in large_outputs(path).rglob("*"):
        if name.is_file():
            name.unlink()
    done = await recover(path, tmp_path / "new.db")
    assert done.lost_outputs == 1
    event = (await _read(tmp_path / "new.db"))["r"][1]
    assert isinstance(event, ActionFinished)
    assert isinstance(event.observation, FileContent)
    assert event.observation.text.startswith("[this output of 120000 bytes was lost: sha256 ")


async def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no record"):
        await recover(tmp_path / "nothing", tmp_path / "new.db")
    await _record(tmp_path / "runs.db")
    (tmp_path / "new.db").write_text("")
    with pytest.raises(UsageError, match="exists already"):
        await recover(tmp_path / "runs.db", tmp_path / "new.db")
    (tmp_path / "other.db").mkdir()
    with pytest.raises(UsageError, match="there is no record"):
        await recover(tmp_path / "other.db", tmp_path / "new2.db")


@pytest.mark.parametrize(
    "content", [b"", b"x", b"text " * 5000, bytes(9 * PAGE), b"SQLite format 3\0" + b"\x0a" * 70_000]
)
async def test_files_that_hold_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "runs.db").write_bytes(content)
    done = await recover(tmp_path / "runs.db", tmp_path / "new.db")
    assert (done.runs, done.events, done.loose, done.new) == (0, 0, 0, None)
    assert not (tmp_path / "new.db").exists()
    assert not loose_events(tmp_path / "new.db").exists()


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_any_bytes_can_be_looked_through(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    page = bytearray(PAGE)
    page[0] = data.draw(st.sampled_from([0x02, 0x0A]))
    page[3:5] = data.draw(st.integers(0, 65535)).to_bytes(2)
    body = data.draw(st.binary(max_size=200))
    page[8 : 8 + len(body)] = body
    path = tmp_path_factory.mktemp("carve") / "runs.db"
    path.write_bytes(bytes(PAGE) + bytes(page) * 2)
    list(Pages(path).rows())
