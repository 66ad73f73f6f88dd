"""`--output-schema` on the real command: an answer that fits, one that is asked for again, one that never comes."""

import json
import os
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import COUNT, Ended, Stage
from tests.support.strong_model import Turn, finish, strong_model

SCHEMA = {"type": "object", "properties": {"lines": {"type": "integer"}}, "required": ["lines"]}
FITS = say("finish", answer='{"lines": 3}')
WORDS = say("finish", answer="3 lines")


@pytest.fixture
def schema(tmp_path: Path) -> str:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return str(path)


def test_it_is_asked_for_again_with_what_is_wrong_and_then_stdout_fits(stage: Stage, schema: str) -> None:
    ended = stage.run(
        COUNT, WORDS, FITS, flags=("--output-schema", schema, "--check", "test -s count.txt", "--no-input")
    )
    assert (ended.status, ended.out) == (0, '{"lines": 3}\n'), ended.err
    events = stage.call("runs", "show", "--json").events
    assert events[0]["output_schema"] == SCHEMA
    told = [event for event in events if event["type"] == "message_injected"]
    assert [(event["source"], "it is no JSON" in event["text"]) for event in told] == [("output_schema", True)]


def test_where_it_never_fits_the_status_says_so_and_stdout_is_empty(stage: Stage, schema: str) -> None:
    ended = stage.run(*[WORDS] * 3, flags=("--output-schema", schema))
    assert (ended.status, ended.out) == (1, "")
    assert "3 answers did not fit the output schema" in ended.err
    resumed = stage.call("runs", "resume", "last", "Once more.", "--model", stage.script(WORDS, FITS, name="more"))
    assert (resumed.status, resumed.out) == (0, '{"lines": 3}\n'), resumed.err
    gave_up = stage.run(say("finish", answer="no", gave_up=True), flags=("--output-schema", schema))
    assert (gave_up.status, gave_up.out) == (1, "no\n")


def test_a_broken_one_is_told_in_one_line_and_nothing_begins(stage: Stage) -> None:
    broken = stage.tmp_path / "broken.json"
    broken.write_text('{"type": "zap"}')
    ended = stage.run(FITS, flags=("--output-schema", str(broken)))
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.splitlines()[0].startswith(f"stockade: the output schema {broken} is no JSON schema: ")
    assert not os.listdir(stage.state / "runs")


def test_a_server_is_told_the_form(stage: Stage, schema: str) -> None:
    turns: list[Turn] = [[finish("3 lines")], '{"lines": 3}']
    with strong_model(turns) as model, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", model.base_url)
        flags = ("--folder", str(stage.demo), "-m", "openai/strong", "-o", "answers=native", "--output-schema", schema)
        ended: Ended = stage.call("run", "count", *flags)
        first, again = (one.body for one in model.turns)
    assert (ended.status, ended.out) == (0, '{"lines": 3}\n'), ended.err
    declared = next(one for one in first["tools"] if one["function"]["name"] == "finish")
    assert declared["function"]["parameters"]["properties"]["answer"] == SCHEMA
    assert ("response_format" in first, "tool_choice" in first) == (False, False)
    assert again["response_format"]["json_schema"]["schema"] == SCHEMA
    assert (again["tool_choice"], again["tools"]) == ("none", first["tools"])
    assert again["messages"][: len(first["messages"])] == first["messages"]
