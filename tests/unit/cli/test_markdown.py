"""Answers drawn on a terminal: Markdown as such, all else to the character, nothing that a terminal would obey."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from stockade.cli.ui import safe
from stockade.cli.ui.console import console_on
from stockade.cli.ui.markdown import MAX_CHARS, drawn

WIDTH = 40
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def terminal(width: int = WIDTH, **how: object) -> Console:
    like = Console(force_terminal=True, width=width, color_system="standard", **how)  # type: ignore[arg-type]
    return console_on(io.StringIO(), like)


def shown(text: str) -> str:
    """Without its colours."""
    result = drawn(text, terminal())
    assert result is not None
    return _STYLE.sub("", result)


@pytest.mark.parametrize(
    "text",
    [
        "__init__.py and snake_case_names",
        "a List<String>, <b>bold</b>\n<script>\nalert(1)\n</script>",
        "&lt; and &#27;[2J",
        r"grep '\.' C:\_x",
        "src/\n  a.py\n  b/\n    c.py",
        "[1] a note\n\n[1]: http://example.org",
        "![a picture](http://example.org/x.png)",
        "<http://example.org/>",
        "*.py and *.txt\n2 * 3 * 4",
        "Setext\n===",
    ],
)
def test_what_is_no_markup_stays(text: str) -> None:
    assert shown(text) == text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("# Title\n\n- one `code`\n- **two**", "Title\n\n • one code\n • two"),
        ("```python\nx = 1\n```", "x = 1"),
        ("[here](http://example.org)", "here (http://example.org)"),
        ("a word " * 8, "a word a word a word a word a word a\nword a word a word"),
    ],
)
def test_markup_is_drawn(text: str, seen: str) -> None:
    assert shown(text) == seen


def test_a_table_fits() -> None:
    table = f"| a | b |\n|---|---|\n| 1 | {'long ' * 20} |"
    assert max(map(len, shown(table).split("\n"))) <= WIDTH
    assert "────" in shown(table).replace("━", "─")  # as rich 14 draws it


@given(st.text(alphabet=st.sampled_from("\x1b\x9b\x07\r\u202e\ud800`*_#|-> []()<&;\\!1a\n\t~"), max_size=80))
def test_nothing_hostile_is_left_and_nothing_is_too_wide(text: str) -> None:
    result = drawn(text, terminal())
    assert result is not None
    rest = _STYLE.sub("", result)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", rest)
    assert max(map(len, rest.expandtabs().split("\n"))) <= WIDTH


def test_a_link_is_none_that_a_terminal_opens() -> None:
    assert "\x1b]8" not in str(drawn("[a](http://example.org) <http://example.org>", terminal()))


def test_plain_terminals_pipes_and_books_get_it_raw(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn("**a**", Console(file=io.StringIO())) is None
    assert drawn("**a**", terminal(no_color=True)) == "\x1b[1ma\x1b[0m"
    assert drawn("a" * (MAX_CHARS + 1), terminal()) is None
    monkeypatch.setenv("TERM", "dumb")
    assert drawn("**a**", terminal()) is None


def test_what_is_secret_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe, "_SCREEN", type(safe._SCREEN)())
    safe.hide_named(["LOGIN"], ["LOGIN=brown horse 4711"])
    assert shown("**It is** brown horse 4711") == "It is [redacted: LOGIN]"
