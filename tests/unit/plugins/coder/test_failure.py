"""Real failures of real programs, in few words."""

import subprocess
import sys
from pathlib import Path

import pytest

from stockade.plugins.coder.program import syntax_error
from stockade.plugins.coder.work import (
    MAX_WORDS_CHARS,
    FailedCheck,
    Failure,
    checks_in_words,
    of_syntax,
    of_timeout,
    of_traceback,
)


def fail(code: str, folder: Path) -> Failure | None:
    """What is made of the traceback that Python itself writes."""
    (folder / "main.py").write_text(code)
    done = subprocess.run([sys.executable, "main.py"], cwd=folder, capture_output=True, text=True, check=False)
    return of_traceback(done.stderr, code)


def test_the_last_line_of_the_programs_own(tmp_path: Path) -> None:
    code = "import json\n\ndef load(text):\n    return json.loads(text)\n\nload('{')\n"
    failure = fail(code, tmp_path)
    assert failure is not None
    assert (failure.kind, failure.line, failure.function) == ("JSONDecodeError", 4, "load")
    assert failure.words() == (
        "The program failed in line 4, in load: `return json.loads(text)`. JSONDecodeError: Expecting property name"
        " enclosed in double quotes: line 1 column 2 (char 1)"
    )


@pytest.mark.parametrize(
    ("code", "kind", "line"),
    [
        ("x = 1\nprint(y)\n", "NameError", 2),
        ("def f(): return f()\nf()\n", "RecursionError", 1),
        ("try:\n    1/0\nexcept ZeroDivisionError:\n    raise ValueError('after')\n", "ValueError", 4),
        ("import nothing_of_that_name\n", "ModuleNotFoundError", 1),
        ("assert 1 == 2, 'not\\nequal'\n", "AssertionError", 1),
        ("class Odd(Exception): pass\nraise Odd('x')\n", "Odd", 2),
        ("def f(:\n", "SyntaxError", 1),
        ("raise SystemExit('gone')\n", None, None),
    ],
)
def test_kinds(code: str, kind: str | None, line: int | None, tmp_path: Path) -> None:
    failure = fail(code, tmp_path)
    if kind is None:
        assert failure is None
        return
    assert failure is not None
    assert failure.line == line
    assert failure.kind == kind


def test_words_are_bounded(tmp_path: Path) -> None:
    failure = fail(f"raise ValueError('{'x' * 100_000}')\n", tmp_path)
    assert failure is not None
    assert len(failure.words()) <= MAX_WORDS_CHARS


def test_syntax() -> None:
    code = "a = 1\nif a\n    pass\n"
    error = syntax_error(code)
    assert error is not None
    assert "line 2" in of_syntax(error, code).words()
    assert "`if a`" in of_syntax(error, code).words()


def test_a_time_out_says_where_it_was(tmp_path: Path) -> None:
    code = "import faulthandler as h\nh.dump_traceback_later(0.2, exit=True)\ndef f():\n    while True: pass\nf()\n"
    (tmp_path / "main.py").write_text(code)
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    words = of_timeout(5, done.stderr, code).words()
    assert "never ends" in words
    assert "in f" in words
    assert of_timeout(5, "", code).line is None


def test_checks() -> None:
    failed = [FailedCheck(call=f"f({n})", expected=repr("a" * 500), got="2") for n in range(5)]
    words = checks_in_words(failed, 3)
    assert words.startswith("5 of 8 checks failed.\nf(0) gave 2, but it should give 'aaa")
    assert len(words) <= MAX_WORDS_CHARS


@pytest.mark.parametrize("text", ["", "words", "Traceback (most recent call last):", "\x00", 'File "main.py", line 9'])
def test_odd_text(text: str) -> None:
    of_traceback(text, "x")
