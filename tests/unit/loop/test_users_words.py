"""What the user said stays whole: answers, refusals and messages come through real compaction word for word."""

import pytest

from stockade.answers.json_schema import JsonAnswers
from stockade.answers.native_tools import NativeAnswers
from stockade.core.actions import Action, Shell
from stockade.core.budget import Budget
from stockade.core.events import HistoryCompacted
from stockade.core.messages import ModelAnswer, ModelRequest
from stockade.loop.run import run
from stockade.testing import MemorySandbox, ScriptedModel, say
from stockade_sandbox.results import Chunk, CommandOutput
from tests.unit.loop.helpers import TOOLS, Bench, started

pytestmark = pytest.mark.anyio
ANSWER = f"Use the port 8081, and no other.\nThe reason: {'x' * 300}"
REFUSAL = f"never remove data.csv\nI need it {'y' * 200}"
WORD = f"and mind the umlauts: äöü {'z' * 200}"
QUESTION, REMOVE = "Which port shall I use?", "rm data.csv"


class User:
    """Answers a question; refuses to remove."""

    attended = True

    async def ask(self, question: str) -> str:
        return ANSWER

    async def judge(self, action: Action) -> str | None:
        return REFUSAL if isinstance(action, Shell) and action.command == REMOVE else None


def long(_: str) -> CommandOutput:
    return CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", b"many words of no worth " * 40),))


def bench(window: int, model: ScriptedModel | None = None) -> Bench:
    user = User()
    asks = say("ask_user", question=QUESTION)
    answers = [asks, say("shell", command=REMOVE), *(say("shell", command=f"cat f{n}") for n in range(30))]
    script = [*answers, say("finish", answer="x")]
    if model is not None:
        model._answers = list(script)
    made = Bench(script, MemorySandbox(on_command=long), window, approver=user, model=model)
    for key, value in (("asker", user), ("tools", (*TOOLS, "ask_user"))):
        object.__setattr__(made.parts, key, value)
    made.parts.pause.words.append(WORD)
    return made


def text(request: ModelRequest) -> str:
    return "\n".join(message.content for message in request.messages)


async def check(made: Bench, model: ScriptedModel) -> None:
    finished = await run(started(budget=Budget(max_turns=0)), made.parts)
    assert finished.status == "done", finished.detail
    folded = [event for event in made.shown if isinstance(event, HistoryCompacted)]
    assert folded
    for request in model.requests[2:]:
        for words in (ANSWER, REFUSAL):
            assert text(request).count(words) == 1
    for request in model.requests:
        assert text(request).count(WORD) == 1
    last = model.requests[-1].messages
    assert sum("cat f" in message.content for message in last) < 30  # the rest is in short
    before_answer = next(message for message in last if ANSWER in message.content)
    assert QUESTION in before_answer.content  # "yes" alone says nothing
    assert any(REMOVE in message.content and REFUSAL in message.content for message in last)


@pytest.mark.parametrize("window", [2048, 4096])
@pytest.mark.parametrize("protocol", [JsonAnswers(), NativeAnswers()])
async def test_compaction_leaves_what_the_user_said(window: int, protocol: JsonAnswers | NativeAnswers) -> None:
    """On 90cacfa answers and refusals shrank to a line, and then went."""
    made = bench(window)
    object.__setattr__(made.parts, "protocol", protocol)
    await check(made, made.script)


class Summing(ScriptedModel):
    """Has a model beside it that says in short what was."""

    async def shorten(self, words: str) -> ModelAnswer:
        return ModelAnswer(content="files were read")


async def test_a_summary_leaves_it_too() -> None:
    model = Summing([], 2048)
    await check(bench(2048, model), model)
