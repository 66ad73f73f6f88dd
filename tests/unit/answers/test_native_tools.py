"""Native tool calls: declared, read, salvaged, and paired with their results."""

import json
from typing import Any

import pytest

from stockade.answers.native_tools import NativeAnswers, answered, call_id
from stockade.answers.spelling import make_action
from stockade.core.actions import Action, Answer, Finish, Shell, Step, WriteFile
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


@pytest.mark.parametrize(
    ("calls", "actions"),
    [
        ([shell("ls"), shell("pwd")], [Shell(command="ls"), Shell(command="pwd")]),
        ([shell("ls"), shell("ls")], [Shell(command="ls")]),
        ([shell("ls"), FINISH], [Shell(command="ls")]),
        ([FINISH, shell("ls")], [Finish(answer="x")]),
        ([shell("ls"), call("nonsense", "{}"), shell("pwd")], [Shell(command="ls")]),
        ([call("shell", {"command": "ls"})], [Shell(command="ls")]),
        ([call("shell", '{"command": "ls"')], [Shell(command="ls")]),
    ],
)
def test_which_calls_count(calls: list[dict[str, Any]], actions: list[Action]) -> None:
    assert [step.action for step in read("", *calls).steps] == actions


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
    assert [m.tool_call_id for m in sent if m.role == "tool"] == [*map(call_id, steps), call_id(finish)]
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
