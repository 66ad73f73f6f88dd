"""Trajectories are valid by somebody else's models, and hold what the record holds."""

import json

import pytest
from atif import Trajectory

from stockade.cli.export import report
from stockade.core.actions import Answer, Shell, Step
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    HistoryCompacted,
    MessageInjected,
    ModelAnswered,
    RunEvent,
    SelfConfigChanged,
)
from stockade.core.messages import Image, ModelAnswer, Sampling, Usage
from stockade.exports.atif import trajectory
from stockade.exports.spans import INPUT_TOKENS, spans
from stockade_sandbox.results import CommandOutput
from tests.unit.exports.sample import HOSTILE, sample_run
from tests.unit.loop.helpers import started


def test_what_folding_the_history_used_is_counted() -> None:
    folded = HistoryCompacted(at=2.0, turn=2, before_turn=1, usage=Usage(prompt_tokens=7, cost=0.5))
    answered = ModelAnswered(at=1.0, turn=1, answer=ModelAnswer(content="", usage=Usage(prompt_tokens=3)))
    events: list[RunEvent] = [started().model_copy(update={"used": Usage(prompt_tokens=1)}), answered, folded]
    metrics = trajectory(events)["final_metrics"]
    assert (metrics["total_prompt_tokens"], metrics["total_cost_usd"]) == (11, 0.5)
    assert "11 (0 from the cache)" in report(events, None)
    assert spans(events, content=False)[0].attributes[INPUT_TOKENS] == 11


@pytest.mark.anyio
async def test_a_run_is_a_valid_trajectory() -> None:
    events = await sample_run(again=True)
    document = json.loads(json.dumps(trajectory(events)))
    valid = Trajectory.model_validate(document)
    assert document["schema_version"] == "ATIF-v1.7"
    assert [step.source for step in valid.steps[:3]] == ["system", "user", "agent"]
    said = [step.message for step in valid.steps if step.source == "user"]
    assert said[0] == "Do it, please"
    assert "And more" in said
    calls = [call.function_name for step in valid.steps for call in step.tool_calls or []]
    assert calls == ["shell", "write_file", "finish", "shell", "finish"]
    assert valid.final_metrics is not None
    assert valid.final_metrics.total_prompt_tokens == sum(
        step.metrics.prompt_tokens or 0 for step in valid.steps if step.metrics
    )


@pytest.mark.anyio
async def test_results_belong_to_their_calls_and_are_whole() -> None:
    document = trajectory(await sample_run())
    turn = next(step for step in document["steps"] if step.get("tool_calls"))
    result = turn["observation"]["results"][0]
    assert result["source_call_id"] == turn["tool_calls"][0]["tool_call_id"]
    assert result["content"] == f"{HOSTILE}\\xff\n[exit status 1]"
    assert turn["reasoning_content"] == "Look *first*."
    assert document["extra"]["result"]["status"] == "done"
    unreadable = [step for step in document["steps"] if "unreadable" in step.get("extra", {})]
    assert len(unreadable) == 1


@pytest.mark.anyio
async def test_a_run_that_was_cut_is_a_trajectory_too() -> None:
    events = await sample_run()
    for end in range(1, len(events)):
        Trajectory.model_validate(trajectory(events[:end]))


def test_what_a_bot_without_an_end_sets_itself_and_its_intro_are_there() -> None:
    def step(turn: int, number: int, command: str) -> list[RunEvent]:
        action = Step(action=Shell(command=command))
        return [
            AnswerUnderstood(at=2.0, turn=turn, answer=Answer(steps=(action,))),
            ActionStarted(at=2.0, turn=turn, step=number, action=action),
            ActionFinished(at=2.0, turn=turn, step=number, observation=CommandOutput(exit_code=0)),
        ]

    events: list[RunEvent] = [started(), *step(0, 0, "ls"), *step(0, 1, "git init")]
    events.append(
        SelfConfigChanged(at=3.0, turn=1, goal="learn", sampling=Sampling(temperature=0.5), refused=("goal: no",))
    )
    events.append(ModelAnswered(at=4.0, turn=1, answer=ModelAnswer(content="[]")))
    events += step(1, 0, "pwd")
    events.append(MessageInjected(at=5.0, turn=2, source="shell_bot", text="round and round"))
    document = json.loads(json.dumps(trajectory(events)))
    valid = Trajectory.model_validate(document)
    calls = [call.tool_call_id for one in valid.steps for call in one.tool_calls or []]
    assert calls == ["0-0", "0-1", "1-0"]
    assert any("goal: learn; temperature 0.5; not taken: goal: no" in str(one.message) for one in valid.steps)
    assert valid.steps[-1].message == "round and round"


def test_images_are_mentioned_without_their_bytes() -> None:
    image = Image(name="dot.png", media_type="image/png", base64="aGk=")
    begun = started().model_copy(update={"images": (image,)})
    document = Trajectory.model_validate(trajectory([begun])).model_dump()
    assert document["steps"][1]["extra"]["images"] == [{"name": "dot.png", "media_type": "image/png", "kilobytes": 1}]
    assert "image: dot.png, image/png, 1 kB" in report([begun], None)
    (root,) = spans([begun], content=True)
    assert root.attributes["stockade.images"] == ("dot.png",)
    (hidden,) = spans([begun], content=False)
    assert "stockade.images" not in hidden.attributes
