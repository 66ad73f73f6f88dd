"""`--output-schema`: what is no schema, what does not fit it, and how each protocol asks for it."""

import json
from pathlib import Path
from typing import Any

import pytest

from stockade.answers.fenced import FencedAnswers
from stockade.answers.json_schema import JsonAnswers
from stockade.answers.native_tools import NativeAnswers
from stockade.answers.output_schema import MAX_SCHEMA_BYTES, OutputSchema, SchemaAnswers, read_schema
from stockade.answers.schema_problems import problems
from stockade.core.actions import Finish
from stockade.core.errors import UsageError
from stockade.core.messages import Message, ModelAnswer, ModelRequest

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "lines": {"type": "integer", "minimum": 1},
        "names": {"type": "array", "items": {"$ref": "#/$defs/n"}},
    },
    "required": ["lines"],
    "additionalProperties": False,
    "$defs": {"n": {"type": "string"}},
}
ASKED = ModelRequest(messages=(Message(role="user", content="count"),))
TOOLS = ("shell", "finish")


def test_a_schema_is_read(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    assert read_schema(str(path)) == SCHEMA


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is no JSON"),
        (b"\xff", "is no JSON"),
        (b"[" * 90_000, "is no JSON: it is nested too deeply"),
        (b"[1]", "is no JSON object"),
        (b'{"type": "zap"}', "is no JSON schema"),
        (b'{"minimum": NaN}', "NaN is no JSON"),
        (b'{"$ref": "#/$defs/gone"}', "'#/$defs/gone', which is not in it"),
        (b'{"items": {"$ref": "http://127.0.0.1:9/schema"}}', "which is not in it"),
        (b" " * (MAX_SCHEMA_BYTES + 1), "is larger than"),
    ],
)
def test_what_is_none_is_told_in_one_line(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "schema.json"
    path.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        read_schema(str(path))
    assert said in refused.value.message
    assert "\n" not in refused.value.message
    with pytest.raises(UsageError, match="cannot be read"):
        read_schema(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"lines": 3, "names": ["a"]}', ""),
        ("3 lines", "it is no JSON"),
        ('```json\n{"lines": 3}\n```', "it is no JSON"),
        ('{"lines": NaN}', "NaN is no JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"lines": "3"}', "$.lines: '3' is not of type 'integer'"),
        ('{"lines": 0}', "$.lines: 0 is less than the minimum of 1"),
        ("{}", "$: 'lines' is a required property"),
        ('{"lines": 3, "names": [4]}', "$.names[0]: 4 is not of type 'string'"),
        ('{"lines": 3, "x\\u001b": 1}', "Additional properties"),
    ],
)
def test_what_does_not_fit_is_told_by_its_place(text: str, said: str) -> None:
    found = problems(SCHEMA, text)
    assert bool(found) == bool(said)
    assert said in "".join(found)
    assert "\x1b" not in "".join(found)


def test_many_problems_are_told_in_short() -> None:
    found = problems({"type": "array", "items": {"type": "string"}}, json.dumps(list(range(50))))
    assert (len(found), found[-1]) == (6, "and 45 more")


@pytest.mark.timeout(60)
def test_no_pattern_holds_it_up() -> None:
    slug = {"type": "string", "pattern": "^([a-z]+-?)+$"}
    assert problems(slug, '"a-b"') == []
    assert "does not match" in problems(slug, '"A"')[0]
    endless = json.dumps("a" * 60 + "!")
    assert problems(slug, endless) == [
        "it cannot be compared with the schema: its patterns take too long for this answer"
    ]


def _finish(tools: tuple[dict[str, Any], ...] | None) -> dict[str, Any]:
    return next(one["function"]["parameters"] for one in tools or () if one["function"]["name"] == "finish")


def test_a_native_finish_takes_an_answer_of_that_form_and_then_it_is_asked_for_alone() -> None:
    judge = OutputSchema()
    protocol = SchemaAnswers(NativeAnswers(), SCHEMA, judge)
    asked = protocol.constrain(ASKED, TOOLS)
    assert _finish(asked.tools)["properties"]["answer"] == SCHEMA
    assert asked.schema_ is None
    call = {"function": {"name": "finish", "arguments": '{"answer": {"lines": 3}}'}}
    said = protocol.read(ModelAnswer(content="", tool_calls=(call,)), TOOLS)
    assert said.steps[0].action == Finish(answer='{"lines": 3}')
    judge.alone = True
    again = protocol.constrain(ASKED, TOOLS)
    assert (again.tools, again.schema_) == (asked.tools, SCHEMA)
    for text in ('{"lines": 3, "names": ["shell"]}', '{"tool": "finish", "answer": {"lines": 3}}'):
        said = protocol.read(ModelAnswer(content=text), TOOLS)
        assert said.steps[0].action == Finish(answer=text if "names" in text else '{"lines": 3}')


def test_as_json_the_server_holds_it_in_the_action() -> None:
    asked = SchemaAnswers(JsonAnswers(), SCHEMA, OutputSchema()).constrain(ASKED, TOOLS).schema_
    assert asked is not None
    shell, finish = asked["properties"]["action"]["anyOf"]
    assert finish["properties"]["answer"]["properties"]["lines"] == {"type": "integer"}
    assert shell["properties"]["command"] == {"type": "string"}
    assert JsonAnswers().constrain(ASKED, TOOLS).schema_["properties"]["action"]["anyOf"][1] != finish  # type: ignore[index]


def test_every_protocol_is_told_it_in_the_prompt() -> None:
    for inner in (NativeAnswers(), JsonAnswers(), FencedAnswers()):
        protocol = SchemaAnswers(inner, SCHEMA, OutputSchema())
        assert protocol.instructions(TOOLS).startswith(inner.instructions(TOOLS))
        assert json.dumps(SCHEMA) in protocol.instructions(TOOLS)
    assert SchemaAnswers(FencedAnswers(), SCHEMA, OutputSchema()).constrain(ASKED, TOOLS) == FencedAnswers().constrain(
        ASKED, TOOLS
    )
