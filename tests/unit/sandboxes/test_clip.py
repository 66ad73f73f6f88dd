"""Head and tail with an exact count, never a broken character."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade_sandbox.agent.clip import Clip
from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.results import Stream

STREAMS: st.SearchStrategy[Stream] = st.sampled_from(["stdout", "stderr"])


def _clipped(limit: int, pieces: list[tuple[Stream, bytes]]) -> tuple[list[tuple[str, bytes]], int]:
    clip = Clip(limit)
    for stream, data in pieces:
        clip.add(stream, data)
    chunks, dropped = clip.finish()
    return [(chunk.stream, chunk.data) for chunk in chunks], dropped


def test_short_output_is_whole_and_in_order() -> None:
    pieces: list[tuple[Stream, bytes]] = [("stdout", b"a"), ("stdout", b"b"), ("stderr", b"c"), ("stdout", b"d")]
    assert _clipped(256, pieces) == ([("stdout", b"ab"), ("stderr", b"c"), ("stdout", b"d")], 0)


def test_the_middle_goes() -> None:
    assert _clipped(10, [("stdout", b"0123456789abcdef")]) == ([("stdout", b"01234"), ("stdout", b"bcdef")], 6)


@given(st.integers(2, 300), st.lists(st.tuples(STREAMS, st.binary(max_size=90)), max_size=20))
def test_nothing_is_lost_without_being_counted(limit: int, pieces: list[tuple[Stream, bytes]]) -> None:
    chunks, dropped = _clipped(limit, pieces)
    kept = sum(len(data) for _, data in chunks)
    total = sum(len(data) for _, data in pieces)
    assert kept + dropped == total
    assert kept <= limit
    assert (dropped == 0) == (total <= limit)
    if not dropped:
        for name in ("stdout", "stderr"):
            whole = b"".join(data for stream, data in pieces if stream == name)
            assert b"".join(data for stream, data in chunks if stream == name) == whole


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200), st.integers(20, 200), st.data())
def test_text_stays_text(text: str, limit: int, data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    clip = Clip(limit)
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        clip.add("stdout", raw[start:end])
        clip.add("stderr", b"")
    chunks, _ = clip.finish()
    assert all(chunk.text is not None for chunk in chunks)


def test_a_character_cut_by_the_other_stream_is_put_together() -> None:
    chunks, _ = _clipped(256, [("stdout", b"\xe2\x82"), ("stderr", b"!"), ("stdout", b"\xac")])
    assert chunks == [("stderr", b"!"), ("stdout", "€".encode())]


def test_many_small_pieces_cost_no_more_than_the_limit() -> None:
    clip = Clip(1000)
    for i in range(100_000):
        clip.add("stdout" if i % 2 else "stderr", b"x")
    chunks, dropped = clip.finish()
    assert (sum(len(chunk.data) for chunk in chunks), dropped) == (1000, 99_000)


def test_the_whole_is_bounded_and_its_failure_is_said() -> None:
    whole = io.BytesIO()
    clip = Clip(256, whole, 5)
    clip.add("stdout", b"abc")
    clip.add("stdout", b"defg")
    assert whole.getvalue() == b"abcde"
    with open("/dev/full", "wb", buffering=0) as full:
        clip = Clip(256, full, 100)
        clip.add("stdout", b"abc")
        with pytest.raises(SandboxFailed, match="No space left"):
            clip.finish()
