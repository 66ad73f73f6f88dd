"""Runs arms over problems: `python -m bench.humaneval --servers http://127.0.0.1:18390/v1,... --slots 3`.

Programs are tried on the examples of the problem's own words. Hidden tests are run afterwards, in a sandbox too, on
every program, and only score. Every answer and every result is on disk when it is there: a cut bench goes on.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.humaneval.arms import ARMS, Arm, shortened
from bench.humaneval.problems import HOME, Problem, load
from bench.humaneval.recorded import Answers, Offline, RecordedModel
from bench.humaneval.report import write_report
from stockade import __version__
from stockade.core.budget import Budget
from stockade.core.errors import SandboxFailed
from stockade.core.events import RunStarted
from stockade.core.messages import Sampling
from stockade.core.ports import Model, Sandbox
from stockade.loop.run import run
from stockade.loop.run_context import Dependencies
from stockade.models.openai import OpenAIModel
from stockade.plugins.coder.answers import SectionAnswers
from stockade.plugins.coder.bot import CODER, Wanted
from stockade.plugins.coder.executor import ATTEMPTS, RUNNER_AT, Executor
from stockade.plugins.coder.loop import Coder
from stockade.plugins.coder.program import wanted
from stockade.plugins.coder.prompts import system
from stockade.plugins.coder.work import Job, read_report
from stockade.runtime.records import SystemClock
from stockade.runtime.sandboxes import open_sandbox
from stockade.testing.fakes import MemoryStore
from stockade_sandbox.policy import Policy

LIMIT_S = 10.0
FIRST = Sampling(temperature=0.0, max_tokens=768)


async def solve(problem: Problem, arm: Arm, model: RecordedModel, sandbox: Sandbox) -> tuple[Coder, float]:
    """The coder's own loop on one problem; and the seconds that it took beside the model, an attempt."""
    job = Wanted(attempt_s=LIMIT_S).job(problem.task).model_copy(update={"prelude": problem.prelude})
    signature = wanted(problem.task, job.examples) if job.examples else None
    coder = Coder(arm.plan, Executor(job, signature=signature), explain=arm.explain)
    policy = CODER.bot.policy(Policy())
    started = RunStarted(
        at=time.time(), version=__version__, run_id=problem.task_id, task=problem.task, bot="coder", model="bench",
        answers="sections", sandbox=sandbox.backend, policy=policy, budget=Budget(max_turns=0, timeout_s=0),
        sampling=FIRST, system_prompt=system(wants_example=not job.has_checks),
    )  # fmt: skip
    store = MemoryStore()
    parts = Dependencies(model, SectionAnswers(), sandbox, store, SystemClock(), (), bot=coder)
    finished = await run(started, parts)
    if finished.status == "failed":
        raise SandboxFailed(finished.detail)
    return coder, await beside_the_model(store, problem.task_id)


async def beside_the_model(store: MemoryStore, run_id: str) -> float:
    """Seconds of all actions of an attempt: from the first one's start to the last one's end."""
    events = await store.events(run_id)
    begun = {event.turn: event.at for event in reversed(events) if event.type == "action_started"}
    ended = {event.turn: event.at for event in events if event.type == "action_finished"}
    times = [ended[turn] - begun[turn] for turn in ended if turn in begun]
    return sum(times) / len(times) if times else 0.0


async def score(problem: Problem, code: str, sandbox: Sandbox) -> bool:
    """Whether the hidden tests pass."""
    job = Job(limit_s=LIMIT_S, tests=problem.tests, prelude=problem.prelude)
    place = f"{ATTEMPTS}/score"
    script = f'rm -rf {place}; mkdir -p {place} && cd {place} && cat > "$1"'
    for name, text in (("main.py", code), ("job.json", job.text())):
        await sandbox.exec(["sh", "-c", script if name == "main.py" else f'cd {place} && cat > "$1"', "sh", name],
                           stdin=text.encode())  # fmt: skip
    command = f"cd {place} && exec python3 {RUNNER_AT}/runner.py job.json report.json"
    await sandbox.exec(["sh", "-c", command], timeout_s=LIMIT_S + 5)
    said = await sandbox.exec(["cat", f"{place}/report.json"])
    report = read_report(said.stdout.decode(errors="replace"))
    return report is not None and report.whole and report.exit_code == 0 and report.passed > 0 and not report.failures


