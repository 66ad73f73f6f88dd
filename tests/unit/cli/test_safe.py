"""No character that a terminal obeys gets through."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.cli.ui.safe import one_line, safe_text


@given(st.text(st.characters(codec=None)))
def test_nothing_that_moves_a_terminal_is_left(text: str) -> None:
    for char in safe_text(text):
        assert char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp"), hex(ord(char))
        assert unicodedata.bidirectional(char) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf", "Zl", "Zp", "Mn", "Lo", "Cn"))))
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
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(hostile: str, shown: str) -> None:
    assert safe_text(hostile) == shown


def test_one_line_is_one_line_of_bounded_length() -> None:
    assert one_line("a\n b\r\nc") == "a b c"
    assert len(one_line("x" * 5000, 80)) == 80
