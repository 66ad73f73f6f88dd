"""The Planner's answers, as models give them; and a profile for a task."""

import json

import pytest

from stockade.core.actions import Answer, Shell, Step, Thoughts
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import ModelAnswer
from stockade.plugins.planner.answers import MAX_PLAN_STEPS, PlanAnswers, schema
from stockade.plugins.planner.bot import MAX_DIRECTIVES, MAX_NAME_CHARS, profile_request, read_profile

TOOLS = ("shell", "write_file", "finish")
LS = {"tool": "shell", "command": "ls"}
WHOLE = Thoughts(text="Look.", reasoning="I know nothing.", plan=("look", "count"), criticism="Slow.", speak="I look.")


def read(value: object) -> Answer:
    return PlanAnswers().read(ModelAnswer(content=value if isinstance(value, str) else json.dumps(value)), TOOLS)


def test_all_thoughts_come_back() -> None:
    answer = Answer(thought="Look.", thoughts=WHOLE, steps=(Step(action=Shell(command="ls")),))
    assert read(PlanAnswers().write(answer).content) == answer


@pytest.mark.parametrize(
    "value",
    [
        {"thoughts": "just words", "action": LS},
        {"thought": "just words", "action": LS},
        {"thoughts": {"text": "just words"}, "tool": "shell", "command": "ls"},
        {"thoughts": {"text": "just words"}, "action": "shell", "command": "ls"},
        'Here:\n```json\n{"thoughts": {"text": "just words"}, "action": {"tool": "shell", "command": "ls"},}\n```',
    ],
)
def test_lenient_reading(value: object) -> None:
    answer = read(value)
    assert answer.thought == "just words"
    assert answer.steps[0].action == Shell(command="ls")


@pytest.mark.parametrize("thoughts", [None, [], 7, {}, {"text": None, "plan": {"a": 1}}, {"plan": [1, None]}])
def test_thoughts_of_another_form_are_left_out(thoughts: object) -> None:
    answer = read({"thoughts": thoughts, "action": LS})
    assert answer.thoughts is None
    assert answer.thought is None


@pytest.mark.parametrize(
    "value", [{"thoughts": {"text": "x"}}, {"thoughts": {"text": "x"}, "command": {}}, {"thoughts": {"command": "ls"}}]
)
def test_no_action_is_no_success(value: object) -> None:
    with pytest.raises(UnreadableAnswer):
        read(value)


def test_the_schema_is_small_and_names_every_part() -> None:
    made = schema(TOOLS)
    assert list(made["properties"]) == ["thoughts", "action"]
    assert set(made["properties"]["thoughts"]["required"]) == set(Thoughts.model_fields)
    assert made["properties"]["thoughts"]["properties"]["plan"]["maxItems"] == MAX_PLAN_STEPS
    assert len(json.dumps(made)) < 2000


PROFILE = {"name": "Counter", "role": "an expert for lines", "constraints": ["a"], "best_practices": ["b", "b", " "]}


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(PROFILE),
        f"Sure!\n```json\n{json.dumps(PROFILE)}\n```",
        json.dumps(PROFILE)[:-1],
    ],
)  # fmt: skip
def test_a_profile_is_read_leniently(content: str) -> None:
    found = read_profile(ModelAnswer(content=content))
    assert (found.name, found.role) == ("Counter", "an expert for lines")
    assert (found.constraints, found.best_practices, found.resources) == (("a",), ("b",), ())


@pytest.mark.parametrize(
    "content", ["", "I am a bot.", "[]", "{}", '{"name": "x"}', '{"name": "", "role": "y"}', "{" * 9999]
)
def test_what_is_no_profile_is_an_error(content: str) -> None:
    with pytest.raises(UnreadableAnswer):
        read_profile(ModelAnswer(content=content))


def test_a_hostile_profile_is_bounded_and_printable() -> None:
    many = {
        "name": "a\x1b[31m" * 500,
        "role": "b\n\r\tc" * 9999,
        "constraints": [f"{n}" * 9999 for n in range(99)] + [7],
    }
    found = read_profile(ModelAnswer(content=json.dumps(many)))
    assert len(found.name) == MAX_NAME_CHARS
    assert len(found.constraints) == MAX_DIRECTIVES
    assert all(text.isprintable() for text in (found.name, found.role, *found.constraints))


def test_the_question_holds_the_task_and_is_bounded() -> None:
    asked = profile_request("count\n" * 99999)
    assert sum(len(message.content) for message in asked.messages) < 6000
    assert asked.schema_ is not None
