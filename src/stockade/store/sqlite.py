"""The record in one SQLite file: append-only events, WAL with synchronous=FULL, numbered migrations.

An append returns after its commit is synced. `runs` is an index over the events, kept in the same transaction.
"""

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import anyio.to_thread

from stockade.core.errors import StoreFailed, UsageError
from stockade.core.events import (
    SCHEMA_VERSION,
    ModelAnswered,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    from_json,
    to_json,
)
from stockade.core.ports import RunSummary

MIGRATIONS = (
    """
    CREATE TABLE events (
        run_id TEXT NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, type TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (run_id, seq)
    ) WITHOUT ROWID;
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY, started REAL NOT NULL, task TEXT NOT NULL, bot TEXT NOT NULL, model TEXT NOT NULL,
        status TEXT NOT NULL, turns INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX runs_by_time ON runs (started);
    """,
)
_BUSY_TIMEOUT_S = 30.0
_TASK_SHOWN = 500


class SQLiteStore:
    """Implements core.ports.RunStore. One connection, used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise StoreFailed(f"the record {path} cannot be opened: {error}", "choose another with --store") from None
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._db.close()
            raise _mapped(error, path) from None
        except StoreFailed:
            self._db.close()
            raise

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise StoreFailed(
                f"the record {self.path} was written by a newer Stockade (schema {version}, this one knows"
                f" {len(MIGRATIONS)})",
                "update Stockade, or choose another record with --store",
            )
        if version == len(MIGRATIONS):
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            for number, script in enumerate(MIGRATIONS[version:], version + 1):
                for statement in script.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={number}")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def append(self, run_id: str, events: Sequence[RunEvent]) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._append, run_id, events)

    def _append(self, run_id: str, events: Sequence[RunEvent]) -> None:
        rows = [(event.at, event.type, to_json(event)) for event in events]
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    found = self._db.execute("SELECT max(seq) FROM events WHERE run_id=?", (run_id,)).fetchone()
                    next_seq = 0 if found[0] is None else found[0] + 1
                    self._db.executemany(
                        "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
                        [(run_id, seq, *row) for seq, row in enumerate(rows, next_seq)],
                    )
                    for event in events:
                        self._index(run_id, event)
                    self._db.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise _mapped(error, self.path) from None

    def _index(self, run_id: str, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self._db.execute(
                    "INSERT INTO runs VALUES (?, ?, ?, ?, ?, 'running', 0)",
                    (run_id, event.at, event.task[:_TASK_SHOWN], event.bot, event.model),
                )
            case ModelAnswered():
                self._db.execute("UPDATE runs SET turns=? WHERE run_id=?", (event.turn, run_id))
            case RunResumed():
                self._db.execute("UPDATE runs SET status='running' WHERE run_id=?", (run_id,))
            case RunFinished():
                self._db.execute("UPDATE runs SET status=? WHERE run_id=?", (event.status, run_id))
            case _:
                pass

    async def events(self, run_id: str) -> list[RunEvent]:
        return await anyio.to_thread.run_sync(self._events, run_id)

    def _events(self, run_id: str) -> list[RunEvent]:
        rows = self._query("SELECT seq, body FROM events WHERE run_id=? ORDER BY seq", (run_id,))
        if not rows:
            raise UsageError(f"there is no run {run_id!r}", "stockade runs list")
        result: list[RunEvent] = []
        for expected, (seq, body) in enumerate(rows):
            if seq != expected:
                raise StoreFailed(f"run {run_id}: event {expected} is missing from {self.path}")
            try:
                event = from_json(str(body))
            except ValueError:
                raise StoreFailed(
                    f"run {run_id}: event {seq} in {self.path} is damaged or of a newer Stockade"
                ) from None
            if isinstance(event, RunStarted) and event.schema_version > SCHEMA_VERSION:
                raise StoreFailed(f"run {run_id} was recorded by a newer Stockade", "update Stockade")
            result.append(event)
        return result

    async def find(self, reference: str) -> str:
        return await anyio.to_thread.run_sync(self._find, reference)

    def _find(self, reference: str) -> str:
        if reference == "last":
            rows = self._query("SELECT run_id FROM runs ORDER BY started DESC, run_id DESC LIMIT 1", ())
            if not rows:
                raise UsageError("there are no runs yet", "stockade run TASK")
            return str(rows[0][0])
        rows = self._query(
            "SELECT run_id FROM runs WHERE substr(run_id, 1, ?)=? ORDER BY run_id LIMIT 6", (len(reference), reference)
        )
        names = [str(row[0]) for row in rows]
        if reference in names:
            return reference
        if not names or not reference:
            raise UsageError(f"there is no run {reference!r}", "stockade runs list")
        if len(names) > 1:
            raise UsageError(f"{reference!r} is the beginning of several runs: {', '.join(names)}")
        return names[0]

    async def runs(self) -> list[RunSummary]:
        return await anyio.to_thread.run_sync(self._runs)

    def _runs(self) -> list[RunSummary]:
        names = ("run_id", "started", "task", "bot", "model", "status", "turns")
        rows = self._query(f"SELECT {', '.join(names)} FROM runs ORDER BY started DESC, run_id DESC", ())
        return [RunSummary.model_validate(dict(zip(names, row, strict=True))) for row in rows]

    def _query(self, sql: str, values: tuple[object, ...]) -> list[tuple[object, ...]]:
        with self._lock:
            try:
                return self._db.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise _mapped(error, self.path) from None

    async def close(self) -> None:
        with self._lock:
            self._db.close()


def _mapped(error: sqlite3.Error, path: Path) -> StoreFailed:
    text = str(error)
    if "full" in text or "disk I/O" in text:
        return StoreFailed(f"the record {path} cannot be written: {text}", "make room on the disk")
    if "malformed" in text or "not a database" in text:
        return StoreFailed(f"the record {path} is damaged: {text}", "move it away, or choose another with --store")
    if "readonly" in text:
        return StoreFailed(f"the record {path} cannot be written: {text}", "choose another with --store")
    return StoreFailed(f"the record {path}: {text}")
