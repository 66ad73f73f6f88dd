"""No character that a terminal obeys gets through."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.cli.ui.safe import TerminalBytes, fit_for_terminal, one_line, safe_text


@given(st.text(st.characters(codec=None)))
def test_nothing_that_moves_a_terminal_is_left(text: str) -> None:
    for char in safe_text(text):
        assert char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp"), hex(ord(char))
        assert char not in "\ufe00\ufe03\U000e0100\u115f\u3164"
        assert unicodedata.bidirectional(char) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@given(st.lists(st.binary(max_size=4) | st.sampled_from([b"\r", b"\r\n", b"\xc3", b"\xa9", "\u0301".encode() * 3])))
def test_in_pieces_it_is_the_same_as_in_one(pieces: list[bytes]) -> None:
    whole, parts = TerminalBytes(), TerminalBytes()
    shown = b"".join(map(parts.fit, pieces)) + parts.fit(b"", final=True)
    once = whole.fit(b"".join(pieces), final=True)
    assert re.sub(rb"(\\x0d)+\n", b"\n", shown) == once


@given(st.text(st.characters(codec=None)))
def test_what_is_fit_stays_as_it_is(text: str) -> None:
    fit = fit_for_terminal(text)
    assert fit_for_terminal(fit) == fit


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf", "Zl", "Zp", "Mn", "Me", "Lo", "Cn"))))
def test_ordinary_text_stays(text: str) -> None:
    assert safe_text(text) == text


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("real\rfake", "real\\x0dfake"),
        ("line\r\nline", "line\nline"),
        ("a\x08b", "a\\x08b"),
        ("gpj.\u202eexe", "gpj.\\u202eexe"),
        ("pay\u200bpal", "pay\\u200bpal"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("\udcff", "\\udcff"),
        ("tab\tstays", "tab\tstays"),
        ("\u26a0\ufe0f stays", "\u26a0\ufe0f stays"),
        ("a\ufe0f", "a\\ufe0f"),
        ("\u26a0\ufe0f\ufe0f", "\u26a0\ufe0f\\ufe0f"),
        ("\u26a0\ufe00\U000e01ef", "\u26a0\\ufe00\\U000e01ef"),
        ("e" + "\u0301" * 4, "e" + "\u0301" * 4),
        ("e" + "\u0301" * 6, "e" + "\u0301" * 4 + "\\u0301" * 2),
        ("\u0e01\u0e34\u0e48 " * 3, "\u0e01\u0e34\u0e48 " * 3),
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(hostile: str, shown: str) -> None:
    assert safe_text(hostile) == shown


def test_one_line_is_one_line_of_bounded_length() -> None:
    assert one_line("a\n b\r\nc") == "a b c"
    assert len(one_line("x" * 5000, 80)) == 80
