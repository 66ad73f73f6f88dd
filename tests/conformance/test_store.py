"""The record: every store against the suite."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stockade.core.ports import RunStore
from stockade.store.sqlite import SQLiteStore
from stockade.testing import MemoryStore
from stockade.testing.conformance.store import StoreConformance


class TestSQLite(StoreConformance):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[RunStore]:
        async with SQLiteStore(tmp_path / "runs.db") as store:
            yield store


class TestMemory(StoreConformance):
    @pytest.fixture
    def store(self) -> RunStore:
        return MemoryStore()
