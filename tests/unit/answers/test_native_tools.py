"""Native tool calls: declared, read, salvaged, and paired with their results."""

import json
import re
from typing import Any

import pytest

from stockade.answers.action_codec import make_action
from stockade.answers.native_tools import NativeAnswers, answered, call_id
from stockade.core.actions import Action, Answer, Finish, InvalidCall, Shell, Step, WriteFile
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Message, ModelAnswer, ModelRequest

TOOLS = ("shell", "write_file", "finish")
PROTOCOL = NativeAnswers()


def call(name: object, arguments: object) -> dict[str, Any]:
    return {"id": "x", "type": "function", "function": {"name": name, "arguments": arguments}}


def read(content: str = "", *calls: dict[str, Any]) -> Answer:
    return PROTOCOL.read(ModelAnswer(content=content, tool_calls=calls, finish_reason="tool_calls"), TOOLS)


def shell(command: str) -> dict[str, Any]:
    return call("shell", json.dumps({"command": command}))


FINISH = call("finish", '{"answer": "x"}')


@pytest.mark.parametrize(
    ("content", "action"),
    [
        ('```json\n{"name": "shell", "arguments": {"command": "ls"}}\n```', Shell(command="ls")),
        ('<tool_call>\n{"name": "shell", "arguments": {"command": "ls"}}\n</tool_call>', Shell(command="ls")),
        ('<tool_call>{"name": "shell", "arguments": "{\\"command\\": \\"ls\\"}"}', Shell(command="ls")),
        ('{"name": "bash", "parameters": {"cmd": "ls"}}', Shell(command="ls")),
        ('[TOOL_CALLS][{"name": "shell", "arguments": {"command": "ls"}}]', Shell(command="ls")),
        ('{"function": {"name": "shell", "arguments": {"command": "ls"}}}', Shell(command="ls")),
        ('{"thought": "t", "action": {"tool": "shell", "command": "ls"}}', Shell(command="ls")),
        ('awk {print} and {"a": 1}: {"name": "shell", "arguments": {"command": "ls"}}', Shell(command="ls")),
        ('Sure.\n{"name": "finish", "arguments": {"answer": "{}"}}', Finish(answer="{}")),
    ],
)
def test_calls_written_as_text_are_done_and_become_real_ones(content: str, action: Action) -> None:
    answer = read(content)
    assert answer.steps == (Step(action=action),)
    calls = PROTOCOL.write(answer).tool_calls
    assert calls
    assert calls[0]["function"]["name"] == action.tool


LS, PWD = (f'{{"name": "shell", "arguments": {{"command": "{word}"}}}}' for word in ("ls", "pwd"))
END = '{"name": "finish", "arguments": {"answer": "x"}}'


@pytest.mark.parametrize(
    "content",
    [
        f"<tools>\n{LS}\n{PWD}\n</tools>\nfinish",
        f"I look.\n<tool_call>\n{LS}\n</tool_call>\n<tool_call>\n{PWD}\n</tool_call>",
        f"```json\n{LS}\n```\n```json\n{PWD}\n```\nThat is all.",
        f"[{LS}, {PWD}]",
    ],
)
def test_several_calls_written_as_text_are_all_done(content: str) -> None:
    """Seen with samples of BFCL: of three the first was done, and the others were gone without a word."""
    answer = read(content)
    assert [step.action for step in answer.steps] == [Shell(command="ls"), Shell(command="pwd")]
    assert len(PROTOCOL.write(answer).tool_calls or ()) == 2


def test_what_stands_behind_other_words_was_written_without_a_result() -> None:
    assert read(f"{LS}\nIt prints a.txt.\n{PWD}").steps == (Step(action=Shell(command="ls")),)
    assert read(f'{LS}\n{{"result": "a.txt"}}\n{PWD}').steps == (Step(action=Shell(command="ls")),)


def test_of_calls_written_as_text_each_is_answered() -> None:
    wrong = '{"name": "shell", "arguments": {"nonsense": 1}}'
    steps = read(f"{LS}\n{wrong}\n{END}").steps
    assert [type(step.action) for step in steps] == [Shell, InvalidCall, InvalidCall]
    assert [step.again for step in read(f"{LS}\n{LS}").steps] == [0, 1]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('```json\n{"name": "shell", "arguments": {"command": "echo "a" b"}}\n```', "cannot be read"),
        ('{"name": "write_file", "arguments": {"path": "a", "content": str(5)}}', "cannot be read"),
        ('<tool_call>{"name": "shell", "arguments": {"command": "grep \\d \\bx"}}', "no escape of JSON"),
    ],
)
def test_a_call_that_cannot_be_read_is_no_last_word(content: str, why: str) -> None:
    """On 3a7bdc0 the run was done, with the call as its answer."""
    with pytest.raises(UnreadableAnswer, match=why):
        read(content)


def test_of_two_objects_of_arguments_none_is_dropped() -> None:
    with pytest.raises(UnreadableAnswer, match="one object stands behind another"):
        read("", call("shell", '{"command": "ls"}{"command": "pwd"}'))
    assert read("", call("shell", '{"command": "ls"}}')).steps == (Step(action=Shell(command="ls")),)


def test_plain_words_keep_their_indentation() -> None:
    assert read("\n\n    x = 1\n    y = 2  \n").steps == (Step(action=Finish(answer="    x = 1\n    y = 2  ")),)


