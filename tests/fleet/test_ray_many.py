"""Many runs on two nodes of Ray, with PostgreSQL, while workers, nodes, the driver and the database are killed.

Ten turns each: a line in a ledger by a tool on the host, five files and their changes applied. 200 runs and 4 kills;
`make test-long` has 10,000 and 20. Prints what each kill hit, with `-s`.
"""

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from stockade.core.ports import RunStore
from stockade.store.opening import open_store
from stockade.testing import say
from tests.cli.conftest import Stage
from tests.fleet.test_batch import lines, tasks
from tests.fleet.test_ray import Nodes, two_nodes, workers
from tests.support import postgres
from tests.support.scale import SCALE, scaled

RUNS = scaled(200)
KILLS = min(20, max(4, int(4 * SCALE)))
FILES = 5
AT_ONCE = 8
_LOOK_S = 0.2
TOOL = """\
name = "note"
description = "Writes WORDS down, outside of the sandbox."
external = true
command = ["sh", "-c", "printf '%s\\\\n' \\"$1\\" >> {ledger}", "sh", "{{words}}"]

[parameters.words]
description = "a word"
"""


def batch(stage: Stage, store: str, address: str) -> list[str]:
    """The arguments."""
    tool, scripts = stage.tmp_path / "note.toml", stage.tmp_path / "scripts"
    tool.write_text(TOOL.format(ledger=stage.tmp_path / "ledger"))
    scripts.mkdir()
    rows = []
    for number in range(RUNS):
        name = f"n{number}"
        made = [say("shell", command=f"mkdir -p {name}; date > {name}/{one}") for one in range(FILES)]
        looked = [say("shell", command="ls"), say("shell", command="cat data.csv"), say("shell", command="true")]
        work = [*made, say("note", words=name), *looked, say("finish", answer=name)]
        model = stage.script(*work, name=f"scripts/{name}.jsonl")
        rows.append({"id": name, "task": "note", "folder": "demo", "model": model})
    flags = ["--tool", str(tool), "--allow-external", "note", "--apply", "--parallel", str(AT_ONCE)]
    return ["batch", "run", str(tasks(stage, *rows)), *flags, "--store", store, "--on", f"ray:{address}"]


class Batch:
    """One that is begun again when it was killed."""

    def __init__(self, stage: Stage, arguments: list[str], store: str) -> None:
        self._stage, self._arguments, self._store = stage, arguments, store
        self.results = stage.tmp_path / "tasks.results.jsonl"
        self.memory_mib: list[float] = []
        self.process = stage.start(*arguments)

    def until(self, count: int) -> None:
        """Waits until so many attempts are over, and looks how large its driver is meanwhile."""
        while not self.results.exists() or self.results.read_bytes().count(b"\n") < count:
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            time.sleep(_LOOK_S)
        with suppress(OSError):
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            self.memory_mib.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)

    def kill_driver(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.process = self._stage.start(*self._arguments)

    def kill_worker(self, nodes: Nodes) -> None:
        while not (found := workers(nodes.process)):  # between two tasks they are idle
            assert self.process.poll() is None
        with suppress(ProcessLookupError):
            os.kill(found[0], signal.SIGKILL)

    def state(self) -> Counter[str]:
        """What the runs that are under way did last."""
        return anyio.run(last_events, self._store)


async def last_events(address: str) -> Counter[str]:
    store: RunStore = open_store(address)
    found = Counter[str]()
    for one in await store.runs():
        if one.status == "running":
            length = await store.length(one.run_id)
            found.update(event.type for event in await store.events(one.run_id, first=length - 1))
    await store.close()
    return found


async def told(address: str, runs: list[str]) -> dict[str, list[Any]]:
    store = open_store(address)
    found = {run: await store.events(run) for run in runs}
    await store.close()
    return found


@pytest.mark.timeout(600 + RUNS)
def test_every_run_ends_and_what_it_did_outside_was_done_once_or_is_said(stage: Stage) -> None:
    hit: list[dict[str, Any]] = []
    with postgres.server() as server, two_nodes(stage) as nodes:
        store = server.new_database()
        began = time.monotonic()
        many = Batch(stage, batch(stage, store, nodes.address), store)
        for kill in range(KILLS):
            many.until(RUNS * (kill + 1) // (KILLS + 2))
            hit.append({"kill": ("worker", "node", "driver", "database")[kill % 4], "over": len(lines(stage)),
                        "under way": many.state()})  # fmt: skip
            match kill % 4:
                case 0:
                    many.kill_worker(nodes)
                case 1:
                    nodes.say("kill")
                    nodes.say("add")
                case 2:
                    many.kill_driver()
                case _:
                    server.kill()
                    server.start()
        many.until(RUNS)
        status = many.process.wait()
        took_s = time.monotonic() - began
        assert status == 0, many.process.stderr and many.process.stderr.read()
        report(hit, took_s, many.memory_mib)
        check(stage, store)


def report(hit: list[dict[str, Any]], took_s: float, memory_mib: list[float]) -> None:
    for one in hit:
        print(f"{one['kill']} killed when {one['over']} attempts were over; under way: {dict(one['under way'])}")
    grown = [f"{size:.0f}" for size in memory_mib]
    print(f"{RUNS} runs in {took_s:.0f} s, {RUNS / took_s:.1f} a second; the driver had {', '.join(grown)} MiB")


def check(stage: Stage, store: str) -> None:
    solved = {one["id"]: one for one in lines(stage) if one["outcome"] == "solved"}
    again = Counter(one["id"] for one in lines(stage) if one["outcome"] not in ("solved", "cancelled"))
    ran = Counter((stage.tmp_path / "ledger").read_text().split())
    records = anyio.run(told, store, [one["run"] for one in solved.values()])
    unknown, wrong = 0, list[str]()
    for name, line in solved.items():
        events = records[line["run"]]
        started = [(one.turn, one.step) for one in events if one.type == "action_started"]
        ended = {(one.turn, one.step): one.observation.kind for one in events if one.type == "action_finished"}
        ends = [one.status for one in events if one.type == "run_finished"]
        made = {path.name for path in (stage.demo / name).iterdir()}
        in_flight = "unknown" in ended.values()
        unknown += in_flight
        if not (
            len(started) == len(set(started)) == len(ended)
            and ends[-1] == "done"
            and set(ends[:-1]) <= {"stopped"}  # in order, as its driver was gone, and then gone on with
            and (in_flight or (ran[name] and made == {str(one) for one in range(FILES)}))
            and ran[name] <= 1 + again[name]
        ):
            wrong.append(f"{name}: {started} {ended} {ends} {made} {ran[name]}")
    resumed = sum(one["resumed"] for one in solved.values())
    print(f"{len(solved)} solved, {resumed} of them gone on with, {unknown} told that nobody knows of an action")
    print(f"attempts tried anew: {again.total()}; lines of a task in the ledger: {dict(Counter(ran.values()))}")
    assert not wrong, wrong
    assert len(solved) == RUNS
    assert resumed
