"""The record in one SQLite file."""

from pathlib import Path

from stockade.store.lease import BEAT_S
from stockade.store.record import SQLRecord
from stockade.store.sqlite_file import SQLiteDatabase, large_outputs

__all__ = ["SQLiteDatabase", "SQLiteStore", "large_outputs"]


class SQLiteStore(SQLRecord):
    """Implements core.ports.RunStore. StoreFailed when the file cannot be opened, is damaged or of a newer version.

    One that this process may not write can be read; what is appended to it is a StoreFailed.
    """

    def __init__(self, path: Path, beat_s: float = BEAT_S) -> None:
        self.path = path
        super().__init__(SQLiteDatabase(path), beat_s)
