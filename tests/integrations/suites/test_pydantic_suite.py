"""pydantic-ai's own suite for workspaces."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import anyio
import pytest
from pydantic_ai.workspaces import WorkspaceUnavailableError
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from stockade_sandbox import Sandbox
from stockade_sandbox.integrations.pydantic_ai import StockadeBackend
from stockade_sandbox.keeping import id_of, kept


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_kept() -> Iterator[None]:
    """The suite leaves an environment of its own to its `expires_s`."""
    yield
    for base in kept():
        with Sandbox.attach(id_of(base)) as box:
            box.destroy()


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


ANOTHER = """
import sys, anyio
from pydantic_ai.workspaces import WorkspaceRef
from stockade_sandbox.integrations.pydantic_ai import StockadeBackend
async def main():
    backend = StockadeBackend(WorkspaceRef(provider="stockade", id=sys.argv[1]))
    print((await backend.read_bytes("said")).decode())
    await backend.write_bytes("answer", b"back")
anyio.run(main)
"""


async def test_another_process_reaches_it_by_its_ref_and_ends() -> None:
    made = StockadeBackend()
    await made.write_bytes("said", b"here")
    assert made.ref is not None
    done = await anyio.run_process([sys.executable, "-c", ANOTHER, made.ref.id])
    assert done.stdout == b"here\n"
    assert await made.read_bytes("answer") == b"back"
    await made.destroy()
    with pytest.raises(WorkspaceUnavailableError):
        await StockadeBackend(made.ref).working_dir()
