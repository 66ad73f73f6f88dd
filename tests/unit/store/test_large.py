"""Large outputs: put aside under their sha256, and errors instead of crashes when they are not as they were."""

import os
from pathlib import Path

import pytest

from stockade.core.actions import FileContent
from stockade.core.errors import StoreFailed
from stockade.core.events import ActionFinished, RunEvent
from stockade.store.blobs import BlobFolder, Large
from stockade.store.record import SQLRecord
from stockade.store.rows import LARGE_BYTES, encode
from stockade.store.sqlite import SQLiteStore, large_outputs
from stockade.testing.conformance.store import first
from stockade_sandbox.results import Chunk, CommandOutput
from tests.unit.store.conftest import OpenAgain

pytestmark = pytest.mark.anyio
TEXT = "é\0\x1b[31m\n" * LARGE_BYTES
BYTES = bytes(range(256)) * (LARGE_BYTES // 128)


def large() -> list[RunEvent]:
    chunks = (Chunk.of("stdout", TEXT.encode()), Chunk.of("stderr", BYTES), Chunk.of("stdout", b"short"))
    file = FileContent(path="x", text=TEXT, first=1, last=2, total=2)
    return [
        ActionFinished(at=2.0, turn=1, step=0, observation=CommandOutput(exit_code=0, chunks=chunks)),
        ActionFinished(at=2.0, turn=2, step=0, observation=file),
    ]


async def _written(store: SQLRecord) -> list[RunEvent]:
    events: list[RunEvent] = [first("r"), *large()]
    await store.append("r", events)
    return events


async def test_they_come_back_byte_for_byte_and_rows_stay_small(open_again: OpenAgain) -> None:
    async with open_again() as store:
        events = await _written(store)
        assert await store.events("r") == events
        assert store._db.execute("SELECT max(length(body)) FROM events")[0][0] < LARGE_BYTES
    async with open_again() as store:
        assert await store.events("r") == events


async def test_the_same_output_is_kept_once(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "runs.db") as store:
        await _written(store)
    files = [path for path in large_outputs(tmp_path / "runs.db").rglob("*") if path.is_file()]
    assert sorted(path.read_bytes() for path in files) == sorted([TEXT.encode(), BYTES])
    assert {path.stat().st_mode & 0o077 for path in files} == {0}


async def test_a_missing_one_is_named(open_again: OpenAgain, where: str) -> None:
    async with open_again() as store:
        await _written(store)
        _change(store, where, None)
        with pytest.raises(
            StoreFailed, match=r"event 1 in .*: its large output [0-9a-f]{12}… \(\d+ bytes\) is missing"
        ):
            await store.events("r")


@pytest.mark.parametrize("data", [b"", b"something else", BYTES[:-1] + b"x"])
async def test_a_changed_one_is_named(open_again: OpenAgain, where: str, data: bytes) -> None:
    async with open_again() as store:
        await _written(store)
        _change(store, where, data)
        with pytest.raises(StoreFailed, match="was changed or damaged"):
            await store.events("r")
        await store.append("s", [first("s"), *large()])  # which also mends a file


def _change(store: SQLRecord, where: str, data: bytes | None) -> None:
    name = encode(large()[0]).put_aside[1].sha256
    if where.startswith("postgresql:"):
        if data is None:
            store._db.execute("DELETE FROM large_outputs WHERE sha256=?", (name,))
        else:
            store._db.execute("UPDATE large_outputs SET data=? WHERE sha256=?", (data, name))
        return
    path = large_outputs(Path(where)) / name[:2] / name
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)


async def test_a_file_that_cannot_be_read_is_a_clear_error(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "runs.db") as store:
        await _written(store)
        name = encode(large()[0]).put_aside[1].sha256
        path = large_outputs(tmp_path / "runs.db") / name[:2] / name
        path.unlink()
        path.mkdir()
        with pytest.raises(StoreFailed, match="Is a directory"):
            await store.events("r")


async def test_a_damaged_list_of_them_is_named(open_again: OpenAgain) -> None:
    async with open_again() as store:
        await _written(store)
        store._db.execute("UPDATE events SET large='[' WHERE seq=1")
        with pytest.raises(StoreFailed, match=r"event 1 .* is damaged"):
            await store.events("r")
        store._db.execute('UPDATE events SET large=\'[[["nowhere"], "../../../etc/passwd", 1, "text"]]\' WHERE seq=1')
        with pytest.raises(StoreFailed, match="event 1"):
            await store.events("r")


async def test_those_of_removed_runs_go_and_shared_ones_stay(open_again: OpenAgain, where: str) -> None:
    async with open_again() as store:
        await _written(store)
        events: list[RunEvent] = [first("s", task="only here " * LARGE_BYTES), large()[0]]
        await store.append("s", events)
        await store.remove("r")
        await store.sweep()
        assert await store.events("s") == events
        await store.remove("s")
        await store.append("t", [first("t"), large()[1]])
        await store.sweep()
        assert await store.events("t") == [first("t"), large()[1]]
        assert len(_kept(store, where)) == 1
        await store.remove("t")
        await store.sweep()
        assert _kept(store, where) == []


def _kept(store: SQLRecord, where: str) -> list[object]:
    if where.startswith("postgresql:"):
        return list(store._db.execute("SELECT sha256 FROM large_outputs"))
    return [path for path in large_outputs(Path(where)).rglob("*") if path.is_file()]


async def test_none_goes_while_a_damaged_run_may_need_it(open_again: OpenAgain, where: str) -> None:
    async with open_again() as store:
        await _written(store)
        await store.append("s", [first("s"), *large()])
        before = len(_kept(store, where))
        store._db.execute("UPDATE events SET large='[' WHERE run_id='r'")
        await store.remove("s")
        with pytest.raises(StoreFailed, match="run r is damaged"):
            await store.sweep()
        assert len(_kept(store, where)) == before
        store._db.execute("UPDATE leases SET holder='{' WHERE run_id='r'")
        await store.remove("r")
        await store.sweep()
        assert _kept(store, where) == []


def test_a_half_written_file_has_another_name(tmp_path: Path) -> None:
    folder = BlobFolder(tmp_path / "large")
    one = encode(large()[0]).put_aside[0]
    (tmp_path / "large" / one.sha256[:2]).mkdir(parents=True)
    folder.save([one, one])
    assert folder.load(one.sha256) == one.data
    assert [name for _, _, files in os.walk(tmp_path) for name in files] == [one.sha256]
    assert folder.load("../../etc/passwd") is None
    assert folder.load("0" * 64) is None
    folder.save([Large(one.sha256, one.data)])


async def test_a_changed_row_does_not_fit_its_checksum(open_again: OpenAgain) -> None:
    async with open_again() as store:
        await _written(store)
        store._db.execute("UPDATE events SET body=replace(body, '\"short\"', '\"shore\"') WHERE seq=1")
        with pytest.raises(StoreFailed, match="checksum does not fit"):
            await store.events("r")
