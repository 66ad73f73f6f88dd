"""Packed bodies: whole in any pieces, and a far too large one."""

import gzip
import tracemalloc
from collections.abc import AsyncIterator

import httpx2
import pytest

from stockade.core.errors import ActionFailed
from stockade.tools.fetch import unpacked
from stockade_sandbox.policy import MIB

pytestmark = pytest.mark.anyio
TEXT = b"The kettle is filled with fresh water. " * 50


def response(encoding: str, packed: bytes, size: int = 64 << 10) -> httpx2.Response:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(packed), size):
            yield packed[at : at + size]

    headers = {"content-encoding": encoding} if encoding else {}
    return httpx2.Response(200, headers=headers, content=pieces())


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [("gzip", gzip.compress(TEXT, mtime=0)), ("", TEXT)],
    ids=["gzip", "none"],
)
@pytest.mark.parametrize("size", [7, 1 << 20])
async def test_unpacked_in_any_pieces(encoding: str, packed: bytes, size: int) -> None:
    assert await unpacked(response(encoding, packed, size), len(TEXT)) == TEXT
    with pytest.raises(ActionFailed, match="larger than"):
        await unpacked(response(encoding, packed, size), len(TEXT) - 1)


async def test_the_limit_holds_before_memory_is_used() -> None:
    bomb = response("gzip", gzip.compress(bytes(100 * MIB), mtime=0))
    tracemalloc.start()
    try:
        with pytest.raises(ActionFailed, match="larger than 1 MiB"):
            await unpacked(bomb, MIB)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()
