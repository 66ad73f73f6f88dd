"""The record: every store against the suite."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stockade.core.ports import RunStore
from stockade.store.postgres import PostgresStore
from stockade.store.sqlite import SQLiteStore
from stockade.testing import MemoryStore
from stockade.testing.conformance.store import StoreConformance
from tests.support.postgres import Server


class TestSQLite(StoreConformance):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[RunStore]:
        async with SQLiteStore(tmp_path / "runs.db") as store:
            yield store


class TestPostgres(StoreConformance):
    @pytest.fixture
    async def store(self, postgres: Server) -> AsyncIterator[RunStore]:
        async with PostgresStore(postgres.new_database()) as store:
            yield store


class TestMemory(StoreConformance):
    @pytest.fixture
    def store(self) -> RunStore:
        return MemoryStore()
