"""pydantic-ai's own suite for workspaces."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from stockade_sandbox.integrations.pydantic_ai import StockadeBackend


class TestStockade(WorkspaceBackendSuite):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[StockadeBackend]:
        made = StockadeBackend()
        yield made
        await made.destroy()

    @pytest.fixture
    def fresh_backend(self) -> type[StockadeBackend]:
        return StockadeBackend

    @pytest.fixture
    def attach_backend(self) -> type[StockadeBackend]:
        return StockadeBackend

    @pytest.fixture
    def destroy_environment(self) -> Callable[[StockadeBackend], Awaitable[None]]:
        return StockadeBackend.destroy

    @pytest.fixture
    def has_real_posix_shell(self) -> bool:
        return True

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"
