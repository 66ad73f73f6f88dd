"""The Shell bot's list of actions, and which protocol a model gets."""

import json

import pytest

from stockade.answers.action_list import ListAnswers, schema
from stockade.answers.choice import PROTOCOLS, choose, make_protocol
from stockade.core.actions import Action, Answer, EditFile, Finish, ReadFile, Shell, Step, WriteFile
from stockade.core.errors import UnreadableAnswer, UsageError
from stockade.core.messages import ModelAnswer, ModelInfo

TOOLS = ("shell", "read_file", "write_file", "edit_file", "finish")
PROTOCOL = ListAnswers()


def read(content: str) -> Answer:
    return PROTOCOL.read(ModelAnswer(content=content), TOOLS)


@pytest.mark.parametrize(
    ("content", "actions"),
    [
        (
            '[{"command": "ls", "comment": "look"}, {"file": "a", "content": "x"}, {"file": "a"}]',
            [Shell(command="ls"), WriteFile(path="a", content="x"), ReadFile(path="a")],
        ),
        ('{"command": "ls"}', [Shell(command="ls")]),
        ('{"actions": [{"command": "ls"}]}', [Shell(command="ls")]),
        ('[{"file": "a", "content": ""}]', [WriteFile(path="a", content="")]),
        ('[{"file": "a", "old": "x", "new": "y"}]', [EditFile(path="a", old="x", new="y")]),
        ('[{"answer": "done"}]', [Finish(answer="done")]),
        ('[{"tool": "shell", "command": "ls"}]', [Shell(command="ls")]),
        ('[{"command": "ls"}, {"nonsense": 1}, {"command": "rm x"}]', [Shell(command="ls")]),
        ('[{"command": "echo \\"a\\" `b`"}]', [Shell(command='echo "a" `b`')]),
    ],
)
def test_reads(content: str, actions: list[Action]) -> None:
    answer = read(content)
    assert [step.action for step in answer.steps] == actions
    assert read(PROTOCOL.write(answer).content) == answer


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "empty"),
        ("[]", "no action"),
        ("[1]", "not an object"),
        ('[{"comment": "x"}]', "neither"),
        ('[{"command": ""}]', "empty"),
        ('{"actions": 7}', "no action"),
    ],
)
def test_refuses_in_words(content: str, words: str) -> None:
    with pytest.raises(UnreadableAnswer) as caught:
        read(content)
    assert words in caught.value.message


def test_comments_are_kept() -> None:
    assert read('[{"command": "ls", "comment": " look "}]').steps == (Step(action=Shell(command="ls"), comment="look"),)


def test_the_schema_forbids_no_character() -> None:
    assert "pattern" not in json.dumps(schema(TOOLS))


@pytest.mark.parametrize(
    ("native", "enforces", "name"),
    [(True, True, "native"), (True, False, "native"), (False, True, "json"), (False, False, "fenced")],
)
def test_the_choice_follows_what_the_model_can_do(native: bool, enforces: bool, name: str) -> None:
    info = ModelInfo(name="m", provider="p", native_tools=native, enforces_schema=enforces)
    assert choose(info) == name


def test_every_protocol_has_its_own_name() -> None:
    assert [make_protocol(name).name for name in PROTOCOLS] == list(PROTOCOLS)
    with pytest.raises(UsageError, match="morse"):
        make_protocol("morse")


def test_a_finish_behind_commands_whose_results_nobody_has_seen_is_left_out() -> None:
    text = '[{"command": "make"}, {"answer": "It is made."}, {"command": "ls"}]'
    answer = ModelAnswer(content=text)
    assert [step.action for step in ListAnswers().read(answer, TOOLS).steps] == [Shell(command="make")]
    alone = ListAnswers().read(ModelAnswer(content='[{"answer": "It is made."}]'), TOOLS)
    assert [step.action for step in alone.steps] == [Finish(answer="It is made.")]
