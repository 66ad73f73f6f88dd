"""Real answers of small models, and hostile ones made by rules.

tests/data/answers/MODEL-PROTOCOL.jsonl: one answer a line; `expect` is the list of actions it should read as, or null
where it must be refused. It was set by rules that share nothing with the readers, and by hand where the two did not
agree.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from stockade.core.actions import Action, InvalidCall
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import ModelAnswer
from tests.support.parts import PROTOCOLS, make_protocol

FILES = sorted((Path(__file__).parents[2] / "data" / "answers").glob("*.jsonl"))
TOOLS = ("shell", "write_file", "finish")


def protocol_of(path: Path) -> str:
    return next(name for name in sorted(PROTOCOLS, key=len, reverse=True) if path.stem.endswith(f"-{name}"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def check_message(error: UnreadableAnswer) -> None:
    assert error.message.isprintable(), error.message
    assert 0 < len(error.message) < 500


def read(name: str, answer: ModelAnswer) -> list[Action] | None:
    """The actions that are done; None for an answer that is refused in one printable line."""
    try:
        actions = [step.action for step in make_protocol(name).read(answer, TOOLS).steps]
        return [action for action in actions if not isinstance(action, InvalidCall)]
    except UnreadableAnswer as error:
        check_message(error)
        return None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_real_answers_read_as_they_should(path: Path) -> None:
    for line in lines(path):
        answer = ModelAnswer.model_validate({key: line[key] for key in ("content", "tool_calls", "finish_reason")})
        actions = read(protocol_of(path), answer)
        found = (
            None
            if actions is None
            else [action.model_dump(exclude_none=True, exclude={"gave_up"}) for action in actions]
        )
        assert found == line["expect"], line["content"]


def test_there_are_enough_of_them() -> None:
    assert {protocol_of(path) for path in FILES} == set(PROTOCOLS)
    assert sum(len(lines(path)) for path in FILES) >= 600
    assert sum(len(lines(path)) for path in FILES if path.stem.startswith("qwen")) >= 380


FRAMES = (
    "%s",
    "```bash\n%s",
    "```write_file a\n%s\n```",
    '{"thought": "x", "action": {"tool": "shell", "command": "%s"}}',
    '{"name": "shell", "arguments": %s}',
    "<tool_call>%s</tool_call>",
    'USE_TOOL: shell, command="%s"',
    "USE_TOOL: %s",
    "### Code\n%s",
    '[{"command": "%s"}]',
)
BITS = (
    "\x00",
    "\x1b[2J\x1b]0;owned\x07",
    "`" * 5000,
    "{" * 3000 + "}" * 3000,
    '\\"' * 3000 + "\\",
    "\u202e\u2066\ufeff" * 50,
    "\ud800",
    "### Code\n" * 500,
    "USE_TOOL: " * 500,
    "<<'EOF'\n" * 500,
    "9" * 6000,
    '{"tool": "finish", "answer": {"a": [null, 1e999, NaN]}}',
)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_hostile_answers_are_read_or_refused_and_what_is_read_stays_the_same(name: str) -> None:
    hostile = [frame.replace("%s", bit) for frame, bit in product(FRAMES, BITS)]
    assert len(hostile) >= 100
    protocol = make_protocol(name)
    for content in hostile:
        try:
            answer = protocol.read(ModelAnswer(content=content), TOOLS)
        except UnreadableAnswer as error:
            check_message(error)
            continue
        assert all(step.action.tool in TOOLS for step in answer.steps)
        message = protocol.write(answer)
        again = protocol.read(ModelAnswer(content=message.content, tool_calls=message.tool_calls or ()), TOOLS)
        assert [step.action for step in again.steps] == [step.action for step in answer.steps]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_hostile_tool_calls_are_refused(name: str) -> None:
    functions: list[object] = [
        None,
        [],
        "shell",
        {},
        {"name": 7},
        {"name": "shell", "arguments": [1]},
        {"name": "\x1b"},
    ]
    for function in functions:
        assert read(name, ModelAnswer(content="", tool_calls=({"id": "x", "function": function},))) is None
