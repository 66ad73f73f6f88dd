"""Words by what they are: of hostile programs too, for which a lexer would take for ever."""

import pytest

from stockade.highlighting import MAX_CHARS, highlighted
from stockade.server.colouring import coloured

FOR_EVER = '"' + "\\" * 4000
"""Pygments' lexers of fish, factor and others take a time that doubles with every character."""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("language", ["fish", "x.fish", "factor"])
def test_no_text_holds_it_up(language: str) -> None:
    assert highlighted([("python", "x = 1"), (language, FOR_EVER), ("python", "y = 2")])[1:] == [None, None]


def test_each_text_by_the_name_of_its_file_or_language() -> None:
    texts = [("a.py", "def f():\n    return 'é'\n"), ("sql", "select 1"), ("/workspace/none", "x"), ("", "x"),
             ("x.py", "1" * (MAX_CHARS + 1))]  # fmt: skip
    found = highlighted(texts)
    assert [pieces and "".join(text for _, text in pieces) for pieces in found[:2]] == [text for _, text in texts[:2]]
    assert ("Keyword", "def") in (found[0] or ())
    assert found[2:] == [None, None, None]


@pytest.mark.parametrize("text", ["x = 1\ry = 2\nz = 3\n", "\ufeffx = 1\n", "x\r\n"])
def test_what_a_lexer_would_change_is_left_as_it_is(text: str) -> None:
    """A page that shows the pieces in place of the lines would hide some."""
    assert highlighted([("a.py", text)]) == [None]


def test_nothing_asked_is_nothing_found() -> None:
    assert highlighted([]) == []


@pytest.mark.timeout(60)
def test_a_hostile_file_takes_the_colours_of_no_other_before_it() -> None:
    good = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n # one\n-x = 1\n+x = 'two'\n"
    lines, none = coloured([("a.py", good), ("a.fish", f"@@ -0,0 +1 @@\n+{FOR_EVER}\n")])
    assert none is None
    assert lines is not None
    assert len(lines) == 6
    assert lines[:3] == ((), (), ())
    assert lines[3] == (("c", "# one"),)
    assert ("n", "1") in lines[4]
    assert "".join(text for name, text in lines[5] if name == "s") == "'two'"
