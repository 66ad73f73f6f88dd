"""What a record of many runs costs to look at: a list of 10,000 runs, a search in them, the first page of a long run.

    .venv/bin/python -m bench.records [--runs N] [--turns N]

Each is the real command in a process of its own, its output a pipe. CPU is of that process; `alone` is the same command
on a record with one run: what starting costs. The best of five.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

from bench.table import draw
from stockade.core.events import RunEvent, RunFinished
from stockade.core.ports import RunStore
from stockade.store.sqlite import SQLiteStore
from stockade.testing.conformance.store import first, some

TRIES = 5


async def fill(store: RunStore, runs: int, turns: int) -> None:
    """Runs of two turns each, and a last one of `turns`."""
    for number in range(runs):
        run_id = f"20260101-000000-{number:06}"
        done = RunFinished(at=9.0, status="done", reason="finish", turns=2, answer=f"There are {number} lines.")
        events: list[RunEvent] = [first(run_id, task=f"Count the lines of file {number}"), *some(1), *some(2), done]
        await store.append(run_id, events, durable=False)
    await store.append("long", [first("long")], durable=False)
    for turn in range(1, turns + 1, 100):
        events = [event for number in range(turn, min(turn + 100, turns + 1)) for event in some(number)]
        await store.append("long", events, durable=False)
    await store.close()


def cost(*arguments: str, enough: int = 0) -> tuple[float, float]:
    """Seconds of CPU, and until it ended, or had written so many bytes."""
    best = []
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled
    for _ in range(TRIES):
        begun, argv = time.monotonic(), [sys.executable, "-m", "stockade.cli", *arguments]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
        assert process.stdout is not None
        read = len(process.stdout.read(enough)) if enough else len(process.stdout.read())
        there = time.monotonic() - begun
        process.stdout.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert read, arguments
        best.append((used.ru_utime + used.ru_stime, there))
    return min(used for used, _ in best), min(there for _, there in best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=10_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        many, one = (str(Path(folder, name)) for name in ("many.db", "one.db"))
        anyio.run(fill, SQLiteStore(Path(many)), asked.runs, asked.turns)
        anyio.run(fill, SQLiteStore(Path(one)), 1, 1)
        rows = []
        for what, arguments, enough in (
            ("list, newest 30", ("runs", "list", "--limit", "30"), 0),
            ("list, all", ("runs", "list", "--limit", "0"), 0),
            ("search, one found", ("runs", "search", str(asked.runs - 1), "lines"), 0),
            ("search, all found, 30 shown", ("runs", "search", "lines", "--limit", "30"), 0),
            ("show, first page", ("runs", "show", "long"), 4000),
        ):
            alone = (
                "-" if "found" in what else f"{cost(*arguments, '--store', one, enough=enough and 100)[0] * 1000:.0f}"
            )
            used, there = cost(*arguments, "--store", many, enough=enough)
            rows.append((what, f"{used * 1000:.0f}", alone, f"{there * 1000:.0f}"))
        print(draw(("", "CPU ms", "alone", "until there ms"), rows))


if __name__ == "__main__":
    main()
