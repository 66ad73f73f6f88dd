"""A coder's run goes on from wherever its record was cut: every beginning of a whole record is tried."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from stockade.core.budget import Budget
from stockade.core.errors import UsageError
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    MessageInjected,
    ModelAnswered,
    RunEvent,
    RunResumed,
    RunStarted,
)
from stockade.core.messages import ModelRequest, Sampling
from stockade.loop.resume import resume
from stockade.loop.run import run
from stockade.loop.run_context import Dependencies
from stockade.plugins.coder.answers import SectionAnswers
from stockade.plugins.coder.bot import CODER, Wanted, make_coder, wanted_of
from stockade.plugins.coder.loop import Coder, progress_of
from stockade.plugins.coder.prompts import system
from stockade.plugins.coder.work import Attempt, Plan
from stockade.runtime.records import SystemClock
from stockade.runtime.sandboxes import open_sandbox
from stockade.testing import MemoryStore, ScriptedModel
from stockade_sandbox.policy import Policy

pytestmark = pytest.mark.anyio
GOOD = "```python\ndef add(a, b):\n    return a + b\n```"
WRONG = "```python\ndef add(a, b):\n    return a - b\n```"
BROKEN = "```python\ndef add(a, b):\n    return a + b\n\nadd = nothing\n```"
WORDS = "I am sorry."
TASK = "Write add(a, b). add(1, 2) == 3"
WANTED = Wanted(plan=Plan(repairs=2, fresh_starts=1))
STARTED = RunStarted(
    at=time.time(), version="0", run_id="r1", task=TASK, bot="coder", model="scripted/x", answers="sections",
    sandbox="bubblewrap", policy=CODER.bot.policy(Policy()), budget=Budget(max_turns=0, timeout_s=0),
    sampling=Sampling(temperature=0.0), system_prompt=system(wants_example=False),
)  # fmt: skip


class Went:
    """A run that came to its end."""

    def __init__(self, coder: Coder, events: Sequence[RunEvent], requests: Sequence[ModelRequest]) -> None:
        self.coder, self.events, self.requests = coder, events, requests

    @property
    def attempts(self) -> list[Attempt]:
        facts = {"duration_s": 0.0}
        return sorted((one.model_copy(update=facts) for one in self.coder.attempts), key=lambda one: one.number)

    @property
    def nudges(self) -> list[tuple[str, str]]:
        return [(event.source, event.text) for event in self.events if isinstance(event, MessageInjected)]


async def go(tmp_path: Path, answers: Sequence[str], plan: Plan, history: Sequence[RunEvent] = ()) -> Went:
    """From the beginning, or on from `history`."""
    wanted = WANTED.model_copy(update={"plan": plan})
    coder = make_coder(wanted, STARTED.policy, TASK)
    sandbox = open_sandbox(STARTED.policy, "bubblewrap", tmp_path / f"layers-{len(history)}")
    model, store = ScriptedModel(answers), MemoryStore()
    parts = Dependencies(model, SectionAnswers(), sandbox, store, SystemClock(), (), bot=coder)
    if not history:
        await run(STARTED, parts)
    else:
        coder.progress = progress_of(history, coder.executor)
        again = RunResumed(at=time.time(), version="0", model="x", sandbox="bubblewrap", budget=STARTED.budget)
        await store.append("r1", history)
        await resume(history, again, parts)
    return Went(coder, await store.events("r1"), model.requests)


@pytest.mark.parametrize(
    ("answers", "plan", "step"),
    [
        ((WRONG, BROKEN, WORDS, GOOD), WANTED.plan, 1),
        ((WRONG, WRONG, BROKEN, BROKEN), Plan(repairs=1, fresh_starts=1), 3),
    ],
    ids=["mended", "given up"],
)
async def test_cut_anywhere_it_comes_to_the_same_end_and_no_answer_is_asked_for_twice(
    tmp_path: Path, answers: Sequence[str], plan: Plan, step: int
) -> None:
    whole = await go(tmp_path, answers, plan)
    assert len(whole.requests) == len(answers)
    for length in range(3, len(whole.events), step):
        history = whole.events[:length]
        known = sum(isinstance(event, ModelAnswered) for event in history)
        cut = await go(tmp_path, answers[known:], plan, history)
        where = f"cut after {length} events, the last is {history[-1].type}"
        assert [request.sampling for request in cut.requests] == [
            request.sampling for request in whole.requests[known:]
        ], where
        assert [request.messages for request in cut.requests] == [
            request.messages for request in whole.requests[known:]
        ], where
        assert cut.attempts == whole.attempts, where
        assert cut.nudges == whole.nudges, where
        assert cut.events[-1].model_copy(update={"at": 0}) == whole.events[-1].model_copy(update={"at": 0}), where


def test_a_record_that_does_not_say_how_it_was_checked_is_named() -> None:
    with pytest.raises(UsageError, match="does not hold what it was checked by"):
        wanted_of(STARTED)
    kept = STARTED.model_copy(update={"options": {"coder": WANTED.model_dump(mode="json")}})
    assert wanted_of(kept) == WANTED


async def test_an_attempt_in_flight_is_run_again_and_one_that_was_done_is_not(tmp_path: Path) -> None:
    whole = await go(tmp_path, (WRONG, GOOD), WANTED.plan)
    place = next(
        number
        for number, event in enumerate(whole.events)
        if isinstance(event, ActionStarted) and (event.turn, event.action.comment) == (2, "run")
    )
    cut = await go(tmp_path, (), WANTED.plan, whole.events[: place + 1])
    behind = cut.events[place + 1 :]
    assert isinstance(behind[0], ActionFinished)
    assert behind[0].observation.kind == "unknown"
    assert {event.turn for event in behind if isinstance(event, AnswerUnderstood)} == {2}
    assert cut.attempts == whole.attempts
    twice = await go(tmp_path, (), WANTED.plan, cut.events[: place + 6])  # cut again, behind an unknown one
    assert twice.attempts == whole.attempts
