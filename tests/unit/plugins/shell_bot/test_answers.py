"""The Shell bot's list of actions, and which protocol a model gets."""

import json
from dataclasses import replace

import pytest

from stockade.answers.action_codec import select_protocol
from stockade.core.actions import Action, Answer, EditFile, Finish, ReadFile, Shell, Step, WriteFile
from stockade.core.errors import UnreadableAnswer, UsageError
from stockade.core.messages import ModelAnswer, ModelInfo
from stockade.plugins.shell_bot.answers import ListAnswers, schema
from stockade.testing import MemorySandbox
from tests.support.parts import PROTOCOLS, make_protocol
from tests.unit.loop.helpers import Bench

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
        ('[{"command": ""}]', [Shell(command="")]),
        ('[{"command": "  "}, {"command": "ls"}]', [Shell(command="  "), Shell(command="ls")]),
        ('[{"command": "finish"}]', [Shell(command="finish")]),
        (json.dumps([{"command": f"echo {n}"} for n in range(40)]), [Shell(command=f"echo {n}") for n in range(40)]),
        ('[{"command": "ls"}, {"command": "ls"}]', [Shell(command="ls"), Shell(command="ls")]),
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
        ('[{"command": 7}, {"file": 1}]', "action 1: shell: command: input should be a valid string, got 7"),
        ('[{"command": "ls", "file": "x"}]', "no parameter"),
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
    assert select_protocol(info) == name


def test_every_protocol_has_its_own_name() -> None:
    assert [make_protocol(name).name for name in PROTOCOLS] == list(PROTOCOLS)
    with pytest.raises(UsageError, match="morse"):
        make_protocol("morse")


def test_every_entry_is_answered_and_an_unreadable_one_with_its_error() -> None:
    text = '[{"nonsense": 1}, {"command": "make"}, 7, {"answer": "It is made."}, {"command": "ls"}]'
    answer = read(text)
    done = [(step.action.tool, getattr(step.action, "problem", "")) for step in answer.steps]
    assert [tool for tool, _ in done] == ["invalid_call", "shell", "invalid_call", "invalid_call", "shell"]
    assert 'neither "command" nor "file"' in done[0][1]
    assert "not an object" in done[2][1]
    assert "look at what came of the actions before it first" in done[3][1]
    assert json.loads(PROTOCOL.write(answer).content) == json.loads(text)


@pytest.mark.anyio
async def test_the_loop_answers_each_entry() -> None:
    script = ['[{"nonsense": 1}, {"command": "make"}, {"command": ""}, {"command": "make"}]', '[{"answer": "x"}]']
    bench = Bench(script, MemorySandbox({"make": "made"}))
    bench.parts = replace(bench.parts, protocol=PROTOCOL)
    assert (await bench.run()).status == "done"
    assert bench.sandbox.ran == ["make", "", "make"]
    told = bench.script.requests[-1].messages[-1].content
    assert told.count("made") == 2
    assert 'This has failed: it has neither "command" nor "file"' in told
