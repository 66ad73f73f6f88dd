"""What every AnswerProtocol must do. A test module subclasses this and gives `protocol` as a fixture."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from stockade.core.actions import Action, Answer, EditFile, Finish, ReadFile, Shell, Step, ToolCall, WriteFile
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Message, ModelAnswer, ModelRequest
from stockade.core.ports import AnswerProtocol
from stockade.core.tools import ToolSpec

TOOLS = ("shell", "read_file", "write_file", "edit_file", "finish")
AWKWARD = 'a "b" \'c\' `d` $(e) \\n \\ \n\ttab é 😀 } ] ``` {"tool": "finish"}'

ACTIONS: Sequence[Action] = (
    Shell(command="ls -la"),
    Shell(command=AWKWARD),
    Shell(command="cat <<'EOF' > f\n```python\nprint(1)\n```\nEOF"),
    ReadFile(path="a file.txt"),
    ReadFile(path="a", start=2, end=9),
    WriteFile(path="x/y.txt", content=AWKWARD),
    WriteFile(path="empty", content=""),
    EditFile(path="f", old=AWKWARD, new=""),
    EditFile(path="f", old="a", new="b", replace_all=True),
    Shell(command="make", timeout_s=2.5),
    Finish(answer="42"),
    Finish(answer=AWKWARD),
)
SEARCH = ToolSpec(
    name="web_search",
    description="Search the web.",
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "count": {"type": "integer", "description": "How many results."},
            "tool": {"type": "string"},
        },
        "required": ["query"],
    },
)
NOW = ToolSpec(name="now", description="What time it is.")
CALLS: Sequence[ToolCall] = (
    ToolCall(name="web_search", arguments={"query": "a"}),
    ToolCall(name="web_search", arguments={"query": AWKWARD, "count": 3, "tool": "finish"}),
    ToolCall(name="now", arguments={}),
)
MORE: Sequence[dict[str, str]] = ({}, {"name": "read_file", "arguments": '{"path": "a"}'})
BROKEN = (
    "",
    " \n\t ",
    '{"action": null}',
    '{"action": {"tool": null, "path": "x"}}',
    '{"action": {"tool": ["shell"], "command": "ls"}}',
    '{"action": {"tool": "no_such_tool", "x": 1}}',
    '{"action": {"tool": "shell", "command": null}}',
    '{"action": {"tool": "shell", "command": ["ls"]}}',
    '{"action": {"tool": "shell", "command": ""}}',
    '{"action": {"tool": "read_file", "path": 7}}',
    "x" * 10_000_000,
    "\ud800",
    "a \udfff b",
)
"""Calls that cannot be done, and what no protocol can carry."""
WORDS = (
    "I have done everything you asked for.",
    "\x00\x01\x02",
    "{" * 50_000,
    "[" * 50_000,
    '"' * 1_000_000,
    "```" * 10_000,
    '{"thought": "x"}',
)
"""No call at all: the end of the run where a protocol takes plain words for one, refused elsewhere."""


def refusal(protocol: AnswerProtocol, content: str, finish_reason: str = "stop") -> str:
    """The reason why an answer is refused: short, of one line, printable."""
    with pytest.raises(UnreadableAnswer) as caught:
        protocol.read(ModelAnswer(content=content, finish_reason=finish_reason), TOOLS)
    assert 0 < len(caught.value.message) < 500
    assert caught.value.message.isprintable()
    return caught.value.message


class AnswerConformance:
    """Every protocol passes all of these."""

    @pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
    def test_what_it_writes_of_a_tool_it_reads(self, protocol: AnswerProtocol, call: ToolCall) -> None:
        offered = (*TOOLS, SEARCH, NOW)
        message = protocol.write(Answer(thought="First I look.", steps=(Step(action=call),)))
        again = protocol.read(ModelAnswer(content=message.content, tool_calls=message.tool_calls or ()), offered)
        assert again.steps[0].action == call

    def test_a_tool_is_described_with_what_it_takes(self, protocol: AnswerProtocol) -> None:
        offered = (*TOOLS, SEARCH, NOW)
        request = protocol.constrain(ModelRequest(messages=(Message(role="user", content="x"),)), offered)
        reported = f"{protocol.instructions(TOOLS)} {protocol.listing((SEARCH, NOW))} {request.model_dump_json()}"
        assert all(word in reported for word in ("web_search", "query", "now", "Search the web."))
        optional = ("count", "integer", "How many results.", "tool", "timeout", "seconds", "start", "replace_all")
        assert [word for word in optional if word not in reported] == []
        message = protocol.write(Answer(steps=(Step(action=ToolCall(name="web_serch", arguments={"query": "a"})),)))
        with pytest.raises(UnreadableAnswer, match="web_search"):
            protocol.read(ModelAnswer(content=message.content, tool_calls=message.tool_calls or ()), offered)

    def test_a_call_without_what_it_needs_is_unreadable(self, protocol: AnswerProtocol) -> None:
        message = protocol.write(Answer(steps=(Step(action=ToolCall(name="web_search", arguments={})),)))
        with pytest.raises(UnreadableAnswer, match="query"):
            protocol.read(ModelAnswer(content=message.content, tool_calls=message.tool_calls or ()), (*TOOLS, SEARCH))

    @pytest.mark.parametrize("content", ["", "I look.", "I use {} for it.", "```\nx"])
    def test_a_proper_native_call_is_accepted(self, protocol: AnswerProtocol, content: str) -> None:
        function = {"name": "shell", "arguments": json.dumps({"command": AWKWARD})}
        calls = tuple({"id": f"c{n}", "type": "function", "function": function | more} for n, more in enumerate(MORE))
        answer = protocol.read(ModelAnswer(content=content, tool_calls=calls, finish_reason="tool_calls"), TOOLS)
        assert [step.action for step in answer.steps] == [Shell(command=AWKWARD), ReadFile(path="a")]
        written = protocol.write(answer)
        assert "$(e)" in f"{written.content} {written.tool_calls}"

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"query": "a", "count": "three"}, ("count", "integer", "three")),
            ({"query": "a", "count": [1]}, ("count", "integer", "[1]")),
            ({"query": "a", "limit": 3}, ("limit", "query, count, tool")),
        ],
    )
    def test_arguments_are_what_the_schema_says(
        self, protocol: AnswerProtocol, arguments: dict[str, Any], words: Sequence[str]
    ) -> None:
        strict = SEARCH.model_copy(update={"parameters": {**SEARCH.parameters, "additionalProperties": False}})
        message = protocol.write(Answer(steps=(Step(action=ToolCall(name="web_search", arguments=arguments)),)))
        with pytest.raises(UnreadableAnswer) as caught:
            protocol.read(ModelAnswer(content=message.content, tool_calls=message.tool_calls or ()), (*TOOLS, strict))
        assert [word for word in words if word not in caught.value.message] == []

    @pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.tool)
    @pytest.mark.parametrize("thought", [None, "First I look."])
    def test_what_it_writes_it_reads(self, protocol: AnswerProtocol, action: Action, thought: str | None) -> None:
        message = protocol.write(Answer(thought=thought, steps=(Step(action=action),)))
        assert message.role == "assistant"
        calls = message.tool_calls or ()
        again = protocol.read(ModelAnswer(content=message.content, tool_calls=calls), TOOLS)
        assert again.steps[0].action == action

    @pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
    def test_broken_answers_are_refused_in_words(self, protocol: AnswerProtocol, content: str) -> None:
        refusal(protocol, content)

    @pytest.mark.parametrize("content", WORDS, ids=range(len(WORDS)))
    def test_plain_words_are_a_finish_or_refused(self, protocol: AnswerProtocol, content: str) -> None:
        """Never another action, never other words, and nothing when the answer was cut off."""
        refusal(protocol, content, "length")
        try:
            answer = protocol.read(ModelAnswer(content=content), TOOLS)
        except UnreadableAnswer:
            refusal(protocol, content)
        else:
            assert answer == Answer(spoken=True, steps=(Step(action=Finish(answer=content)),))

    def test_a_cut_answer_is_not_acted_on(self, protocol: AnswerProtocol) -> None:
        message = protocol.write(Answer(steps=(Step(action=Shell(command="rm -rf build")),)))
        with pytest.raises(UnreadableAnswer):
            protocol.read(ModelAnswer(content=message.content[:-4], finish_reason="length"), TOOLS)

    def test_a_tool_that_is_not_offered_is_not_done(self, protocol: AnswerProtocol) -> None:
        message = protocol.write(Answer(steps=(Step(action=WriteFile(path="a", content="b")),)))
        with pytest.raises(UnreadableAnswer):
            protocol.read(
                ModelAnswer(content=message.content, tool_calls=message.tool_calls or ()), ("shell", "finish")
            )

    def test_instructions_name_each_tool_and_are_short(self, protocol: AnswerProtocol) -> None:
        text = protocol.instructions(TOOLS)
        assert all(tool in text for tool in TOOLS)
        assert len(text) < 1200

    def test_constraining_keeps_the_messages(self, protocol: AnswerProtocol) -> None:
        request = ModelRequest(messages=(Message(role="user", content="x"),))
        constrained = protocol.constrain(request, TOOLS)
        assert constrained.messages == request.messages
        json.dumps(constrained.model_dump(mode="json"))

    def test_an_observation_is_a_message_that_holds_it(self, protocol: AnswerProtocol) -> None:
        message = protocol.observed(Step(action=Shell(command="ls")), AWKWARD)
        assert message.role in ("user", "tool")
        assert AWKWARD in message.content
