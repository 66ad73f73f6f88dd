"""What of a word only the shell knows."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.approval.parts import _is_changed_later

SLOW = re.compile(r"(?<!\\)(?:[*?\[]|\{[^}]*(?:,|\.\.)|(?:^|[:=])~)")
"""The same in one pattern, which takes time by the square of a length."""


@given(st.text(alphabet="{},.\\*?[~:=a", max_size=12))
def test_it_says_what_one_pattern_says(text: str) -> None:
    assert _is_changed_later(text) == (SLOW.search(text) is not None)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", ["{", "}", "{a", "{.", "\\{"])
def test_a_long_word_is_read_in_time(unit: str) -> None:
    assert not _is_changed_later(unit * 200_000)
