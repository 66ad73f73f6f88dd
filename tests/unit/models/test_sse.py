from collections.abc import AsyncIterator
from itertools import pairwise

import anyio
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.core.errors import ModelUnavailable
from stockade.models.http import MAX_EVENT_BYTES, Response


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, pieces: tuple[bytes, ...]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def read(*chunks: bytes) -> list[str]:
    async def events() -> list[str]:
        answer = httpx2.Response(200, stream=Pieces(chunks), request=httpx2.Request("GET", "http://x"))
        return [data async for data in Response(answer, "box:1").events(lambda: None)]

    return anyio.run(events)


STREAM = (
    b': ping\r\ndata: {"a":\r\ndata:  1}\r\n\r\nevent: x\nid: 3\ndata:two\n\n\n\ndata: \xc3\xa9\r\rdata\n\ndata: [DONE]'
)
EVENTS = ['{"a":\n 1}', "two", "é", "[DONE]"]


def test_the_whole_grammar() -> None:
    assert read(STREAM) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_any_split_gives_the_same(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in pairwise(edges))) == EVENTS


def test_byte_by_byte() -> None:
    assert read(*(STREAM[i : i + 1] for i in range(len(STREAM)))) == EVENTS


def test_byte_order_mark_and_bad_utf8() -> None:
    assert read(b"\xef\xbb\xbfdata: a\n\ndata: \xff\n\n") == ["a", "�"]


def test_nothing_is_no_event() -> None:
    assert read(b"") == []
    assert read(b"\n\n: only a comment\n\n") == []


def test_an_event_is_bounded() -> None:
    mebi = b"c" * (1 << 20)
    assert read(*[b": " + mebi + b"\n"] * 20, b"data: x\n\n") == ["x"]
    with pytest.raises(ModelUnavailable, match=f"more than {MAX_EVENT_BYTES} bytes"):
        read(*[b"data: " + mebi + b"\n"] * 20)
    with pytest.raises(ModelUnavailable, match=f"more than {MAX_EVENT_BYTES} bytes"):
        read(b"data: ", *[mebi] * 20)


@given(st.binary(max_size=300))
def test_random_bytes_never_break_it(noise: bytes) -> None:
    read(noise, noise)
