"""A program taken apart."""

import pytest

from stockade.plugins.coder.program import example_lines, functions, is_empty, syntax_error


def test_example_calls_are_taken_from_definitions() -> None:
    code = (
        "import os\nX = [1]\n\n@cache\ndef f(a):\n    # twice\n    return a * 2\n\n# try it\nprint(f(1))\n"
        "for i in X:\n    print('important')\nif __name__ == '__main__':\n    f(2)\n"
        "assert f(1) == 2\nn = int(input())\n"
    )
    lines = code.splitlines()
    assert [lines[number - 1] for number in example_lines(code)] == [
        "print(f(1))", "for i in X:", "if __name__ == '__main__':", "assert f(1) == 2", "n = int(input())"
    ]  # fmt: skip


def test_conditional_definitions_stay() -> None:
    code = "try:\n    import x\nexcept ImportError:\n    x = None\nif x:\n    def f(): pass\nclass A:\n    b = 1"
    assert example_lines(code) == ()


@pytest.mark.parametrize("code", ["", "\n\n", "# nothing", "pass", '"""words"""', "...", "```python"])
def test_empty_programs_are_never_a_success(code: str) -> None:
    assert is_empty(code) or syntax_error(code) is not None


@pytest.mark.parametrize("code", ["x = 1", "print(1)", "def f(): pass"])
def test_others_are_not_empty(code: str) -> None:
    assert not is_empty(code)


@pytest.mark.parametrize("code", ["def f(:", "x = 'a", "a\x00b", "(" * 500 + ")" * 500, "x = '\\d' is 'y'"])
def test_odd_code_raises_nothing(code: str) -> None:
    example_lines(code)
    functions(code)
    syntax_error(code)


def test_functions_by_name() -> None:
    assert list(functions("def a(): pass\nasync def b(): pass\nclass C:\n    def d(self): pass")) == ["a", "b"]
