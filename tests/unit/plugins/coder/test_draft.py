"""Reading a programmer's answer. PC-8, PC-20 and the parser's known defects (systems.md 001.2), each by its name."""

import pytest

from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import ModelAnswer
from stockade.plugins.coder.answers import Draft, read, without_own_import

CODE = "def add(a, b):\n    return a + b"


def draft(content: str) -> Draft:
    return read(ModelAnswer(content=content))


def sections(requirements: str = "none", code: str = CODE, example: str = "print(add(1, 2))") -> str:
    return f"### Requirements\n{requirements}\n### Code\n```python\n{code}\n```\n### Example\n```python\n{example}\n```"


def test_the_three_sections() -> None:
    assert draft(sections("numpy\npandas")) == Draft(
        requirements=("numpy", "pandas"), code=CODE, example="print(add(1, 2))"
    )


@pytest.mark.parametrize("content", ["", "   \n", "I cannot do that.", "The program:", "none", "```python\n```",
                                     "### Code\n", "### Code\n```python\n# nothing yet\n```", "### Code\npass",
                                     '```python\n"""Only words."""\n```', "42", "answer"])  # fmt: skip
def test_an_answer_without_a_program_is_never_a_success(content: str) -> None:
    """PyCapsule wrote an empty main.py, ran it, and reported success."""
    with pytest.raises(UnreadableAnswer):
        draft(content)


def test_the_last_library_is_not_lost_without_a_blank_line() -> None:
    assert draft(f"### Requirements\nnumpy\npandas\n### Code\n{CODE}").requirements == ("numpy", "pandas")


def test_an_example_that_speaks_of_import_is_kept() -> None:
    assert draft(sections(example="print('important')")).example == "print('important')"


@pytest.mark.parametrize("language", ["python", "py", "python3", "Python", ""])
def test_every_name_of_python_on_a_fence(language: str) -> None:
    assert draft(f"### Code\n```{language}\n{CODE}\n```").code == CODE


def test_the_misspelt_heading_of_pycapsule_s_own_prompt() -> None:
    assert draft(f"### Requiements\nnumpy\n### Code\n{CODE}").requirements == ("numpy",)


@pytest.mark.parametrize("heading", ["Answer", "Corrected Code", "Solution", "**Code**", "code:"])
def test_other_headings_of_the_code(heading: str) -> None:
    assert draft(f"### {heading}\n```python\n{CODE}\n```").code == CODE


def test_plain_fences_without_headings() -> None:
    assert draft(f"Here it is:\n```python\n{CODE}\n```\nUse it so:\n```python\nprint(add(1, 2))\n```") == Draft(
        code=CODE, example="print(add(1, 2))"
    )


def test_of_two_programs_the_first_with_a_definition_counts() -> None:
    shown = draft(f"```bash\npip install numpy\n```\n```python\nprint('hi')\n```\n```python\n{CODE}\n```")
    assert (shown.code, shown.example) == (CODE, "")


def test_a_program_without_any_fence() -> None:
    assert draft(f"{CODE}\n\nprint(add(1, 2))\n").code == f"{CODE}\n\nprint(add(1, 2))"


def test_a_fence_that_is_never_closed() -> None:
    assert draft(f"### Code\n```python\n{CODE}\n").code.strip() == CODE


def test_what_a_program_prints_is_no_part_of_it() -> None:
    """Seen of Qwen2.5-Coder 1.5B."""
    assert draft(sections(example="Region  Sum\nA      100")) == Draft(code=CODE)
    beside = f"### Code\n```python\n{CODE}\n```\nIt prints:\n```\nRegion  Sum\nA      100\n```"
    assert draft(beside) == Draft(code=CODE)


def test_the_prompt_given_back_as_requirements() -> None:
    """Seen of Qwen2.5-Coder 1.5B."""
    assert draft(sections("libraries from PyPI that the code needs, one a line, or none")).requirements == ()
    assert draft(sections("`pandas`")).requirements == ("pandas",)


def test_windows_line_ends() -> None:
    assert draft(sections().replace("\n", "\r\n")).code == CODE


def test_an_answer_that_was_cut_off() -> None:
    with pytest.raises(UnreadableAnswer, match="cut off"):
        read(ModelAnswer(content=sections().rstrip().removesuffix("```"), finish_reason="length"))
    with pytest.raises(UnreadableAnswer, match="cut off"):
        read(ModelAnswer(content="### Plan\nFirst we", finish_reason="length"))


def test_an_answer_that_was_cut_off_behind_its_program() -> None:
    text = f"### Plan\nAdd them.\n### Code\n```python\n{CODE}\n```\n### Explanation\nThe functi"
    assert read(ModelAnswer(content=text, finish_reason="length")).code == CODE
    with pytest.raises(UnreadableAnswer, match="cut off"):
        read(ModelAnswer(content=f"{text}\n```python\nprint(", finish_reason="length"))


def test_thinking_aloud_is_passed_over() -> None:
    assert draft(f"<think>\n```python\nwrong()\n```\n</think>\n{sections()}").code == CODE


def test_an_example_that_imports_the_program_as_a_file() -> None:
    assert without_own_import("from main import add\nimport sys\n\nprint(add(1, 2), sys.path)", CODE) == (
        "import sys\n\nprint(add(1, 2), sys.path)"
    )
    assert (
        draft(sections(example="from my_module import (\n    add,\n)\nprint(add(1, 2))")).example == "print(add(1, 2))"
    )
    assert without_own_import("from os import path\nprint(path)", CODE) == "from os import path\nprint(path)"


@pytest.mark.parametrize(
    "evil", ["--index-url http://evil", "git+https://evil/x", "numpy; rm -rf /", "../x", "$(id)", "-r /etc/passwd"]
)
def test_a_requirement_is_a_name_and_nothing_else(evil: str) -> None:
    assert draft(sections(f"numpy\n{evil}")).requirements == ("numpy",)
    assert not any(char in "".join(draft(sections(evil)).requirements) for char in "-/;$:")


def test_hostile_lengths_come_back_at_once() -> None:
    with pytest.raises(UnreadableAnswer):
        draft("```" * 100_000)
    with pytest.raises(UnreadableAnswer):
        draft("### Code\n" * 50_000)
    with pytest.raises(UnreadableAnswer):
        draft("(" * 100_000)
