"""factory.py for the coder: from what a person asked for to a run whose loop is that of plugins/coder/loop.py."""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from stockade import __version__
from stockade.alive import held
from stockade.core.budget import Budget
from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, RunStarted
from stockade.core.messages import Sampling
from stockade.core.model_options import LoadOptions
from stockade.core.policy import WORKSPACE, FolderRule, Policy
from stockade.core.ports import Model, OnEvent, OnProgress, OnText, RunStore, Sandbox
from stockade.core.secrets import Redactor, build_redactor, redact_callbacks
from stockade.loop.parts import Parts
from stockade.places import run_dir
from stockade.plugins.coder.answers import SectionAnswers
from stockade.plugins.coder.examples import wanted
from stockade.plugins.coder.executor import RUNNER_AT, Executor
from stockade.plugins.coder.fan import Fan
from stockade.plugins.coder.loop import Coder
from stockade.plugins.coder.past import progress_of
from stockade.plugins.coder.prompts import system
from stockade.plugins.coder.report import MAX_TESTS_BYTES, runner_folder
from stockade.plugins.coder.service import DEFAULT_PORT, Answer, Query, Service, parse_address
from stockade.plugins.coder.work import Job, Plan, Result, make_job
from stockade.runtime.factory import Prepared, check_task, start
from stockade.runtime.models import model_of
from stockade.runtime.old_bots import CODER
from stockade.runtime.policies import check_priced, make_budget, make_policy
from stockade.runtime.records import SystemClock, new_run_id
from stockade.runtime.sandboxes import forget, noting_its_holder, prepare_sandbox, reviewer
from stockade.runtime.spec import Options

ANSWER_TOKENS = 2048
SOLUTION = "solution.py"
MAX_NAMES = 30
OFFLINE = "There is no network and nothing can be installed: use Python's standard library only."
BUDGET = Budget(max_turns=0, timeout_s=1800.0)
"""Its attempts are bounded anyway."""


class Wanted(Data):
    """A task and how it is checked. `output`: the name of the program in the folder. `attempt_s` bounds one program."""

    task: str
    tests: str = ""
    examples: tuple[str, ...] = ()
    plan: Plan = Plan()
    output: str = SOLUTION
    attempt_s: float = 10.0

    def job(self) -> Job:
        return make_job(self.task, self.tests, self.examples, self.attempt_s, self.output)


def coder_policy(options: Options) -> Policy:
    """The policy of the flags, with the runner's folder, which is read-only, behind the person's."""
    policy = make_policy(options, "overlay")
    if options.command_timeout is None:
        policy = policy.model_copy(update={"limits": policy.limits.model_copy(update={"command_timeout_s": 300.0})})
    runner = FolderRule(host=str(runner_folder()), mode="ro", inside=RUNNER_AT)
    return policy.model_copy(update={"folders": (*policy.folders, runner)})


async def prepare(
    wanted_: Wanted,
    options: Options,
    store: RunStore,
    on_event: OnEvent | None = None,
    on_text: OnText | None = None,
    on_progress: OnProgress | None = None,
) -> Prepared:
    """Everything of a coder's run but its start; errors are those of factory.prepare."""
    return (await prepare_coder(wanted_, options, store, on_event, on_text, on_progress))[0]


