"""The coder as a bot: how it is checked is on record with the start of its run, and what comes of it is folded from
there, so that one object drives any number of runs.
"""

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stockade.core.budget import Budget
from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    MessageInjected,
    RunEvent,
    RunResumed,
    RunStarted,
)
from stockade.extend import Bot, BotSpec, Ending, Narrator, RunContext, Setup
from stockade.plugins.coder.executor import RUNNER_AT, Executor
from stockade.plugins.coder.loop import FRESH_START, OURS, Coder, Fold, progress_of
from stockade.plugins.coder.program import wanted
from stockade.plugins.coder.prompts import system
from stockade.plugins.coder.work import Attempt, Job, Plan, Result, make_job, runner_folder
from stockade_sandbox.policy import WORKSPACE, FolderRule, Policy

NAME = "coder"
SOLUTION = "solution.py"
MAX_NAMES = 30
OFFLINE = "There is no network and nothing can be installed: use Python's standard library only."


class Wanted(Data):
    """How a task is checked, and for how long it is tried. `output`: the name of the program in the folder; `attempt_s`
    bounds one run of it, in seconds; `stdin` is what each run reads from its standard input.
    """

    tests: str = ""
    examples: tuple[str, ...] = ()
    plan: Plan = Plan()
    output: str = SOLUTION
    attempt_s: float = 10.0
    stdin: str = ""

    def job(self, task: str) -> Job:
        """UsageError for tests or examples that are not understood."""
        job = make_job(task, self.tests, self.examples, self.attempt_s, self.output)
        return job.model_copy(update={"stdin": self.stdin})


class CoderBot(Bot):
    """Drives runs by the coder's own loop. `wanted` is for those that it begins."""

    loops = False

    def __init__(self, wanted: Wanted | None = None) -> None:
        self.wanted = wanted or Wanted()

    def policy(self, policy: Policy) -> Policy:
        """With the runner's folder, which is read-only, behind the user's."""
        runner = FolderRule(host=str(runner_folder()), mode="ro", inside=RUNNER_AT)
        return replace(policy, folders=(*policy.folders, runner))

    async def begin(self, setup: Setup) -> RunStarted:
        started = setup.started
        checked = self.wanted.job(started.task).has_checks
        options = {**started.options, NAME: self.wanted.model_dump(mode="json")}
        return started.model_copy(update={"options": options, "system_prompt": system(wants_example=not checked)})

    def check_resume(self, started: RunStarted, changed: Collection[str], *, done: bool) -> None:
        """A coder goes by the tests that it began with, and those that a further task holds."""
        if done and "task" not in changed:
            raise UsageError(
                f"run {started.run_id} is done", f'say what to change: stockade runs resume {started.run_id} "..."'
            )
        wanted_of(started)

    async def run(self, ctx: RunContext) -> Ending:
        return await coder_of(await ctx.events()).run(ctx)

    def narrator(self, started: RunStarted) -> Narrator:
        return _Telling([started]).event

    def facts(self, events: Sequence[RunEvent]) -> dict[str, Any]:
        """The attempts without what the events before it hold."""
        result = result_of(events)
        kept = {"number", "start", "requirements", "exit_code", "duration_s"}
        attempts = [{**one.model_dump(include=kept), **one.verdict.model_dump()} for one in result.attempts]
        return {"code": {**result.model_dump(exclude={"attempts"}), "attempts": attempts}}


def wanted_of(started: RunStarted) -> Wanted:
    """What the run was started for. UsageError when its record does not say: it is of an older version."""
    found = started.options.get(NAME)
    if not isinstance(found, dict):
        raise UsageError(f"the record of run {started.run_id} does not hold what it was checked by", "begin it again")
    return Wanted.model_validate(found)