@dataclass
class Bench:
    answers: Answers
    servers: Sequence[Model]
    results: Path
    scores: dict[tuple[str, str], bool] = field(default_factory=dict)

    async def one(self, number: int, arm: Arm, problem: Problem) -> None:
        """One arm on one problem, its result on disk. What is not on disk and cannot be asked is left out."""
        model = RecordedModel(self.answers, self.servers, arm.name, problem.task_id, number)
        with tempfile.TemporaryDirectory(prefix="stockade-humaneval-") as base:
            try:
                sandbox = open_sandbox(CODER.bot.policy(Policy()), "bubblewrap", Path(base) / "layer")
                coder, seconds = await solve(problem, arm, model, sandbox)
            except Offline:
                return
            fresh = open_sandbox(CODER.bot.policy(Policy()), "bubblewrap", Path(base) / "score")
            async with fresh:
                hidden = [await self._hidden(problem, one.code, fresh) for one in coder.attempts]
        row = {
            "arm": arm.name,
            "problem": problem.task_id,
            "examples": len(coder.executor.job.examples),
            "rounds": arm.plan.most_rounds,
            "seconds_beside_model": round(seconds, 4),
            "attempts": [
                {"visible": one.verdict.passed, "hidden": good, "checks_passed": one.verdict.checks_passed,
                 "rank": one.rank, "start": one.start, "empty": not one.code, "exit": one.exit_code,
                 "words": one.verdict.words}
                for one, good in zip(coder.attempts, hidden, strict=True)
            ],
        }  # fmt: skip
        with self.results.open("a") as file:
            file.write(json.dumps(row) + "\n")

    async def _hidden(self, problem: Problem, code: str, sandbox: Sandbox) -> bool:
        if not code:
            return False
        key = problem.task_id, code
        if key not in self.scores:
            self.scores[key] = await score(problem, code, sandbox)
        return self.scores[key]


async def bench(arms: Sequence[Arm], problems: Sequence[Problem], urls: Sequence[str], slots: int, into: Path) -> None:
    answers = Answers(into / "answers.jsonl")
    results = into / "results.jsonl"
    done = set()
    for line in results.read_text().splitlines() if results.exists() else ():
        row = json.loads(line)
        if row["attempts"][-1]["visible"] or row["rounds"] >= arms[0].plan.most_rounds:
            done.add((row["arm"], row["problem"]))
    todo = [(arm, problem) for problem in problems for arm in arms if (arm.name, problem.task_id) not in done]
    todo.reverse()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(OpenAIModel(url, "qwen")) for url in urls]
        work = Bench(answers, servers, results)
        with Progress(*columns, console=Console(stderr=True)) as progress:
            bar = progress.add_task("HumanEval", total=len(todo))

            async def worker(number: int) -> None:
                while todo:
                    arm, problem = todo.pop()
                    await work.one(number, arm, problem)
                    progress.advance(bar)

            async with anyio.create_task_group() as group:
                for number in range(max(1, len(servers)) * slots):
                    group.start_soon(worker, number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="", help="addresses, by commas; none: only what is on disk")
    parser.add_argument("--slots", type=int, default=3, help="questions at once, a server")
    parser.add_argument("--arms", default="ours,traceback", help=f"of {', '.join(ARMS)}")
    parser.add_argument("--first", type=int, default=164, help="so many problems, in order")
    parser.add_argument("--repairs", type=int, default=5, help="at most, after the first answer")
    parser.add_argument("--into", type=Path, default=HOME)
    parser.add_argument("--report", type=Path, help="write tables, and humaneval.svg beside them, of what is there")
    given = parser.parse_args()
    if given.report:
        write_report(given.into / "results.jsonl", given.report, given.repairs, given.arms.split(","))
        return
    urls = [url for url in given.servers.split(",") if url]
    arms = [shortened(ARMS[name], given.repairs + 1) for name in given.arms.split(",")]
    anyio.run(bench, arms, load()[: given.first], urls, given.slots, given.into)
