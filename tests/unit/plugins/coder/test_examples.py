"""Worked examples in a task: code alone, whatever the words around it say."""

import pytest

from stockade.plugins.coder.program import MAX_EXAMPLES, Example, find_examples, wanted

STUB = "def f(a, b=0):\n"


def pairs(task: str) -> list[tuple[str, str | None]]:
    return [(example.call, example.expected) for example in find_examples(task)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (">>> f(1)\n2", [("f(1)", "2")]),
        ('"""Doubles.\n    >>> f([1, 2])\n    [2, 4]\n    """', [("f([1, 2])", "[2, 4]")]),
        (">>> f(1) == 2", [("f(1)", "2")]),
        ("f(1) -> 2", [("f(1)", "2")]),
        ("f(1) ==> -2", [("f(1)", "-2")]),
        ("f(1) # => 'a, b'", [("f(1)", "'a, b'")]),
        ("f(1) # [1, 2]", [("f(1)", "[1, 2]")]),
        ("* f('(') -> false.", [("f('(')", "False")]),
        ("For example, `f(1, 2)` == `(3, 4)`, since three is.", [("f(1, 2)", "(3, 4)")]),
        ("f(1) ➞ None because", [("f(1)", "None")]),
        ("assert f(1) == {1: 'a'}", [("f(1)", "{1: 'a'}")]),
        ("assert f(1)\nassert not f(2)", [("f(1)", "True"), ("f(2)", "False")]),
    ],
)
def test_ways_to_say_it(line: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(f"{STUB}\n{line}") == expected


@pytest.mark.parametrize(
    "line",
    ["f(1) == 1 + 2", "f(1) -> 19 - 5 = 14", "f(1) calls g(2)", "f(x) -> 2", "len(a) == 3", "f(1) -> a list", "f(1",
     "print(1) # 2", "other(1) -> 2", ">>> f(1", "assert f(1) == g(2)", "f(1) and then 5", 'f(["a", "b"]) == ""aaa"',
     "f(1) # returns [1, 2]", "f('(') should return false", "`f(1, 2)` returns `(3, 4)`", "f(1) is 2", "f(1): 2",
     "  Input: 3\n  Output: (1, 2)", 'For a = "x", b = 2 the result should be 7', "f(1) gibt 2 zurück"],
)  # fmt: skip
def test_what_is_unclear_is_left_out(line: str) -> None:
    assert pairs(f"{STUB}\n{line}") == []


def test_a_task_without_a_name_takes_any_call() -> None:
    assert pairs("Write a function. double(4) == 8") == [("double(4)", "8")]


def test_statements_before_a_call_and_exceptions() -> None:
    task = ">>> x = [1]\n>>> f(x)\n1\n>>> f(0)\nTraceback (most recent call last):\n...\nValueError: no\n"
    assert find_examples(task) == (
        Example(call="f(x)", expected="1", source="x = [1]"),
        Example(call="f(0)", raises="ValueError", source="x = [1]"),
    )


def test_each_call_once_and_not_too_many() -> None:
    assert len(find_examples("f(1) -> 2\n" * 3)) == 1
    assert len(find_examples("\n".join(f"f({n}) -> {n}" for n in range(100)))) == MAX_EXAMPLES


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "f(" * 20_000,
        "def f(\n" * 20_000,
        "def f()->\n" * 20_000,
        ">>> " * 20_000,
        "f('\\d') -> 5 is 6",
        "\x00f(1) -> 2",
    ],
)
def test_hostile_tasks_end(text: str) -> None:
    find_examples(text)
    wanted(text)


def test_doctests_in_a_fence_whose_docstring_ends_behind_them() -> None:
    stub = 'def top(xs):\n    """ Largest.\n    >>> top([1, 2])\n    2\n    """'
    task = f"Complete this:\n\n```python\n{stub}\n```\nThank you."
    assert find_examples(task) == (Example(call="top([1, 2])", expected="2"),)