def coder_of(events: Sequence[RunEvent]) -> Coder:
    """The loop of a run, where its record ends. What the user wants changed is one task with what was asked before."""
    started = events[0]
    assert isinstance(started, RunStarted)
    later = [number for number, event in enumerate(events) if isinstance(event, RunResumed) and event.task is not None]
    wishes = [started.task, *(str(getattr(events[number], "task", "")) for number in later)]
    task, code = "\n\n".join(wishes), ""
    if later and (code := coder_of(events[: later[-1]]).result().code):
        code = f"The program so far, which is to be changed:\n```python\n{code}```"
    coder = make_coder(wanted_of(started), started.policy, task)
    coder.task = "\n\n".join(part for part in (*wishes[:-1], code, wishes[-1]) if part)
    coder.progress = progress_of(events[later[-1] :] if later else events, coder.executor)
    return coder


def result_of(events: Sequence[RunEvent], error: str = "") -> Result:
    """What came of a run. `error`: why it ended, where no attempt says it."""
    return coder_of(events).result(error)


def make_coder(wanted_: Wanted, policy: Policy, task: str) -> Coder:
    """The loop for a task under a policy. A program is delivered only where the user named a folder to write to."""
    job = wanted_.job(task)
    own = next((rule for rule in policy.folders if rule.inside == WORKSPACE), None)
    executor = Executor(
        job=job,
        folder=WORKSPACE if own is not None else None,
        online=policy.network.mode != "none",
        signature=wanted(task, job.examples, job.tests),
    )
    target = f"{WORKSPACE}/{wanted_.output}" if own is not None and own.mode != "ro" else None
    around = [] if executor.online else [OFFLINE]
    if own is not None and (names := _names(Path(own.host))):
        around.append(f"In the current folder are: {', '.join(names)}.")
    return Coder(wanted_.plan, executor, target, wanted_.examples, " ".join(around))


class _Telling:
    """Of a run's attempts, a line each, in place of the steps that they are made of."""

    def __init__(self, events: list[RunEvent]) -> None:
        self.events = events
        self._begin()

    def _begin(self) -> None:
        coder = coder_of(self.events)
        self.fold = Fold(coder.executor, coder.progress)

    def event(self, event: RunEvent) -> list[tuple[str, str]] | None:
        self.events.append(event)
        if isinstance(event, RunResumed) and event.task is not None:
            self._begin()
            return None
        attempts = self.fold.progress.attempts
        before = len(attempts)
        self.fold.apply(event)
        match event:
            case ActionStarted() | ActionFinished() | AnswerUnderstood() | AnswerUnreadable():
                lines = [self._lines(number, one) for number, one in enumerate(attempts[before:], before + 1)]
                return [line for each in lines for line in each]
            case MessageInjected(source=source, text=text) if source in OURS:
                return [(text.partition(". ")[0] + ": it is written anew", "dim")] if source == FRESH_START else []
            case _:
                return None

    def _lines(self, number: int, attempt: Attempt) -> list[tuple[str, str]]:
        """Without checks what a program prints is all there is to look at."""
        passed = attempt.verdict.passed
        line = (f"attempt {number}: {attempt.line()}", "green" if passed else "magenta")
        shown = passed and not attempt.verdict.checks and attempt.stdout
        return [line, (attempt.stdout, "")] if shown else [line]


def _names(folder: Path) -> list[str]:
    """What a program may look for; none when the folder cannot be read, which the sandbox will say better."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.isprintable() and not name.startswith("."))
    except OSError:
        return []
    return [*names[:MAX_NAMES], *([f"and {len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else [])]


CODER = BotSpec(
    name=NAME,
    summary="writes Python, runs it, and fixes it until the checks pass (stockade code)",
    prompt=system(wants_example=True),
    tools=(),
    folder_mode="overlay",
    budget=Budget(max_turns=0, timeout_s=1800.0),  # its attempts are bounded anyway
    answers="sections",
    local_answer_tokens=2048,
    settings={"command_timeout": 300.0, "streams": "separate"},
    bot=CoderBot(),
)
