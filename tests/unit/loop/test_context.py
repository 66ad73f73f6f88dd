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
from stockade.core.messages import Message, ModelAnswer, Reasoning, Usage
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


def answered(number: int, *, changed: bool = False, thinking: int = 0) -> ModelAnswered:
    item = {"type": "thinking", "thinking": f"of {number}", "signature": "s"}
    return ModelAnswered(at=0, turn=number, answer=ModelAnswer(
        content="", reasoning=Reasoning(form="anthropic", items=(item,), changed=changed),
        usage=Usage(prompt_tokens=1000, completion_tokens=thinking, thinking_tokens=thinking),
    ))  # fmt: skip


def test_what_a_provider_wants_back_goes_with_its_answer_and_no_other() -> None:
    context = Context(JsonAnswers())
    context.apply(started())
    context.apply(answered(1))
    turn(context, 1)
    context.apply(answered(2))
    context.apply(AnswerUnreadable(at=0, turn=2, attempt=1, message="no action"))
    context.apply(ModelAnswered(at=0, turn=3, answer=ModelAnswer(content="")))
    turn(context, 3)
    context.apply(answered(4, changed=True))
    turn(context, 4)
    sent = [message.reasoning for message in context.messages() if message.role == "assistant"]
    assert [reasoning and reasoning.items[0]["thinking"] for reasoning in sent] == ["of 1", None, None]


def test_thinking_that_goes_back_counts_by_its_tokens() -> None:
    counts = []
    for thinking, changed in ((0, False), (500, False), (500, True)):
        context = Context(JsonAnswers())
        context.apply(started())
        context.apply(answered(1, changed=changed, thinking=thinking))
        counts.append(context.tokens())
    assert counts == [1000, 1500, 1000]
