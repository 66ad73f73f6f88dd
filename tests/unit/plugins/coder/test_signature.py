"""The signature that a task asks for, and programs made to have it."""

import pytest

from stockade.plugins.coder.program import Example, Signature, conform, wanted


def test_a_stub_says_it() -> None:
    found = wanted('Complete:\n\n  def f(a: int,\n        b: str = ":") -> dict[str, int]:\n    """x"""')
    assert found is not None
    assert (found.name, found.least, found.most) == ("f", 1, 2)
    assert found.text == 'def f(a: int, b: str = ":") -> dict[str, int]'


def test_the_stub_that_the_examples_call() -> None:
    task = "def helper(x):\n    return x\n\ndef main_one(y, z):\n    ...\n\ndef other():\n    ..."
    found = wanted(task, [Example(call="sorted(main_one(1, 2))", expected="[]")])
    assert found is not None
    assert found.name == "main_one"
    last = wanted(task)
    assert last is not None
    assert last.name == "other"


def test_an_example_says_it() -> None:
    assert wanted("Count.", [Example(call='count("a,b", n=2)', expected="1")]) == Signature(
        name="count", text="def count(a1: str, n)", least=2, most=2
    )


@pytest.mark.parametrize("task", ["", "Write something.", "def f(a", "def f(a))):"])
def test_nothing_is_said(task: str) -> None:
    assert wanted(task) is None


WANTED = Signature(name="add_two", text="def add_two(a, b)", least=2, most=2)


@pytest.mark.parametrize(
    "code",
    ["def add_two(a, b): return a", "def add_two(a, b, c=1): return a", "def add_two(*all): return all"],
)
def test_what_fits_is_left_alone(code: str) -> None:
    assert conform(code, WANTED) == (code, None)


@pytest.mark.parametrize("name", ["addTwo", "sum_of_both"])
def test_another_name_is_mended(name: str) -> None:
    code, problem = conform(f"def {name}(x, y):\n    return x + y\n", WANTED)
    space: dict[str, object] = {}
    exec(code, space)
    assert problem is None
    assert eval("add_two(1, 2)", space) == 3


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def add_two(a): return a", "other parameters"),
        ("x = 1", "missing"),
        ("def a(x, y): ...\ndef b(x, y): ...", "missing"),
        ("def broken(", "missing"),
    ],
)
def test_what_cannot_be_mended_is_told(code: str, words: str) -> None:
    same, problem = conform(code, WANTED)
    assert same == code
    assert problem is not None
    assert words in problem
    assert "def add_two(a, b)" in problem
