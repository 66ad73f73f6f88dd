"""Tools in every protocol: each parameter is shown as its schema says, and what does not fit it is refused."""

import json
from typing import Any

import pytest

from stockade.core.actions import ToolCall
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import ModelAnswer, ModelRequest
from stockade.core.tools import ToolSpec
from tests.support.parts import PROTOCOLS, make_protocol

SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"Place": {"type": "object", "description": "where to", "required": ["row"], "properties": {
        "row": {"type": "integer", "description": "from the top"}, "far/off": {"$ref": "#/$defs/Far"}}},
        "Far": {"enum": ["near", "nowhere"]}, "Ring": {"$ref": "#/$defs/Ring"}},
    "properties": {
        "text": {"type": "string", "description": "what the note says"},
        "n": {"type": "integer", "description": "how many copies", "minimum": 1, "default": 2},
        "loud": {"type": "boolean"},
        "where": {"$ref": "#/$defs/Place"},
        "many": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
        "ring": {"$ref": "#/$defs/Ring"},
        "until": {"anyOf": [{"type": "number"}, {"type": "null"}]},
    },
    "required": ["text"],
}  # fmt: skip
NOTE = ToolSpec(name="note", description="Writes a note.", parameters=SCHEMA)
TOOLS = ("shell", "read_file", "write_file", "edit_file", "finish", NOTE)
PLACE = 'object {row (integer: from the top), far/off? (one of "near", "nowhere")}'
IN_WORDS = (
    "text (text: what the note says)", "n (integer, at least 1, default 2: how many copies)", "loud (boolean)",
    f"where ({PLACE}: where to)", f"many (array of {PLACE})", "ring (any)", "until (number or null)",
    "timeout", "replace_all",
)  # fmt: skip


def written(name: str, arguments: dict[str, Any]) -> ModelAnswer:
    call = json.dumps({"tool": "note", "arguments": arguments})
    match name:
        case "use-tool":
            line = ", ".join(f"{key}={value if isinstance(value, str) else json.dumps(value)}"
                             for key, value in arguments.items())  # fmt: skip
            return ModelAnswer(content=f"USE_TOOL: note, {line}")
        case "fenced":
            return ModelAnswer(content=f"```note\n{json.dumps(arguments)}\n```")
        case "sections":
            return ModelAnswer(content=f"### Action\n{call}")
        case "list":
            return ModelAnswer(content=f"[{call}]")
        case "json" | "plan":
            return ModelAnswer(content=json.dumps({"thoughts": {"text": "x"}, "action": json.loads(call)}))
        case _:
            return native(arguments)


def native(arguments: dict[str, Any]) -> ModelAnswer:
    function = {"name": "note", "arguments": json.dumps(arguments)}
    return ModelAnswer(content="", tool_calls=({"function": function},))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_parameter_is_shown_as_the_schema_says(name: str) -> None:
    """On 90cacfa optional parameters, types and descriptions were nowhere in the prompts of json, use-tool, fenced."""
    protocol = make_protocol(name)
    request = protocol.constrain(ModelRequest(messages=()), TOOLS)
    if request.tools:
        (declared,) = [one["function"] for one in request.tools if one["function"]["name"] == "note"]
        assert declared["parameters"] == SCHEMA
        assert "timeout" in json.dumps(request.tools)
        return
    prompt = protocol.instructions(TOOLS)
    assert [words for words in IN_WORDS if words not in prompt] == []


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"text": "hi", "n": "three"}, 'n: wanted an integer, got "three"'),
        ({"text": "hi", "n": 0}, "n: wanted minimum 1, got 0"),
        ({"n": 1}, "text: missing"),
        ({"text": "hi", "where": {"row": "x"}}, 'where.row: wanted an integer, got "x"'),
    ],
    ids=["type", "bound", "missing", "inside"],
)
def test_arguments_that_do_not_fit_are_refused(name: str, wrong: dict[str, Any], why: str) -> None:
    """On 90cacfa `n=three` passed for an integer."""
    for answer in (written(name, wrong), native(wrong)):
        with pytest.raises(UnreadableAnswer, match=why):
            make_protocol(name).read(answer, TOOLS)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_arguments_that_fit_arrive(name: str) -> None:
    right = {"text": "4", "n": 3, "until": 1.5, "where": {"row": 1, "far/off": "near"}}
    for answer in (written(name, right), native(right)):
        (step,) = make_protocol(name).read(answer, TOOLS).steps
        assert step.action == ToolCall(name="note", arguments=right)
