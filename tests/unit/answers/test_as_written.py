"""Any text, as command, file or answer, by each protocol as a model writes it: read as it was written, or refused."""

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from stockade.answers.tool_specs import spelled
from stockade.core.actions import Action, Answer, EditFile, Finish, Shell, Step, ToolCall, WriteFile
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import ModelAnswer
from stockade.core.tools import ToolSpec
from tests.support.parts import PROTOCOLS, make_protocol

TWO = {"text": {"type": "string"}, "n": {"type": "integer"}}
NOTE = ToolSpec(name="note", parameters={"type": "object", "properties": TWO, "required": ["text", "n"]})
TOOLS = ("shell", "read_file", "write_file", "edit_file", "finish", NOTE)
BITS = (
    "  | a\n  | b\n", "| a | b |", "\b", "\f", "\\b", "\\", '"', "'", "`", "```", "\n```\n", "\n```bash\nls\n```\n",
    "````", "~~~", "\r\n", "\r", "\n", "\t", " ", "\0", "😀", "é", "\u2028", "\x1b[31m", "{}", "{} \\;",
    '{"tool": "finish"}', "</think>\n", "<think>", "<tool_call>", "USE_TOOL: shell", "\n### Code\n", "$ ls\n",
    "<<<<<<< OLD", "\n=======\n", ">>>>>>> NEW", "<<EOF", "cat <<'EOF'\n\nEOF\n", "finish", "PATH", "\\n", "\\u0041",
    "null", "3", "[1]", "-exec rm {} \\", ", path=",
)  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(BITS), st.text(st.characters(codec="utf-8"), max_size=8)), max_size=8).map(
    "".join
)
REFUSED = re.compile(r"is empty|here-document|longer fence|OLD, the old text|is missing|arguments are not|PATH stands")
"""What a spelling cannot carry: nothing at all, a here-document without its end, fences in one that is too short."""


def actions(text: str) -> tuple[Action, ...]:
    return (
        Shell(command=text),
        WriteFile(path="a b.txt", content=text),
        EditFile(path="f", old=f"x{text}", new=text),
        Finish(answer=text),
        ToolCall(name="note", arguments={"text": text, "n": 7}),
    )


def call(action: Action, *, ascii_only: bool = False) -> ModelAnswer:
    fields = spelled(action)
    name = fields.pop("tool")
    arguments = json.dumps(fields.get("arguments", fields), ensure_ascii=ascii_only)
    return ModelAnswer(content="", tool_calls=({"function": {"name": name, "arguments": arguments}},))


def in_json(action: Action) -> str:
    return json.dumps({"thought": "I do it.", "thoughts": {"text": "x"}, "action": spelled(action)}, indent=1)


def in_list(action: Action) -> str:
    fields = spelled(action)
    if not isinstance(action, ToolCall):
        fields = {"file" if key == "path" else key: value for key, value in fields.items() if key != "tool"}
    return f"[{json.dumps(fields, ensure_ascii=False)}]"


def in_a_line(action: Action) -> str:
    def quoted(value: object) -> str:
        if not isinstance(value, str):
            return json.dumps(value)
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

    fields = spelled(action)
    name = fields.pop("tool")
    return ", ".join([f"USE_TOOL: {name}", *(f"{k}={quoted(v)}" for k, v in fields.get("arguments", fields).items())])


def in_a_fence(action: Action) -> str:
    match action:
        case Shell(command=text):
            opening, body = "bash", text
        case WriteFile(content=""):
            return "I do it.\n\n```write_file a b.txt\n```\n"
        case WriteFile(content=text) if text.endswith("\n"):
            opening, body = "write_file a b.txt", text.removesuffix("\n")
        case EditFile(old=old, new=new) if new:
            opening, body = "edit_file f", f"<<<<<<< OLD\n{old}\n=======\n{new}\n>>>>>>> NEW"
        case Finish(answer=text):
            opening, body = "finish", text
        case _:
            opening, body = "json", json.dumps(spelled(action))
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", body)), default=0))
    return f"I do it.\n\n{ticks}{opening}\n{body}\n{ticks}\n"


def in_a_section(action: Action) -> str:
    block = in_a_fence(action).removeprefix("I do it.\n\n")
    opening, rest = block.split("\n", 1)
    ticks = opening[: len(opening) - len(opening.lstrip("`"))]
    name = {"bash": "shell", "finish": "Answer", "json": "Action"}.get(opening.lstrip("`"), opening.lstrip("`"))
    return f"### {name}\n{ticks}\n{rest}"


WRITTEN: dict[str, Callable[[Action], str]] = {
    "json": in_json,
    "plan": in_json,
    "list": in_list,
    "use-tool": in_a_line,
    "fenced": in_a_fence,
    "sections": in_a_section,
}


def check(name: str, action: Action, answer: ModelAnswer) -> None:
    """It reads as it was written, and what goes into the history too."""
    protocol = make_protocol(name)
    try:
        understood = protocol.read(answer, TOOLS)
    except UnreadableAnswer as error:
        if REFUSED.search(error.message):
            return
        raise
    assert [step.action for step in understood.steps] == [action], answer.content
    message = protocol.write(Answer(thought="I do it.", steps=understood.steps))
    again = protocol.read(ModelAnswer(content=message.content, tool_calls=message.tool_calls or ()), TOOLS)
    assert [step.action for step in again.steps] == [action], message.content


@pytest.mark.parametrize("name", PROTOCOLS)
@settings(deadline=None)
@given(text=TEXTS)
@example(text="\\")
@example(text="```\n</think>\n")
@example(text="\n")
def test_any_text_arrives_as_it_was_written_or_is_refused(name: str, text: str) -> None:
    for action in actions(text):
        if name in WRITTEN:
            check(name, action, ModelAnswer(content=WRITTEN[name](action)))
        check(name, action, call(action))
        check(name, action, call(action, ascii_only=True))


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("bit", ['"', "`", "\\", "a\n", "😀", "\n```\n"], ids=repr)
def test_a_megabyte_arrives(name: str, bit: str) -> None:
    action = WriteFile(path="a b.txt", content=bit * (1_000_000 // len(bit.encode())))
    if name in WRITTEN and not (bit == "😀" and name in ("json", "plan")):  # escaped, that is over the limit
        answer = ModelAnswer(content=WRITTEN[name](action))
    else:
        answer = call(action)
    assert make_protocol(name).read(answer, TOOLS).steps == (Step(action=action),)


@settings(deadline=None)
@given(text=TEXTS)
def test_plain_words_are_the_answer_as_they_were(text: str) -> None:
    """But a call in them, which is done or refused, and what stands before the end of thinking."""
    assume("</think>" not in text and "<tool_call>" not in text)
    protocol = make_protocol("native")
    words = f"The answer: {text}."
    answer = protocol.read(ModelAnswer(content=words), ("shell", "finish"))
    assert answer == Answer(spoken=True, steps=(Step(action=Finish(answer=words)),))
    assert protocol.write(answer).content == words
