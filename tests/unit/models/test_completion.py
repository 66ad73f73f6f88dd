"""Answers to prompts of tokens: thinking, fences and calls found in what came as one text, in whatever pieces."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.core.messages import ModelAnswer
from stockade.models.completion import CompletionBuilder, calls_in
from stockade.models.pricing import FREE

BAR = 'cat <<\'EOF\' | "x" </tool_call> <function=a> \\ \n{"a": [1]}\nEOF'
TEXT = {"type": "string"}
TOOLS = ({"function": {"name": "write", "parameters": {"properties": {"content": TEXT, "n": {"type": "integer"}}}}},)


def call(**arguments: object) -> list[tuple[str, object]]:
    return [("shell", arguments)]


def read(text: str) -> tuple[str, list[tuple[str, object]]]:
    words, calls = calls_in(text, TOOLS)
    return words, [(call["name"], json.loads(call["arguments"])) for call in calls]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n%s\n</tool_call>",
        "%s",
        "\n%s",
        "[TOOL_CALLS][%s]",
        "[TOOL_CALLS] [%s]</s>",
        "<|tool_call|>[%s]<|/tool_call|>",
        "<|python_tag|>%s",
        "<tool_call>%s",
    ],
)
@pytest.mark.parametrize("key", ["arguments", "parameters"])
def test_calls_of_every_family_we_read(text: str, key: str) -> None:
    assert read(text % json.dumps({"name": "shell", key: {"command": BAR}})) == ("", call(command=BAR))


def test_other_shapes_of_a_call() -> None:
    arguments = json.dumps({"command": BAR})
    assert read(f"[TOOL_CALLS]shell[ARGS]{arguments}") == ("", call(command=BAR))
    assert read(f"[TOOL_CALLS]shell[CALL_ID]abc123def[ARGS]{arguments}") == ("", call(command=BAR))
    assert read(f"<tool_call>shell{arguments}</tool_call>") == ("", call(command=BAR))
    assert read(json.dumps({"name": "shell", "arguments": arguments})) == ("", call(command=BAR))
    two = "\n".join(
        f'<tool_call>\n{{"name": "shell", "arguments": {{"command": "{one}"}}}}\n</tool_call>' for one in "ab"
    )
    assert read(f"I look.\n{two}") == ("I look.", call(command="a") + call(command="b"))


def test_qwen_coder_writes_texts_bare() -> None:
    """What a schema calls a text stays one, whatever it looks like."""
    text = '<function=write>\n<parameter=content>\n{"a": 1}\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>'
    assert read(f"<tool_call>\n{text}\n</tool_call>") == ("", [("write", {"content": '{"a": 1}', "n": 3})])


@pytest.mark.parametrize(
    "text", ["It is done.", "Look: {}", '{"a": 1}', "<tool_call>nonsense", "[TOOL_CALLS]", "", "{"]
)
def test_words_are_no_call(text: str) -> None:
    assert calls_in(text) == (text, [])


def built(text: str, cuts: list[int], last: str = "", **rest: object) -> tuple[CompletionBuilder, str, ModelAnswer]:
    builder = CompletionBuilder(FREE, last, **rest)  # type: ignore[arg-type]
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    shown = ""
    for start, end in pairwise(places):
        shown += builder.add({"choices": [{"text": text[start:end], "finish_reason": None}]})
    shown += builder.add({"choices": [{"text": "", "finish_reason": "stop"}]})
    return builder, shown, builder.answer(0.0)


cuts = st.lists(st.integers(0, 200), max_size=12)


@given(cuts, st.sampled_from(["<think>", "<thinking>", "[THINK]", " \n<think>"]))
def test_thinking_is_counted_and_not_said(cuts: list[int], tag: str) -> None:
    end = {"<": f"</{tag.strip()[1:]}", "[": "[/THINK]"}[tag.strip()[0]]
    builder, shown, answer = built(f"{tag}so < 3 and </b> it is{end}\n\nYes <b> it is.", cuts)
    assert (answer.content, shown) == ("Yes <b> it is.", "Yes <b> it is.")
    assert builder.thoughts


@given(cuts)
def test_thinking_that_the_template_opened(cuts: list[int]) -> None:
    assert built("it is</think>\nYes.", cuts, last="<|assistant|>\n<think>\n")[2].content == "Yes."
    assert built("Yes.", cuts, last="<|assistant|>\n")[2].content == "Yes."


@given(cuts, st.text(max_size=30))
def test_ordinary_text_arrives_as_it_is(cuts: list[int], text: str) -> None:
    text = f"a{text}"
    assert built(text, cuts)[1:] == (text, built(text, [])[2])
    assert built(text, cuts)[2].content == text


@given(cuts)
def test_nothing_of_a_call_is_shown(cuts: list[int]) -> None:
    text = '<tool_call>{"name": "shell", "arguments": {"command": "ls"}}</tool_call>'
    _, shown, answer = built(f"I look. {text}", cuts, tools=TOOLS)
    assert shown == "I look. "
    assert (answer.content, answer.finish_reason) == ("I look.", "tool_calls")
    assert answer.tool_calls[0]["function"] == {"name": "shell", "arguments": '{"command": "ls"}'}


def test_a_fence_around_json() -> None:
    assert built('```json\n{"a": "```"}\n```', [], fenced=True)[2].content == '{"a": "```"}'
    assert built('```json\n{"a": 1}\n```', [])[2].content == '```json\n{"a": 1}\n```'


def test_blanks_without_an_end_are_heard() -> None:
    """They may stand before a thought; a model that says nothing else is ended as one that repeats itself."""
    builder = CompletionBuilder(None, "")
    for _ in range(5_000):
        builder.add({"choices": [{"text": "\n"}]})
    assert (builder.enough, builder.finish_reason) == (True, "repeats")
