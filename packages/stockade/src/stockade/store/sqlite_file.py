"""The one SQLite file that a record is in; large outputs beside it.

A WAL with synchronous=FULL, so that a commit is on disk when it returns; with NORMAL for those that need not be
durable: they are written to the log in order, and synced with the next that is.
"""

import contextlib
import errno
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from stockade.core.errors import StoreFailed
from stockade.store.blobs import BlobFolder, Large
from stockade.store.database import Values, outstanding

_BUSY_TIMEOUT_S = 30.0
_MODE_PAUSE_S = 0.005


def large_outputs(path: Path) -> Path:
    """The folder beside a record that its large outputs are in."""
    return path.with_name(f"{path.name}.large")


class SQLiteDatabase:
    """Implements store.database.Database."""

    errors = (sqlite3.Error, OSError)
    now = "((julianday('now') - 2440587.5) * 86400.0)"
    locking = ""  # BEGIN IMMEDIATE has locked everything
    matching = "said.number IN (SELECT rowid FROM words WHERE words MATCH ?)"
    at_once = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = str(path)
        self._blobs = BlobFolder(large_outputs(path))
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._copy = None if _is_writable(path) else _copied(path)
            if self._copy is None:  # a new one is its owner's alone, whatever folder it lies in
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            opened = path if self._copy is None else Path(self._copy.name, "record")
            self._db = sqlite3.connect(opened, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise StoreFailed(f"the record {path} cannot be opened: {error}", "choose another with --store") from None
        try:
            self._prepare()
            if self._copy is not None:
                self._db.execute("PRAGMA query_only=ON")
        except self.errors as error:
            self.close()
            raise self.mapped(error) from None
        except StoreFailed:
            self.close()
            raise

    def phrase(self, words: str) -> str:
        escaped = words.replace('"', '""')
        return f'"{escaped}"*'

    def _prepare(self) -> None:
        self._write_ahead()
        self._set_durable(True)
        if not outstanding(self._version(), "sqlite", self.place):
            return
        self.begin()
        try:
            for number, statements in outstanding(self._version(), "sqlite", self.place):
                for statement in statements:
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={number}")
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def _write_ahead(self) -> None:
        """SQLite does not wait for this change of mode if another is just then making the file."""
        give_up = time.monotonic() + _BUSY_TIMEOUT_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                    raise
                time.sleep(_MODE_PAUSE_S)

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def execute(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        return self._db.execute(sql, tuple(values)).fetchall()

    def execute_many(self, sql: str, rows: Iterable[Values]) -> None:
        self._db.executemany(sql, rows)

    def begin(self, *, durable: bool = True) -> None:
        if durable is not self._durable:
            self._set_durable(durable)
        self._db.execute("BEGIN IMMEDIATE")

    def _set_durable(self, durable: bool) -> None:
        """Not by `execute`, which keeps statements: SQLite carries this one out while it is made ready."""
        self._db.executescript(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        self._durable = durable

    def commit(self) -> None:
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        if self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")

    def save(self, large: Iterable[Large]) -> None:
        self._blobs.save(large)

    def load(self, sha256: str) -> bytes | None:
        return self._blobs.load(sha256)

    def keep(self, named: Callable[[], Collection[str]]) -> None:
        self._blobs.keep(named())  # BEGIN IMMEDIATE keeps all others out

    def try_again(self, error: BaseException) -> bool:
        return False

    def mapped(self, error: BaseException) -> StoreFailed:
        text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or "full" in text or "disk I/O" in text:
            return StoreFailed(f"the record {self.place} cannot be written: {text}", "make room on the disk")
        if "malformed" in text or "not a database" in text:
            return StoreFailed(
                f"the record {self.place} is damaged: {text}",
                f"sqlite3 {self.place} .recover saves what is readable (docs/store.md); or choose another with --store",
            )
        if "readonly" in text:
            return StoreFailed(f"the record {self.place} cannot be written: {text}", "choose another with --store")
        return StoreFailed(f"the record {self.place}: {text}")

    def close(self) -> None:
        self._db.close()
        if self._copy is not None:
            self._copy.cleanup()


def _is_writable(path: Path) -> bool:
    """Whether it can be written, or made. One that cannot is read from a copy."""
    return not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def _copied(path: Path) -> "tempfile.TemporaryDirectory[str]":
    """With `record` in it: SQLite writes beside a log that is not all in the file, and we bring old ones up to date."""
    folder = tempfile.TemporaryDirectory(prefix="stockade-record-")
    for end in ("-wal", ""):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(f"{path}{end}", f"{folder.name}/record{end}")
    return folder
