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
from stockade.core.events import RunEvent, RunStarted
from stockade.extend import Bot, BotSpec, Ending, RunContext, Setup
from stockade.plugins.coder.executor import RUNNER_AT, Executor
from stockade.plugins.coder.loop import Coder, progress_of
from stockade.plugins.coder.program import wanted
from stockade.plugins.coder.prompts import system
from stockade.plugins.coder.work import Job, Plan, Result, make_job, runner_folder
from stockade_sandbox.policy import WORKSPACE, FolderRule, Policy

NAME = "coder"
SOLUTION = "solution.py"
MAX_NAMES = 30
OFFLINE = "There is no network and nothing can be installed: use Python's standard library only."


class Wanted(Data):
    """How a task is checked, and for how long it is tried. `output`: the name of the program in the folder; `attempt_s`
    bounds one run of it, in seconds.
    """

    tests: str = ""
    examples: tuple[str, ...] = ()
    plan: Plan = Plan()
    output: str = SOLUTION
    attempt_s: float = 10.0

    def job(self, task: str) -> Job:
        """UsageError for tests or examples that are not understood."""
        return make_job(task, self.tests, self.examples, self.attempt_s, self.output)


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
        """A coder does one task, by the checks that it began with."""
        if done or {"task", "check"} & set(changed):
            what = f"run {started.run_id} is done" if done else "the coder does one task, with the checks it began with"
            raise UsageError(what, "begin a new one: stockade code")
        wanted_of(started)

    async def run(self, ctx: RunContext) -> Ending:
        return await coder_of(ctx.started, await ctx.events()).run(ctx)

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


def coder_of(started: RunStarted, events: Sequence[RunEvent]) -> Coder:
    """The loop of a run, where its record ends."""
    coder = make_coder(wanted_of(started), started.policy, started.task)
    coder.progress = progress_of(events, coder.executor)
    return coder


def result_of(events: Sequence[RunEvent], error: str = "") -> Result:
    """What came of a run. `error`: why it ended, where no attempt says it."""
    assert isinstance(events[0], RunStarted)
    return coder_of(events[0], events).result(error)


def make_coder(wanted_: Wanted, policy: Policy, task: str) -> Coder:
    """The loop for a task under a policy. A program is delivered only where the user named a folder to write to."""
    job = wanted_.job(task)
    own = next((rule for rule in policy.folders if rule.inside == WORKSPACE), None)
    executor = Executor(
        job=job,
        folder=WORKSPACE if own is not None else None,
        online=policy.network.mode != "none",
        signature=wanted(task, job.examples) if job.examples else None,
    )
    target = f"{WORKSPACE}/{wanted_.output}" if own is not None and own.mode != "ro" else None
    around = [] if executor.online else [OFFLINE]
    if own is not None and (names := _names(Path(own.host))):
        around.append(f"In the current folder are: {', '.join(names)}.")
    return Coder(wanted_.plan, executor, target, wanted_.examples, " ".join(around))


def _names(folder: Path) -> list[str]:
    """What a program may look for; none when the folder cannot be read, which the sandbox will say better."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.isprintable() and not name.startswith("."))
    except OSError:
        return []
    return [*names[:MAX_NAMES], *([f"and {len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else [])]


CODER = BotSpec(
    name=NAME,
    summary="writes a Python program, runs it, and mends it until its checks pass (stockade code)",
    prompt=system(wants_example=True),
    tools=(),
    folder_mode="overlay",
    budget=Budget(max_turns=0, timeout_s=1800.0),  # its attempts are bounded anyway
    answers="sections",
    local_answer_tokens=2048,
    settings={"command_timeout": 300.0, "streams": "separate"},
    bot=CoderBot(),
)
