"""`stockade batch run --on ray`: real Ray, sandboxes, record; workers, a node, the driver and the database killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from stockade.store.opening import open_store
from stockade.testing import say
from stockade_sandbox.processes import descendants, start_time
from tests.cli.conftest import PATIENCE_S, Stage, interrupt
from tests.fleet.test_batch import DONE, begun, check_once, killed_batch, ledger, lines, outcomes, tasks
from tests.support import postgres

ALL = 10
A_NODE = 4
"""Runs that a node of one processor has room for: with more, the other has some."""
NAMES = [f"n{number}" for number in range(ALL)]


def on_ray(stage: Stage, where: str = "ray", parallel: int = 3, delay_s: float = 0.6) -> tuple[list[str], Path]:
    """The arguments of a batch of ALL tasks, and where its results are."""
    batch = killed_batch(stage, ALL, parallel, delay_s)
    return [*batch, "--on", where], stage.tmp_path / "tasks.results.jsonl"


def workers(process: "subprocess.Popen[Any]") -> list[int]:
    """The processes of its cluster that drive runs now."""
    found = list[int]()
    for pid in descendants(process.pid):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::drive"):
                found.append(pid)
    return found


async def under_way(record: str) -> int:
    """How many runs have begun and not ended."""
    store = open_store(record)
    found = [one for one in await store.runs() if one.status == "running" and one.turns]
    await store.close()
    return len(found)


def kill_workers(process: "subprocess.Popen[Any]", record: str) -> None:
    """All of them, while one has a run that has begun: they are stopped for the look."""
    while True:
        assert process.poll() is None
        victims = workers(process)
        to_all(victims, signal.SIGSTOP)
        if anyio.run(under_way, record):
            return to_all(victims, signal.SIGKILL)
        to_all(victims, signal.SIGCONT)


def to_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def test_runs_are_driven_by_workers(stage: Stage) -> None:
    arguments, _ = on_ray(stage)
    ended = stage.call(*arguments)
    assert ended.status == 0, ended.err
    assert "ray" not in ended.err.replace(str(stage.tmp_path), "")
    check_once(stage)
    again = stage.call(*arguments)
    assert f"{ALL} of {ALL} tasks were done before" in again.err


def test_what_a_killed_worker_had_goes_on_elsewhere(stage: Stage) -> None:
    arguments, results = on_ray(stage)
    process = stage.start(*arguments)
    for count in (1, 4):
        begun(process, results, count)
        kill_workers(process, str(stage.state / "runs.db"))
    assert process.wait(PATIENCE_S) == 0, process.stderr and process.stderr.read()
    check_once(stage)
    assert any(one["resumed"] for one in lines(stage))


def test_a_killed_driver_loses_no_run(stage: Stage) -> None:
    arguments, results = on_ray(stage)
    process = stage.start(*arguments)
    begun(process, results, 2)
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)
    ended = stage.call(*arguments)
    assert ended.status == 0, ended.err
    check_once(stage)


def test_ctrl_c_begins_nothing_more_and_then_stops_and_saves(stage: Stage) -> None:
    arguments, results = on_ray(stage)
    process = stage.start(*arguments)
    begun(process, results, 1)
    interrupt(process)
    assert process.wait(PATIENCE_S) == 3
    assert {one["outcome"] for one in lines(stage)} == {"solved"}
    assert len(lines(stage)) < ALL
    last, note = NAMES[-1], say("shell", command=f"echo {NAMES[-1]} >> ledger")
    stage.script(note, {"content": DONE, "delay_s": 600}, name=f"{last}.jsonl")  # it is under way until it is stopped
    process = stage.start(*arguments)
    while last not in ledger(stage):
        assert process.poll() is None
    cluster = [(pid, start_time(pid)) for pid in descendants(process.pid) if pid != process.pid]
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 130
    assert outcomes(stage)[last] == "cancelled"
    stage.script(note, DONE, name=f"{last}.jsonl")
    assert len(cluster) > 3
    until = time.monotonic() + PATIENCE_S  # what Ray ends last sees only then that the rest is gone
    while left := [pid for pid, began in cluster if began == start_time(pid, zombies=False)]:
        assert time.monotonic() < until, [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
        time.sleep(0.05)
    assert stage.call(*arguments).status == 0
    check_once(stage)


@dataclass
class Nodes:
    """tests.support.ray_nodes, started."""

    process: "subprocess.Popen[str]"
    address: str

    def say(self, word: str) -> None:
        """`kill` or `add`; returns when it is done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"{word}\n"


@contextmanager
def two_nodes(stage: Stage, around: Sequence[str] = (), *given: str) -> Iterator[Nodes]:
    """`around`: a program that starts them."""
    program = [*around, sys.executable, "-m", "tests.support.ray_nodes", *given]
    with subprocess.Popen(
        program, env=stage.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as nodes:
        assert nodes.stdout is not None
        try:
            yield Nodes(nodes, nodes.stdout.readline().strip())
        finally:
            assert nodes.stdin is not None
            nodes.stdin.close()
            nodes.wait(PATIENCE_S)


def test_a_node_and_the_database_are_killed_and_every_run_goes_on(stage: Stage) -> None:
    with postgres.server() as server, two_nodes(stage) as nodes:
        record = ("--store", server.new_database())
        arguments, _ = on_ray(stage, f"ray:{nodes.address}", parallel=8, delay_s=4)
        process = stage.start(*arguments, *record)
        while anyio.run(under_way, record[1]) <= A_NODE:
            assert process.poll() is None
        nodes.say("kill")
        server.kill()
        server.start()
        assert process.wait(PATIENCE_S) == 0, process.stderr and process.stderr.read()
        check_once(stage, *record)
        assert any(one["resumed"] for one in lines(stage))


def test_paths_are_those_of_the_drivers_folder(stage: Stage) -> None:
    """Not of the one in which a node was started."""
    (stage.tmp_path / "own.toml").write_text('prompt = "p"\nmax_turns = 1\n')
    stage.script(say("shell", command="true"), DONE, name="relative.jsonl")
    path = tasks(stage, {"id": "a", "task": "t", "folder": "demo", "model": "scripted/relative.jsonl"})
    with postgres.server() as server, two_nodes(stage) as nodes:
        done = stage.call(
            "batch", "run", str(path), "--bot", "own.toml", "--on", f"ray:{nodes.address}", "--store",
            server.new_database(), folder=stage.tmp_path,
        )  # fmt: skip
    assert [(one["outcome"], one["detail"]) for one in lines(stage)] == [("budget", "turns: 1 of 1")], done.err


@pytest.mark.parametrize(("where", "words"), [
    ("rya", "is neither ray nor ray:ADDRESS"), ("ray:", "is neither ray nor ray:ADDRESS"),
    ("ray:127.0.0.1:1", "there is no Ray at 127.0.0.1:1"), ("ray:nonsense", "there is no Ray at nonsense"),
])  # fmt: skip
def test_what_is_no_cluster_is_named(stage: Stage, where: str, words: str) -> None:
    arguments, results = on_ray(stage, where)
    ended = stage.call(*arguments)
    assert (ended.status, words in ended.err, "Traceback" in ended.err) == (2, True, False), ended.err
    assert not lines(stage) if results.exists() else True
