"""The conversation only grows, and what was sent once is the same object when it is sent again."""

from stockade.answers.json_schema import JsonAnswers
from stockade.core.actions import Answer, Shell, Step
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    HistoryCompacted,
    MessageInjected,
    ModelAnswered,
)
from stockade.core.messages import Message, ModelAnswer
from stockade.loop.context import Context
from stockade_sandbox.results import CommandOutput
from tests.unit.loop.helpers import started

STEP = Step(action=Shell(command="ls"))


def turn(context: Context, number: int) -> None:
    context.apply(AnswerUnderstood(at=0, turn=number, answer=Answer(steps=(STEP,))))
    context.apply(ActionStarted(at=0, turn=number, step=0, action=STEP))
    context.apply(ActionFinished(at=0, turn=number, step=0, observation=CommandOutput(exit_code=0)))


def test_what_was_sent_is_sent_again_as_the_same_object() -> None:
    context = Context(JsonAnswers())
    context.apply(started())
    turn(context, 1)
    context.apply(MessageInjected(at=0, turn=2, source="loop", text="Do something else."))
    before = context.messages()
    assert before[-1].content.endswith("\n\nDo something else.")
    turn(context, 2)
    after = context.messages()
    assert len(after) == len(before) + 2
    assert all(new is old for new, old in zip(after, before, strict=False))


def test_a_correction_is_a_message_of_its_own_that_stays() -> None:
    context = Context(JsonAnswers())
    context.apply(started())
    before = context.messages()
    context.apply(ModelAnswered(at=0, turn=1, answer=ModelAnswer(content="?")))
    context.apply(AnswerUnreadable(at=0, turn=1, attempt=1, message="no action"))
    corrected = context.messages()
    assert corrected == (*before, Message(role="user", content="Your answer could not be read: no action"))
    turn(context, 2)
    assert context.messages()[: len(corrected)] == corrected


def test_folding_changes_what_is_sent() -> None:
    context = Context(JsonAnswers())
    context.apply(started())
    for number in range(1, 7):
        turn(context, number)
    whole = context.messages()
    context.apply(HistoryCompacted(at=0, turn=7, before_turn=4))
    assert len(context.messages()) == len(whole)
    assert context.messages()[-1] == whole[-1]