@pytest.mark.parametrize(
    ("calls", "actions"),
    [
        ([shell("ls"), shell("pwd")], [Shell(command="ls"), Shell(command="pwd")]),
        ([shell("ls"), shell("ls")], [Shell(command="ls"), Shell(command="ls")]),
        ([shell("ls"), FINISH], [Shell(command="ls"), "look at what came of the actions before it first"]),
        ([FINISH], [Finish(answer="x")]),
        ([shell("ls"), call("nonsense", "{}"), shell("pwd")], [Shell(command="ls"), "no tool", Shell(command="pwd")]),
        ([call("shell", '{"command": "\\ud800"}'), shell("pwd")], ["half a character", Shell(command="pwd")]),
        ([call("shell", '{"command": "\ud800"}'), shell("pwd")], ["half a character", Shell(command="pwd")]),
        ([shell(f"echo {n}") for n in range(40)], [Shell(command=f"echo {n}") for n in range(40)]),
        ([call("shell", {"command": "ls"})], [Shell(command="ls")]),
        ([call("shell", '{"command": "ls"')], [Shell(command="ls")]),
    ],
)
def test_every_call_is_done_or_answered_with_what_is_wrong(
    calls: list[dict[str, Any]], actions: list[Action | str]
) -> None:
    answer = read("", *calls)
    for step, expected in zip(answer.steps, actions, strict=True):
        if isinstance(expected, str):
            assert isinstance(step.action, InvalidCall)
            assert expected in step.action.problem
        else:
            assert step.action == expected
    written = PROTOCOL.write(answer).tool_calls or ()
    assert len({one["id"] for one in written}) == len(calls)
    for one in written:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one["function"]["name"])
        assert isinstance(json.loads(one["function"]["arguments"]), dict)


@pytest.mark.parametrize(
    "words",
    [
        '{"name": "left-pad", "version": "1.3.0"}',
        'The file says {"action": "delete", "tool": "axe"} and nothing else.',
        'An entry looks like {"command": "npx", "args": ["-y"]}, one for each server.',
        '```json\n{"tools": []}\n```',
        "Use `{}` with find.",
    ],
)
def test_words_about_json_are_words(words: str) -> None:
    answer = read(words)
    assert answer.spoken
    assert answer.steps == (Step(action=Finish(answer=words)),)


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ([call("shel", "{}")], "did you mean shell"),
        ([call("shell", "")], "command: missing"),
        ([call("shell", "[1]")], "JSON object"),
        ([call(None, "{}")], "no tool"),
        ([{"id": "x"}], "no function"),
        ([], "empty"),
    ],
)
def test_refuses_in_words(calls: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(UnreadableAnswer) as caught:
        read("", *calls)
    assert words in caught.value.message


def test_every_call_has_a_result_and_the_others_stay_the_same_objects() -> None:
    steps = tuple(Step(action=Shell(command=text)) for text in ("a", "b"))
    finish = Step(action=Finish(answer="x"))
    messages = (
        Message(role="user", content="task"),
        PROTOCOL.write(Answer(steps=steps)),
        PROTOCOL.observed(steps[0], "one"),
        PROTOCOL.write(Answer(steps=(finish,))),
        Message(role="user", content="look again"),
    )
    sent = PROTOCOL.constrain(ModelRequest(messages=messages), TOOLS).messages
    assert [message.role for message in sent] == ["user", "assistant", "tool", "tool", "assistant", "tool", "user"]
    assert [(m.tool_call_id, m.content) for m in sent if m.role == "tool"] == [
        (call_id(steps[0]), "one"),
        (call_id(steps[1]), "This has not been done."),
        (call_id(finish), "Your answer was read."),
    ]
    assert [message for message in sent if any(message is given for given in messages)] == list(messages)
    assert all(a is b for a, b in zip(sent, answered(messages), strict=True))
    assert answered(sent) == sent


def test_tools_are_declared_with_their_optional_arguments() -> None:
    tools = PROTOCOL.constrain(ModelRequest(messages=()), ("read_file",)).tools
    assert tools
    parameters = tools[0]["function"]["parameters"]
    assert (parameters["required"], sorted(parameters["properties"])) == (["path"], ["end", "path", "start"])


def test_identifiers_are_what_the_strictest_server_takes() -> None:
    identifier = call_id(Step(action=WriteFile(path="a", content="b")))
    assert len(identifier) == 9
    assert identifier.isalnum()


def test_the_thought_inside_a_call_written_as_text_is_kept() -> None:
    said = '{"thought": "Count first", "action": {"tool": "shell", "command": "wc -l a"}}'
    answer = NativeAnswers().read(ModelAnswer(content=said), TOOLS)
    assert answer.thought == "Count first"
    assert answer.steps == (Step(action=Shell(command="wc -l a")),)


@pytest.mark.parametrize("timeout", [0, 0.0, None])
def test_no_limit_of_its_own(timeout: float | None) -> None:
    assert make_action("shell", {"command": "ls", "timeout": timeout}, ("shell",)) == Shell(command="ls")
    assert make_action("shell", {"command": "ls", "timeout_s": 2.5}, ("shell",)) == Shell(command="ls", timeout_s=2.5)
