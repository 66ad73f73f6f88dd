"""Hooks in the coder's loop, with a scripted model in the real sandbox; what they did is read from the record too."""

from pathlib import Path

import pytest

from stockade.core.actions import Action, Finish, Observation, Refused, Shell, Step
from stockade.core.events import ActionFinished, HookRan
from stockade.core.messages import Sampling
from stockade.loop.hooks import AddMessage, AddWords, EndRun, Hook, HookContext, Refuse, SendBack
from stockade.plugins.coder.loop import progress_of
from stockade.plugins.coder.work import Plan
from tests.unit.plugins.coder.test_loop import BROKEN, GOOD, TASK, Done, code

pytestmark = pytest.mark.anyio
OTHER = "```python\ndef add(a, b):\n    return sum((a, b))\n```"
THIRD = "```python\ndef add(a, b):\n    return b + a\n```"


def folded(done: Done) -> list[tuple[str, bool, str]]:
    """The attempts as the record has them."""
    attempts = progress_of(done.events, done.coder.executor).attempts
    return [(one.code, one.verdict.passed, one.verdict.words) for one in attempts]


def live(done: Done) -> list[tuple[str, bool, str]]:
    return [(one.code, one.verdict.passed, one.verdict.words) for one in done.coder.attempts]


class NoShell(Hook):
    name = "no_shell"

    async def before_action(self, ctx: HookContext, action: Action) -> Refuse | None:
        return Refuse("no command is run here") if isinstance(action, Shell) else None


async def test_a_refused_action_is_an_attempt_that_was_not_run(tmp_path: Path) -> None:
    done = await code(tmp_path, [GOOD, OTHER], plan=Plan(rounds=2), hooks=(NoShell(),))
    assert (done.finished.status, done.finished.reason) == ("done", "check_failed")
    assert (
        [one[2] for one in live(done)]
        == ["The program was not run: no command is run here"] * 2
        == [one[2] for one in folded(done)]
    )
    refused = [one.observation for one in done.events if isinstance(one, ActionFinished)]
    assert [one.by for one in refused if isinstance(one, Refused)] == ["no_shell"] * 2
    assert "no command is run here" in done.model.requests[1].messages[-1].content


class Says(Hook):
    """Speaks before each turn and behind each command, and draws at its own temperature."""

    name = "says"

    async def before_turn(self, ctx: HookContext) -> AddMessage:
        ran = await ctx.exec(["echo", "Names are short."])
        return AddMessage(f"{ran.stdout.decode().strip()} {ctx.state.turns}")

    async def after_action(self, ctx: HookContext, step: Step, observation: Observation) -> AddWords | None:
        return AddWords("seen") if isinstance(step.action, Shell) else None

    def sampling(self, ctx: HookContext, sampling: Sampling) -> Sampling:
        return sampling.model_copy(update={"top_p": 0.5, "seed": 99})


async def test_its_words_and_its_sampling_reach_the_model(tmp_path: Path) -> None:
    done = await code(tmp_path, [BROKEN, GOOD], hooks=(Says(),))
    first, second = done.model.requests
    assert (done.finished.reason, done.result.status) == ("finish", "success")
    assert "Names are short. 0" in first.messages[1].content
    assert second.messages[: len(first.messages)] == first.messages
    assert "Names are short. 1" in second.messages[3].content
    assert [(one.sampling.top_p, one.sampling.seed) for one in done.model.requests] == [(0.5, 99), (0.5, 99)]
    assert [one.hook for one in done.events if isinstance(one, HookRan)] == ["says", "says"]
    behind = [one.words[0].text for one in done.events if isinstance(one, ActionFinished) and one.words]
    assert behind == ["seen", "seen"]
    assert live(done) == folded(done)


class Sum(Hook):
    """Wants a program that uses `sum`."""

    name = "wants_sum"

    async def before_finish(self, ctx: HookContext, finish: Finish) -> SendBack | None:
        return None if "sum(" in finish.answer else SendBack("Use sum.")


async def test_a_program_that_passes_can_be_sent_back(tmp_path: Path) -> None:
    done = await code(tmp_path, [GOOD, OTHER], hooks=(Sum(),))
    assert (done.finished.reason, done.finished.verified, done.nudges) == ("finish", True, ["wants_sum", "repair"])
    assert "sum(" in (done.finished.answer or "")
    first, second = done.model.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert [second.messages[-1].content.count("Use sum."), second.messages[2].content] == [1, GOOD]
    assert live(done) == folded(done)
    assert [one[1] for one in folded(done)] == [False, True]


async def test_what_is_always_sent_back_is_no_success(tmp_path: Path) -> None:
    done = await code(tmp_path, [GOOD, THIRD], plan=Plan(rounds=2), hooks=(Sum(),))
    assert (done.finished.status, done.finished.reason, done.finished.verified) == ("done", "check_failed", False)
    assert "2 attempts failed, the best passes 1 of 1 checks: Use sum." in done.finished.detail
    assert done.result.status == "error"
    assert live(done) == folded(done)


class Ends(Hook):
    """Ends the run at one moment."""

    name = "ends"

    def __init__(self, when: str) -> None:
        self.when = when

    def end(self, when: str) -> EndRun | None:
        return EndRun("stopped", "hook", f"enough {when}") if when == self.when else None

    async def before_turn(self, ctx: HookContext) -> EndRun | None:
        return self.end("before_turn") if ctx.state.turns else None

    async def before_action(self, ctx: HookContext, action: Action) -> EndRun | None:
        return self.end("before_action")

    async def before_finish(self, ctx: HookContext, finish: Finish) -> EndRun | None:
        return self.end("before_finish")


@pytest.mark.parametrize("when", ["before_turn", "before_action", "before_finish"])
async def test_it_ends_the_run_with_the_best_there_was(tmp_path: Path, when: str) -> None:
    done = await code(tmp_path, [BROKEN, GOOD], task=TASK, hooks=(Ends(when),))
    assert (done.finished.status, done.finished.reason) == ("stopped", "hook")
    assert (done.finished.detail, done.finished.verified) == (f"enough {when}", False)
    assert done.finished.answer == {"before_turn": BROKEN, "before_action": None, "before_finish": GOOD}[when] or (
        done.finished.answer is not None and "def add" in done.finished.answer
    )
