"""What the record costs: a turn of one run, a hundred runs at once, disk, and reading a long run back.

    .venv/bin/python -m bench.store [--turns N]

SQLite is on the disk of this machine, PostgreSQL (Debian's, the tests' own) too, reached over a Unix socket. CPU is
that of our process, its writer thread included, not the server's. A turn is what a run records of one: the answer, what
was understood and the action that begins are one commit, what came of it (2 kB of output) another. 10 %: a tenth of the
turns cost less, which is what they cost where nothing else runs.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from tests.support.postgres import server

from bench.table import draw
from stockade.answers.json_schema import JsonAnswers
from stockade.core.actions import Answer, Shell, Step
from stockade.core.events import ActionFinished, ActionStarted, AnswerUnderstood, ModelAnswered, RunEvent
from stockade.core.messages import ModelAnswer, Usage
from stockade.core.ports import RunStore
from stockade.core.secrets import Redactor
from stockade.loop.context import Context
from stockade.loop.record import Record
from stockade.runtime.records import open_store
from stockade.testing.conformance.store import first
from stockade_sandbox.results import Chunk, CommandOutput

RUNS, PROCESSES = 100, 10
OUTPUT = "".join(f"-rw-r--r-- 1 bot bot {number:6} Nov 22 05:00 file{number}.txt\n" for number in range(45)).encode()
SECRETS = Redactor({f"a secret value, number {number}": f"TOKEN_{number}" for number in range(5)})
_WRITER = (
    "import sys, anyio; from bench.store import write; anyio.run(write, sys.argv[1], sys.argv[2], {runs}, {turns})"
)


@dataclass(frozen=True)
class Cost:
    """Of a turn, but for `read_ms`: CPU of reading and folding a run of `turns`."""

    store: str
    cpu_ms: float
    mean_ms: float
    median_ms: float
    worst_ms: float
    crowd_cpu_ms: float
    crowd_turns_s: float
    processes_turns_s: float
    bytes_a_turn: float
    read_ms: float


def turn_events(turn: int) -> tuple[list[RunEvent], list[RunEvent]]:
    """What is recorded of a turn, in its two commits."""
    step = Step(action=Shell(command=f"cd /workspace && ls -l | head -45 # {turn}"))
    content = f'{{"thought": "I look at what is there.", "action": {{"tool": "shell", "command": "ls {turn}"}}}}'
    answer = ModelAnswer(content=content, usage=Usage(prompt_tokens=2000, completion_tokens=40), duration_s=1.5)
    output = CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", OUTPUT),), cwd="/workspace", duration_s=0.01)
    return (
        [
            ModelAnswered(at=2.0, turn=turn, answer=answer),
            AnswerUnderstood(at=2.0, turn=turn, answer=Answer(thought="I look at what is there.", steps=(step,))),
            ActionStarted(at=2.0, turn=turn, step=0, action=step),
        ],
        [ActionFinished(at=2.0, turn=turn, step=0, observation=output)],
    )


async def one_run(store: RunStore, run_id: str, turns: int) -> list[tuple[float, float]]:
    """CPU and seconds of each turn, through the loop's Record: secrets looked for, on disk, folded into the state."""
    record = Record(run_id, store, Context(JsonAnswers()), redactor=SECRETS)
    took = []
    async with store.driving(run_id):
        await record.add(first(run_id))
        for turn in range(1, turns + 1):
            cpu, begun = time.process_time(), time.perf_counter()
            for events in turn_events(turn):
                await record.add(*events)
            took.append((time.process_time() - cpu, time.perf_counter() - begun))
    return took


async def write(where: str, prefix: str, runs: int, turns: int) -> None:
    """Several runs at once in this process. Raises when any append fails."""
    store = open_store(where)
    async with anyio.create_task_group() as group:
        for number in range(runs):
            group.start_soon(one_run, store, f"{prefix}{number}", turns)
    await store.close()


async def measure(name: str, where: str, turns: int) -> Cost:
    store = open_store(where)
    await one_run(store, "warm", 20)
    both = await one_run(store, "one", turns)
    mean = statistics.mean(cpu for cpu, _ in both)
    cpu, took = sorted(cpu for cpu, _ in both)[turns // 10], sorted(seconds for _, seconds in both)
    begun = time.process_time()
    record = Record("one", store, Context(JsonAnswers()))
    for event in await store.events("one"):
        record.state.apply(event)
        record.context.apply(event)
    record.context.messages()
    read = time.process_time() - begun
    size = await _size(store, where) / (turns + 20)
    await store.close()
    share = max(1, turns // 50)
    crowd_cpu, begun = time.process_time(), time.perf_counter()
    await write(where, "crowd", RUNS, share)
    crowd = time.perf_counter() - begun
    crowd_cpu = (time.process_time() - crowd_cpu) / (RUNS * share)
    begun = time.perf_counter()
    await _processes(where, share)
    processes = time.perf_counter() - begun
    total = RUNS * share
    return Cost(name, 1000 * cpu, 1000 * mean, 1000 * statistics.median(took), 1000 * took[int(turns * 0.95)],
                1000 * crowd_cpu, total / crowd, total / processes, size, 1000 * read)  # fmt: skip


async def _size(store: RunStore, where: str) -> float:
    """Of its tables and indexes; the log that SQLite keeps beside them is at most 4 MB and not counted."""
    db = store._db  # type: ignore[attr-defined]
    if not where.startswith("postgresql:"):
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return float((await anyio.Path(where).stat()).st_size)
    rows = db.execute(
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = 'stockade' AND c.relkind = 'r'"
    )
    return float(rows[0][0])


async def _processes(where: str, turns: int) -> None:
    """As many runs, in several processes on the one record."""
    argv = [sys.executable, "-c", _WRITER.format(runs=RUNS // PROCESSES, turns=turns), where]
    async with anyio.create_task_group() as group:
        for number in range(PROCESSES):
            group.start_soon(anyio.run_process, [*argv, f"p{number}-"])


@contextmanager
def places() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, server() as running:
        yield {"SQLite": str(Path(folder) / "runs.db"), "PostgreSQL": running.new_database()}


def table(costs: list[Cost], turns: int) -> str:
    rows = [
        ("CPU of a turn, one run, 10 %", *(f"{cost.cpu_ms:.2f} ms" for cost in costs)),
        ("CPU of a turn, one run, mean", *(f"{cost.mean_ms:.2f} ms" for cost in costs)),
        ("time of a turn, median", *(f"{cost.median_ms:.1f} ms" for cost in costs)),
        ("time of a turn, 95 %", *(f"{cost.worst_ms:.1f} ms" for cost in costs)),
        (f"CPU of a turn, {RUNS} runs at once", *(f"{cost.crowd_cpu_ms:.2f} ms" for cost in costs)),
        (f"turns a second, {RUNS} runs at once", *(f"{cost.crowd_turns_s:.0f}" for cost in costs)),
        (f"turns a second, {RUNS} runs in {PROCESSES} processes", *(f"{cost.processes_turns_s:.0f}" for cost in costs)),
        ("on disk, a turn", *(f"{cost.bytes_a_turn / 1000:.1f} kB" for cost in costs)),
        (f"read and fold a run of {turns} turns, CPU", *(f"{cost.read_ms:.0f} ms" for cost in costs)),
    ]
    return draw(("", *(cost.store for cost in costs)), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=1000)
    turns = parser.parse_args().turns
    with places() as found:
        costs = [anyio.run(measure, name, where, turns) for name, where in found.items()]
    print(table(costs, turns))


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(str(error.stderr.decode()))
