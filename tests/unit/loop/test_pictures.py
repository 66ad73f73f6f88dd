"""Pictures that tools give: behind all results of their turn, alike after a resume, not for a model that sees none."""

import pytest

from stockade.answers.json_schema import JsonAnswers
from stockade.answers.native_tools import NativeAnswers
from stockade.core.actions import Answer, Step, ToolCall, ToolResult
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    HistoryCompacted,
    ModelAnswered,
    ModelStarted,
    RunEvent,
)
from stockade.core.messages import Image, ModelAnswer, ModelInfo
from stockade.core.ports import AnswerProtocol
from stockade.loop.context import Context
from tests.unit.loop.helpers import started

STEPS = tuple(Step(action=ToolCall(name=name)) for name in ("shot", "look"))
WITH = ToolResult(status="data", text="taken", images=(Image(name="shot 1", media_type="image/jpeg", base64="/9j/"),))


def turn(number: int, *results: ToolResult) -> list[RunEvent]:
    done: list[RunEvent] = [
        ModelAnswered(at=0, turn=number, answer=ModelAnswer(content="")),
        AnswerUnderstood(at=0, turn=number, answer=Answer(steps=STEPS[: len(results)])),
    ]
    for place, result in enumerate(results):
        done.append(ActionStarted(at=0, turn=number, step=place, action=STEPS[place]))
        done.append(ActionFinished(at=0, turn=number, step=place, observation=result))
    return done


def model(*, sees: bool | None) -> ModelStarted:
    return ModelStarted(at=0, info=ModelInfo(name="m", provider="p", sees=sees))


TWO: list[RunEvent] = [started(), model(sees=True), *turn(1, WITH, ToolResult(status="data", text="seen"))]


@pytest.mark.parametrize("protocol", [NativeAnswers(), JsonAnswers()])
def test_what_is_sent_live_is_what_is_sent_after_a_resume(protocol: AnswerProtocol) -> None:
    unreadable: list[RunEvent] = [
        ModelAnswered(at=0, turn=2, answer=ModelAnswer(content="?")),
        AnswerUnreadable(at=0, turn=2, attempt=1, message="no action"),
    ]
    events = [*TWO, *unreadable, *turn(2, ToolResult(status="data", text="more")), *turn(3, WITH)]
    live, again, sent = Context(protocol), Context(protocol), []
    for event in events:
        if isinstance(event, ModelAnswered):
            live.tokens()
            sent.append(live.messages())
        live.apply(event)
        again.apply(event)
    assert live.messages() == again.messages()
    assert (live.images, again.images) == (2, 2)
    for before, after in zip(sent, [*sent[1:], live.messages()], strict=True):
        assert after[: len(before)] == before, "the prompt only grows"


def test_it_stands_behind_all_results_of_its_turn() -> None:
    context = Context(NativeAnswers())
    for event in TWO:
        context.apply(event)
    roles = [(message.role, len(message.images)) for message in context.messages()]
    assert roles[-4:] == [("assistant", 0), ("tool", 0), ("tool", 0), ("user", 1)]
    assert "shot 1" in context.messages()[-1].content


def test_a_model_that_does_not_see_is_told_so() -> None:
    context = Context(NativeAnswers())
    for event in (started(), model(sees=False), *turn(1, WITH)):
        context.apply(event)
    assert context.images == 0
    assert context.messages()[-1].content == "You do not see pictures: shot 1"


def test_folding_takes_it_away() -> None:
    context = Context(NativeAnswers())
    for event in (*TWO, *turn(2, WITH), *turn(3, WITH)):
        context.apply(event)
    context.apply(HistoryCompacted(at=0, turn=4, before_turn=3))
    assert context.images == 1
