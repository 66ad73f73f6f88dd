"""A record of 10,000 runs with a million events, in a file and in PostgreSQL: what an append costs while it grows, and
what looking at it costs then.

    .venv/bin/python -m bench.scale [--runs N] [--turns N] [--at-once N]

A turn is three events in one durable append; so many runs go on at once in this process, as in a batch. PostgreSQL is
Debian's, of the tests' own, over a Unix socket, with its small shared_buffers of 16 MB. Each look is the best of five,
through the store, without starting a command.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from tests.support.postgres import server

from bench.table import draw
from stockade.core.events import RunFinished
from stockade.core.ports import RunStore
from stockade.loop.state import fold
from stockade.runtime.records import open_store
from stockade.testing.conformance.store import first, some

TRIES = 5
PARTS = 10


def name(number: int) -> str:
    return f"20260101-000000-{number:06}"


async def fill(store: RunStore, runs: int, turns: int, at_once: int) -> list[list[float]]:
    """Seconds that each append took, for each tenth of the runs."""
    took = list[list[float]]()
    waiting = list(range(runs))[::-1]

    async def drive(part: list[float], until: int) -> None:
        while waiting and waiting[-1] < until:
            number = waiting.pop()
            await store.append(name(number), [first(name(number), task=f"Count the lines of file {number}")])
            for turn in range(1, turns + 1):
                began = time.perf_counter()
                await store.append(name(number), some(turn))
                part.append(time.perf_counter() - began)
            done = RunFinished(at=9.0, status="done", reason="finish", turns=turns, answer=f"There are {number} lines.")
            await store.append(name(number), [done])

    for tenth in range(1, PARTS + 1):
        part = list[float]()
        async with anyio.create_task_group() as group:
            for _ in range(at_once):
                group.start_soon(drive, part, runs * tenth // PARTS)
        took.append(part)
    return took


async def best(look: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds."""
    took = []
    for _ in range(TRIES):
        began = time.perf_counter()
        await look()
        took.append(time.perf_counter() - began)
    return min(took) * 1000


async def measured(address: str, size: Callable[[], int], runs: int, turns: int, at_once: int) -> list[str]:
    store = open_store(address)
    began = time.perf_counter()
    parts = await fill(store, runs, turns, at_once)
    whole_s = time.perf_counter() - began
    appends = [one for part in parts for one in part]
    middle, last = name(runs // 2), name(runs - 1)

    async def resumed() -> None:
        fold(await store.events(middle))

    looks: list[Callable[[], Awaitable[object]]] = [
        lambda: store.runs(limit=30), store.runs, lambda: store.runs(words=[str(runs - 1)], limit=30),
        lambda: store.runs(words=["lines"], limit=30), lambda: store.find("last"), lambda: store.events(last, first=90),
        resumed,
    ]  # fmt: skip
    told = [f"{await best(look):.1f} ms" for look in looks]
    began = time.perf_counter()
    for number in range(0, runs, max(1, runs // 100)):
        await store.remove(name(number))
    removed = (time.perf_counter() - began) * 10
    await store.close()

    def p99(part: list[float]) -> str:
        return f"{statistics.quantiles(part, n=100)[98] * 1000:.1f} ms"

    return [
        f"{len(appends) * 3 + 2 * runs:,}", f"{len(appends) * 3 / whole_s:,.0f}",
        f"{statistics.median(appends) * 1000:.1f} ms", p99(appends), p99(parts[0]), p99(parts[-1]),
        f"{size() / 2**20:,.0f} MiB", *told, f"{removed:.1f} ms",
    ]  # fmt: skip


ROWS = (
    "events", "events a second", "append, p50", "append, p99", "the same, first tenth of the runs", "last tenth",
    "on disk", "list, newest 30", "list, all", "search, one found", "search, all found, 30 shown", "last",
    "newest events of a run", "read and fold a run, to resume it", "remove a run, mean of 100",
)  # fmt: skip


def bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=33)
    parser.add_argument("--at-once", type=int, default=50)
    asked = parser.parse_args()
    how = (asked.runs, asked.turns, asked.at_once)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "runs.db")
        one = anyio.run(measured, str(file), lambda: bytes_below(Path(folder)), *how)
    with server() as running:
        other = anyio.run(measured, running.new_database(), lambda: bytes_below(running.data), *how)
    print(draw(("", "SQLite", "PostgreSQL"), list(zip(ROWS, one, other, strict=True))))


if __name__ == "__main__":
    main()