async def prepare_coder(
    wanted_: Wanted,
    options: Options,
    store: RunStore,
    on_event: OnEvent | None = None,
    on_text: OnText | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[Prepared, Coder]:
    """`prepare`, and the coder that the run will be driven by: it has the result."""
    task, job = check_task(wanted_.task), wanted_.job()
    policy = coder_policy(options)
    redactor = build_redactor(os.environ, policy.environment, options.redact)
    on_event, on_text = redact_callbacks(redactor, on_event, on_text)
    run_id = new_run_id()
    try:
        sandbox = await prepare_sandbox(policy, options.sandbox, run_dir(run_id), on_progress)
        model, name, note = await open_models(options, wanted_.plan.candidates, on_progress)
        budget = make_budget(options, BUDGET)
        check_priced(budget, model.info, name)
    except BaseException:
        forget(run_id)
        raise
    started = RunStarted(
        at=time.time(),
        version=__version__,
        run_id=run_id,
        task=task,
        bot=CODER,
        model=name,
        answers=SectionAnswers().name,
        sandbox=sandbox.backend,
        policy=policy,
        budget=budget,
        sampling=_sampling(options, local=model.info.local),
        system_prompt=system(wants_example=not job.has_checks),
        options={
            **options.model_dump(include=set(LoadOptions.model_fields), exclude_none=True),
            **redactor.recorded,
            CODER: wanted_.model_dump(mode="json", exclude={"task"}),
        },
    )
    coder = make_coder(wanted_, job, policy, task)
    parts = _parts(started, coder, model, sandbox, store, on_event, on_text, redactor)
    return Prepared(started, parts, note, facts=partial(_facts, coder), warnings=redactor.warnings), coder


def _parts(
    started: RunStarted,
    coder: Coder,
    model: Model,
    sandbox: Sandbox,
    store: RunStore,
    on_event: OnEvent | None,
    on_text: OnText | None,
    redactor: Redactor,
) -> Parts:
    return Parts(
        model=model,
        protocol=SectionAnswers(),
        sandbox=sandbox,
        store=store,
        clock=SystemClock(),
        tools=(),
        reviewer=reviewer(),
        on_event=noting_its_holder(started.run_id, sandbox, on_event),
        on_text=on_text,
        redactor=redactor,
        bot=coder,
    )


def again(
    history: Sequence[RunEvent],
    started: RunStarted,
    *,
    model: Model,
    sandbox: Sandbox,
    store: RunStore,
    on_event: OnEvent | None,
    on_text: OnText | None,
    redactor: Redactor,
) -> tuple[Parts, Callable[[], dict[str, Any]]]:
    """The parts of a run that goes on, with its progress folded from its record, and the facts of its end."""
    wanted_ = wanted_of(started)
    coder = make_coder(wanted_, wanted_.job(), started.policy, started.task)
    coder.progress = progress_of(history, coder.executor)
    parts = _parts(started, coder, model, sandbox, store, on_event, on_text, redactor)
    return parts, partial(_facts, coder)


def wanted_of(started: RunStarted) -> Wanted:
    """What the run was started for. UsageError when its record does not say: it is of an older version."""
    found = started.options.get(CODER)
    if not isinstance(found, dict):
        raise UsageError(f"the record of run {started.run_id} does not hold what it was checked by", "begin it again")
    return Wanted.model_validate({**found, "task": started.task})


def _facts(coder: Coder) -> dict[str, Any]:
    """The attempts without what the events before it hold."""
    result = coder.result()
    attempts = [
        {
            **one.model_dump(include={"number", "start", "requirements", "exit_code", "duration_s"}),
            **one.verdict.model_dump(),
        }
        for one in result.attempts
    ]
    return {"code": {**result.model_dump(exclude={"attempts"}), "attempts": attempts}}


async def open_models(
    options: Options, candidates: int, on_progress: OnProgress | None
) -> tuple[Model, str, str | None]:
    """One for each candidate where the server is ours and lends each user a slot of its cache; else one for all.

    With a seed the candidates are asked for one after the other: those that are computed together change each other.
    """
    model, name, note = await model_of(options, on_progress)
    if candidates == 1 or not name.startswith(("embedded/", "gguf/")):
        return model, name, note
    if options.seed is not None:
        return Fan([model]), name, note
    same = options.model_copy(update={"model": name})
    return Fan([model, *[(await model_of(same, None))[0] for _ in range(candidates - 1)]]), name, note


def _sampling(options: Options, *, local: bool) -> Sampling:
    """A program is longer than an action."""
    sampling = options.sampling(local=local)
    if options.answer_tokens is None and local:
        return sampling.model_copy(update={"max_tokens": ANSWER_TOKENS})
    return sampling


async def answer(query: Query, plan: Plan, options: Options, store: RunStore, attempt_s: float) -> Answer:
    """One query of the service: a run of its own, on record, of which nothing else is left."""
    wanted_ = Wanted(task=query.query, tests=query.tests, examples=query.examples, plan=plan, attempt_s=attempt_s)
    prepared, coder = await prepare_coder(wanted_, options, store)
    run_id = prepared.started.run_id
    try:
        with held(run_id):
            finished = await start(prepared)
    finally:
        forget(run_id)
    failed = finished.detail if finished.status == "failed" else ""
    result = prepared.parts.redactor.data(coder.result(failed).model_dump())
    return Answer(
        response=result["stdout"],
        error=result["error"],
        code=result["code"],
        status=result["status"],
        attempts=len(result["attempts"]),
        run=run_id,
    )


def make_coder(wanted_: Wanted, job: Job, policy: Policy, task: str) -> Coder:
    """The loop for a task under a policy. A program is delivered only where the person named a folder to write to."""
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


__all__ = ["DEFAULT_PORT", "MAX_TESTS_BYTES", "SOLUTION", "Answer", "Coder", "Plan", "Query", "Result", "Service",
           "Wanted", "again", "answer", "make_coder", "open_models", "parse_address", "prepare",
           "prepare_coder", "start", "wanted_of"]  # fmt: skip
