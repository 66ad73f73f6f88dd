from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.models.sse import SseParser


def read(*chunks: bytes) -> list[str]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.close()


STREAM = (
    b': ping\r\ndata: {"a":\r\ndata:  1}\r\n\r\nevent: x\nid: 3\ndata:two\n\n\n\ndata: \xc3\xa9\r\rdata\n\ndata: [DONE]'
)
EVENTS = ['{"a":\n 1}', "two", "é", "", "[DONE]"]


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
    parser = SseParser(max_event_bytes=100)
    assert parser.feed(b": " + b"c" * 80 + b"\n" + b"data: x\n\n") == ["x"]
    with pytest.raises(ValueError, match="more than 100 bytes"):
        parser.feed(b"data: 123456789\n" * 20)


@given(st.binary(max_size=300))
def test_random_bytes_never_break_it(noise: bytes) -> None:
    read(noise, noise)
