"""The JSON answer protocol: what is read, what is refused in words, what goes into the history."""

import json

import pytest

from stockade.answers.json_schema import JsonAnswers, schema
from stockade.core.actions import Action, Answer, EditFile, Finish, ReadFile, Shell, Step, WriteFile
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import ModelAnswer, ModelRequest

TOOLS = ("shell", "read_file", "write_file", "edit_file", "finish")
PROTOCOL = JsonAnswers()


def read(content: str, finish_reason: str = "stop") -> Answer:
    return PROTOCOL.read(ModelAnswer(content=content, finish_reason=finish_reason), TOOLS)


@pytest.mark.parametrize(
    ("content", "action"),
    [
        ('{"thought": "t", "action": {"tool": "shell", "command": "ls"}}', Shell(command="ls")),
        ('{"action": {"tool": "bash", "cmd": "ls"}}', Shell(command="ls")),
        ('{"tool": "shell", "command": "ls"}', Shell(command="ls")),
        ('{"name": "shell", "arguments": {"command": "ls"}}', Shell(command="ls")),
        ('{"name": "shell", "arguments": "{\\"command\\": \\"ls\\"}"}', Shell(command="ls")),
        ('{"action": "shell", "command": "ls"}', Shell(command="ls")),
        ('{"thought": "t", "command": "ls"}', Shell(command="ls")),
        ('{"action": {"tool": "read_file", "file": "a"}}', ReadFile(path="a")),
        ('{"action": {"tool": "write_file", "path": "a", "content": ""}}', WriteFile(path="a", content="")),
        ('{"action": {"tool": "edit_file", "path": "a", "old": "x", "new": ""}}', EditFile(path="a", old="x", new="")),
        ('{"action": {"tool": "finish", "answer": 7}}', Finish(answer="7")),
        ('{"action": {"tool": "shell", "command": "ls", "explanation": "more"}}', Shell(command="ls")),
        (
            '<think>{"tool": "shell", "command": "rm -r ."}</think>{"tool": "shell", "command": "ls"}',
            Shell(command="ls"),
        ),
        ('First {"a": 1}.\n</think>\n\n{"tool": "shell", "command": "ls"}', Shell(command="ls")),
    ],
)
def test_reads(content: str, action: Action) -> None:
    assert read(content).steps == (Step(action=action),)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ('<think>{"tool": "shell", "command": "ls"}', "empty"),
        ("I will now list the files.", "no JSON object"),
        ("{}", "no tool"),
        ('{"action": {"tool": "shel", "command": "ls"}}', "did you mean shell"),
        ('{"action": {"tool": "frobnicate"}}', "the tools are"),
        ('{"action": {"tool": "shell"}}', "command: missing"),
        ('{"action": {"tool": "shell", "command": "  "}}', "empty"),
        ('{"action": {"tool": "shell", "command": 5}}', "command"),
        ('{"action": [1]}', "not an object"),
        ('{"action": {"tool": "read_file", "path": "a", "start": -5}}', "start: input should be greater than"),
        ('{"action": {"tool": "shell", "command": "ls", "cwd": "/tmp"}}', 'no parameter "cwd"; the parameters are'),
        ('{"action": {"tool": "shell", "command": "ls", "command": "rm x"}}', "'command' is given twice"),
        ('{"action": {"tool": "shell", "command": "echo \\ud800"}}', "half a character"),
        ('{"action": {"tool": "shell", "arguments": [1]}}', "arguments"),
    ],
)
def test_refuses_in_words(content: str, words: str) -> None:
    with pytest.raises(UnreadableAnswer) as caught:
        read(content)
    assert words in caught.value.message


def test_a_cut_answer_is_not_acted_on() -> None:
    with pytest.raises(UnreadableAnswer, match="cut off"):
        read('{"action": {"tool": "shell", "command": "rm -rf build"}}', finish_reason="length")


def test_history_holds_the_cleaned_answer_only() -> None:
    answer = read(
        'Sure!\n```json\n{"thought": "look", "action": {"tool": "bash", "cmd": "ls"}, "extra": 1}\n```\nDone.'
    )
    assert json.loads(PROTOCOL.write(answer).content) == {
        "thought": "look",
        "action": {"tool": "shell", "command": "ls"},
    }
    again = PROTOCOL.read(ModelAnswer(content=PROTOCOL.write(answer).content), TOOLS)
    assert again == answer


def test_the_schema_is_small_and_names_the_tools_given() -> None:
    text = json.dumps(schema(TOOLS))
    assert len(text) < 1500
    assert [
        branch["properties"]["tool"]["const"] for branch in schema(("shell", "finish"))["properties"]["action"]["anyOf"]
    ] == [
        "shell",
        "finish",
    ]
    assert PROTOCOL.constrain(ModelRequest(messages=()), TOOLS).schema_ == schema(TOOLS)


def test_an_end_that_goes_on_and_on_is_an_end_as_it_was_said() -> None:
    """On 3a7bdc0 its first 200 characters, and of a report that was cut too."""
    again = "The task is done. " * 200
    answer = read('{"thought": "x", "action": {"tool": "finish", "answer": "' + again, finish_reason="repeats")
    assert answer.steps[0].action == Finish(answer=again)


def test_half_a_report_is_no_end_and_a_whole_one_is() -> None:
    report = '{"action": {"tool": "finish", "answer": "' + "Line by line: nothing like the one before. " * 20
    with pytest.raises(UnreadableAnswer, match="cut off"):
        read(report, finish_reason="length")
    with pytest.raises(UnreadableAnswer, match="cut off"):
        read(f'{report}"', finish_reason="length")
    whole = read(f'{report}"}}}}\n\n\n', finish_reason="length").steps[0].action
    assert isinstance(whole, Finish)
    assert len(whole.answer) > 800


@pytest.mark.parametrize(
    "text",
    [
        '{"thought": "I will end with finish',
        '{"thought": "x", "action": {"tool": "write_file", "path": "a", "content": "aaaa',
        '{"action": {"tool": "shell", "command": "rm -rf /workspace/b',
    ],
)
def test_half_of_anything_else_is_nothing(text: str) -> None:
    with pytest.raises(UnreadableAnswer, match="cut off"):
        read(text, finish_reason="length")
