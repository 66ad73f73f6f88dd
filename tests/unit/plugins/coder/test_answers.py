"""Code sections. Each defect of the parser they come from (PyCapsule) is a case here."""

import pytest

from stockade.core.actions import Action, Answer, Finish, ReadFile, Shell, Step, WriteFile
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import ModelAnswer
from stockade.plugins.coder.answers import SectionAnswers, find_sections, libraries

TOOLS = ("shell", "read_file", "write_file", "edit_file", "finish")
PROTOCOL = SectionAnswers()


def read(content: str, tools: tuple[str, ...] = TOOLS) -> Answer:
    return PROTOCOL.read(ModelAnswer(content=content), tools)


def program(content: str) -> tuple[str, str]:
    """What is written to main.py, and the command that runs it."""
    written, run = (step.action for step in read(content).steps)
    assert isinstance(written, WriteFile)
    assert isinstance(run, Shell)
    assert written.path == "main.py"
    return written.content, run.command


WHOLE = (
    "Here it is.\n### Requirements\nnumpy\npandas\n### Code\n```python\nx = 1\n### Code\n```\n"
    "### Example\n```py\nprint('important', x)\n```\n"
)


def test_a_program_is_written_and_run_with_its_last_library_and_its_example() -> None:
    assert program(WHOLE) == (
        "x = 1\n### Code\n\n\n# Example\nprint('important', x)\n",
        "python3 -m pip install --quiet numpy pandas && python3 main.py",
    )


@pytest.mark.parametrize("content", [WHOLE, "### Code\nx = 1", "### Code\n```\na\n\n\n# Example\n```\n### Example\nb"])
def test_a_program_goes_into_the_history_in_its_sections(content: str) -> None:
    answer = read(content)
    message = PROTOCOL.write(answer)
    assert "### Code\n```" in message.content
    assert read(message.content) == answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", []),
        ("None.", []),
        ("- numpy\n- Pandas (for tables)\n* `requests`", ["numpy", "pandas", "requests"]),
        ("1. numpy\n2) numpy", ["numpy"]),
        ("numpy, scipy>=1.0", ["numpy", "scipy>=1.0"]),
        ("pip install numpy pandas", ["numpy", "pandas"]),
        ("```bash\npip install requests\n```".replace("```", ""), ["requests"]),
        ("No libraries are required.", []),
        ("os\nsys\njson\nPython 3.x", []),
        ("- `sys` for command-line arguments\n- `pandas` for tables", ["pandas"]),
        ("- `sort`\n- `uniq`", []),
        ("numpy for tables", []),
        ("x; rm -rf /\n$(id)\n--index-url=http://evil", []),
    ],
)
def test_libraries(text: str, expected: list[str]) -> None:
    assert libraries(text) == expected


@pytest.mark.parametrize("heading", ["### Requiements", "## Requirements:", "### **Requirements**", "# requirements"])
def test_headings_are_known_by_their_words(heading: str) -> None:
    assert program(f"{heading}\nnumpy\n### Code\nx = 1")[1].startswith("python3 -m pip install --quiet numpy &&")


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ("### Code\n```py\nx = 1\n```", "x = 1\n"),
        ("### Code\n```python\nx = 1\n### Example\n```python\nprint(x)\n```", "x = 1\n\n\n# Example\nprint(x)\n"),
        ("### Corrected Code\n```python\nx = 1\n```", "x = 1\n"),
        (
            "### Code\ndef f(): return 1\n### Example\nfrom math import pi\nprint(f(), pi)",
            "def f(): return 1\n\n\n# Example\nfrom math import pi\nprint(f(), pi)\n",
        ),
        ("### Code\n```python\nx = 1\n```\n### Example\n```bash\npython main.py\n```", "x = 1\n"),
    ],
)
def test_programs(content: str, written: str) -> None:
    assert program(content) == (written, "python3 main.py")


@pytest.mark.parametrize(
    ("content", "action"),
    [
        ("### shell\nls", Shell(command="ls")),
        ("### Command\n```bash\nls\n```", Shell(command="ls")),
        ("### Code\n```bash\nls\n```\n### Example\n```bash\nls\n```", Shell(command="ls")),
        ("### Answer\n42", Finish(answer="42")),
        ("### write_file a b.txt\n```\nx\n```", WriteFile(path="a b.txt", content="x\n")),
        ("### read_file a.txt", ReadFile(path="a.txt")),
        ('### Action\n```json\n{"tool": "shell", "command": "ls"}\n```', Shell(command="ls")),
    ],
)
def test_other_actions(content: str, action: Action) -> None:
    assert read(content).steps == (Step(action=action),)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("print('no headings')", "headings are missing"),
        ("```python\n### Code\nx\n```", "headings are missing"),
        ("### Requirements\nnone\n### Code\n\n### Example\nprint(1)", "missing or empty"),
        ("### Requirements\nnumpy", "missing or empty"),
        ("### Action\nlook", "no JSON"),
    ],
)
def test_refuses_in_words(content: str, words: str) -> None:
    with pytest.raises(UnreadableAnswer) as caught:
        read(content)
    assert words in caught.value.message


def test_a_bot_that_may_not_write_runs_the_program_from_the_command() -> None:
    assert read("### Code\nprint(1)", ("shell", "finish")).steps[0].action == Shell(
        command="python3 - <<'END'\nprint(1)\nEND"
    )
    with pytest.raises(UnreadableAnswer, match="cannot be run"):
        read("### Code\nprint(1)", ("finish",))


@pytest.mark.parametrize("label", ["Code:", "**Code:**", "**Code**:", "  Code:  "])
@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_a_label_above_a_fence_is_a_heading(label: str, gap: str) -> None:
    text = f"I count them.\n{label}{gap}```python\nprint(1)\n```\n"
    assert [(one.name, one.body) for one in find_sections(text, {"code": "code"})] == [("code", "print(1)")]


@pytest.mark.parametrize(
    "text", ["Code:\nprint(1)", "The code:\n```\nx\n```", "Code: x\n```\nx\n```", "```\nCode:\n```\n"]
)
def test_elsewhere_it_is_text(text: str) -> None:
    assert find_sections(text, {"code": "code"}) == []
