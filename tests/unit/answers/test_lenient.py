"""What small models write, and what hostile ones do."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.answers.lenient import first_value
from stockade.core.errors import UnreadableAnswer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": "x"}\n```', {"a": "x"}),
        ('Sure! Here it is: {"a": [1, 2,], } and more {"b": 2}', {"a": [1, 2]}),
        ('{"a": {"b": 1}', {"a": {"b": 1}}),
        ('{"a": [1, 2}', {"a": [1, 2]}),
        ('{"a": "two\nlines"}', {"a": "two\nlines"}),
        ("{'a': 'it\\'s', b: True, c: None}", {"a": "it's", "b": True, "c": None}),
        ('{"a": "\\u00e9 \\ud83d\\ude00"}', {"a": "é 😀"}),
        ('{"a": "\\u00e9 \\ud83d\\ude00 \\.",}', {"a": "é 😀 \\."}),
        ('{"a": 1, "a": 1}', {"a": 1}),
        ('{"a": "grep \\. x \\d"}', {"a": "grep \\. x \\d"}),
        ('{"a": -1.5e3}', {"a": -1500.0}),
        ("{", {}),
        ('{"a"', {}),
        ('{"a":', {}),
    ],
)
def test_reads(text: str, value: Any) -> None:
    assert first_value(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no object here",
        '{"a": "\\ud800x"}',
        '{"a": "\\ud800\\u0041",}',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": 1, "a": 2}',
        '{"a": "\\u+123"}',
        '{"command": "rm -rf /tmp/x',
        '{"a" 1}',
        "{" * 100_000,
        '{"a": nonsense}',
        '{"a": "\\u12"}',
        '{"a": "grep \\d \\bword"}',
        '{"a": "a.txt\\ndata\\data.csv"}',
        '{"a":, 1}',
        '{"a": "x", {',
    ],
)
def test_unreadable_is_an_error(text: str) -> None:
    with pytest.raises(UnreadableAnswer):
        first_value(text)


def test_who_writes_a_backslash_as_itself_is_asked_what_the_others_mean() -> None:
    """On 3a7bdc0 a backspace was searched for."""
    with pytest.raises(UnreadableAnswer, match=r"\\d is no escape of JSON"):
        first_value('{"a": "grep \\d \\bword"}')


def test_a_huge_answer_is_refused() -> None:
    with pytest.raises(UnreadableAnswer, match="too long"):
        first_value("{" + " " * 5_000_000)


@given(st.dictionaries(st.text(), JSON))
def test_proper_json_reads_as_json_does(value: dict[str, Any]) -> None:
    assert first_value(json.dumps(value)) == json.loads(json.dumps(value))


@given(st.text())
def test_any_text_reads_or_is_unreadable(text: str) -> None:
    with contextlib.suppress(UnreadableAnswer):
        first_value("{" + text)
