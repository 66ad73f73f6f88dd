"""Each test of a folder's fixture `open_again` on both databases."""

from pathlib import Path
from typing import Protocol

import pytest

from stockade.store.lease import BEAT_S
from stockade.store.postgres import PostgresStore
from stockade.store.record import SQLRecord
from stockade.store.sqlite import SQLiteStore


class OpenAgain(Protocol):
    """Another connection to the one record of this test."""

    def __call__(self, beat_s: float = BEAT_S) -> SQLRecord: ...


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What --store would be given: a record that does not exist yet."""
    if request.param == "sqlite":
        return str(tmp_path / "runs.db")
    return str(request.getfixturevalue("postgres").new_database())


@pytest.fixture
def open_again(where: str) -> OpenAgain:
    def opened(beat_s: float = BEAT_S) -> SQLRecord:
        return PostgresStore(where, beat_s) if where.startswith("postgresql:") else SQLiteStore(Path(where), beat_s)

    return opened
