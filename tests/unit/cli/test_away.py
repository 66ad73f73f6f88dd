"""What a detached run takes from whoever is attached (cli/away.py)."""

from pathlib import Path
from typing import Any

import pytest

from stockade.cli.away import Away, _Question


@pytest.fixture
def asked(tmp_path: Path) -> tuple[Away, _Question]:
    away, question = Away(tmp_path / "log", lambda _: None), _Question(2, "Allow it? ")
    away._open.append(question)
    return away, question


def test_a_line_answers_the_question_that_it_was_typed_at_and_no_other(asked: tuple[Away, _Question]) -> None:
    away, question = asked
    for late in (1, 3):
        away._take({"line": "y", "to": late})
        assert (question.line, question.news.is_set()) == (None, False)
    away._take({"line": "n ", "to": 2})
    away._take({"line": "y", "to": 2})
    assert (question.line, question.news.is_set()) == ("n", True)


@pytest.mark.parametrize("said", [[], 1, None, {}, {"line": 5, "to": 2}, {"line": "y"}, {"interrupt": False}])
def test_what_is_no_message_answers_nothing(asked: tuple[Away, _Question], said: Any) -> None:
    away, question = asked
    with pytest.raises(ValueError, match="no message of ours"):
        away._take(said)
    assert question.line is None
