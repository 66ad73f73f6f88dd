"""Packed bodies, whole, in pieces, broken and far too large."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.core.errors import ActionFailed
from stockade.tools.fetch import Body

TEXT = b"The kettle is filled with fresh water. " * 50


def raw(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [("gzip", gzip.compress(TEXT)), ("X-GZIP ", gzip.compress(TEXT)), ("deflate", zlib.compress(TEXT)),
     ("deflate", raw(TEXT)), ("", TEXT), ("identity", TEXT)],
    ids=["gzip", "x-gzip", "zlib", "raw deflate", "none", "identity"],
)  # fmt: skip
@pytest.mark.parametrize("size", [7, 1 << 20])
def test_unpacked_in_any_pieces(encoding: str, packed: bytes, size: int) -> None:
    body = Body(encoding, len(TEXT))
    for at in range(0, len(packed), size):
        body.feed(packed[at : at + size])
    assert bytes(body.data) == TEXT


@pytest.mark.parametrize("packed", [gzip.compress(bytes(10**7)), bytes(2000)], ids=["gzip", "none"])
def test_the_limit_holds_before_memory_is_used(packed: bytes) -> None:
    body = Body("gzip" if packed[0] else "", 1000)
    with pytest.raises(ActionFailed, match="larger than"):
        body.feed(packed)
    assert len(body.data) <= 1001


@given(st.lists(st.binary(max_size=200), max_size=5), st.sampled_from(["gzip", "deflate", "", "br", "gzip, gzip"]))
def test_rubbish_is_an_error_or_bounded(pieces: list[bytes], encoding: str) -> None:
    body = Body("", 300)
    try:
        body = Body(encoding, 300)
        for piece in pieces:
            body.feed(piece)
    except ActionFailed as error:
        assert "page is" in error.message  # noqa: PT017
    assert len(body.data) <= 301
