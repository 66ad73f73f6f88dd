"""Power cuts: runs on a disk that keeps what was synced and nothing else (tests/support/power.py), gone on with after.

What may be lost is the result of the last action, with its checkpoint, and nothing that came before or was synced. The
action is then reported as unknown, its files are those of the turn before, and it is not run again.
A failing one names its seed.
"""

import json
import random
import select
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stockade.testing import say
from tests.cli.conftest import PATIENCE_S, Stage
from tests.support.power import cut, mounted
from tests.support.scale import scaled

CUTS = scaled(4)
CUTS_A_RUN = 2
TURNS = 8
MAY_BE_LOST = {"action_finished", "checkpoint"}
READ = """
import json, sys, anyio
from stockade.runtime.records import open_store
from stockade.core.errors import UsageError
from stockade.core.events import to_json

async def read():
    store = open_store(sys.argv[1])
    try:
        for event in await store.events(await store.find("last")):
            print(to_json(event))
    except UsageError:
        pass
    await store.close()

anyio.run(read)
"""


@dataclass
class Machine:
    """One run on a disk of its own. `said`: what the commands printed as on record since the disk was new."""

    stage: Stage
    flags: tuple[str, ...]
    number: int = 0
    said: list[dict[str, Any]] = field(default_factory=list)

    @property
    def image(self) -> Path:
        return self.stage.tmp_path / f"disk{self.number}"

    @property
    def place(self) -> Path:
        return self.stage.tmp_path / "disk"

    def start(self, within: tuple[str, ...], *arguments: str) -> "subprocess.Popen[bytes]":
        environment = {**self.stage.environment(), "XDG_STATE_HOME": str(self.place)}
        argv = [*within, sys.executable, *arguments]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment, stdin=subprocess.DEVNULL)
        self.stage.running.append(process)
        return process

    def call(self, within: tuple[str, ...], *arguments: str) -> str:
        process = self.start(within, *arguments)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        return out.decode()

    def on_record(self, within: tuple[str, ...]) -> list[dict[str, Any]]:
        out = self.call(within, "-c", READ, str(self.place / "stockade" / "runs.db"))
        return [json.loads(line) for line in out.splitlines()]

    def cut_after(self, lines: int, wait_s: float, *arguments: str) -> list[dict[str, Any]]:
        """Cuts the power of a command when it has printed so many events. What is on record afterwards.

        It is what was printed, in order, but for the end of it, of which nothing that must be synced may be gone.
        """
        with mounted(self.image, self.place) as within:
            process = self.start(within, "-m", "stockade.cli", *arguments, "--json", "--no-input")
            printed = _first(process, lines)
            threading.Event().wait(wait_s)
            disk = cut(self.image, process)
            assert process.stdout is not None
            printed += process.stdout.read().splitlines()
        self.said += [event for line in printed if (event := _event(line)) is not None]
        self.image.unlink()
        self.number += 1
        self.image.write_bytes(disk)
        with mounted(self.image, self.place) as within:
            left = self.on_record(within)
        both = min(len(left), len(self.said))
        assert left[:both] == self.said[:both]
        lost = {event["type"] for event in self.said[both:]}
        assert lost <= MAY_BE_LOST
        self.said = left
        return left

    def to_the_end(self) -> list[dict[str, Any]]:
        """Resumed, applied; nothing is left. The record."""
        with mounted(self.image, self.place) as within:
            begun = self.on_record(within)
            again = ("runs", "resume", "last") if begun else ("run", "append", *self.flags)
            if not begun or begun[-1].get("status") != "done":
                self.call(within, "-m", "stockade.cli", *again, "--no-input")
            record = self.on_record(within)
            self.call(within, "-m", "stockade.cli", "runs", "apply", "last")
        return record


def _first(process: "subprocess.Popen[bytes]", lines: int) -> list[bytes]:
    assert process.stdout is not None
    seen: list[bytes] = []
    while len(seen) < lines and select.select([process.stdout], [], [], PATIENCE_S)[0]:
        line = process.stdout.readline()
        if not line:
            break
        seen.append(line)
    return seen


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:  # the last line may be cut with its writer
        return None
    return None if event["type"] == "result" else event


def _machine(stage: Stage, delay_s: float) -> Machine:
    turns = [say("shell", command=f"echo line-{number} >> log") for number in range(1, TURNS + 1)]
    answers = [{"content": text, "delay_s": delay_s} for text in (*turns, *[say("finish", answer="x")] * TURNS)]
    flags = ("--folder", str(stage.demo), "--model", stage.script(*answers), "--max-turns", "40")
    return Machine(stage, flags)


def _check(stage: Stage, record: list[dict[str, Any]]) -> None:
    """No command was begun twice; the folder holds what those left whose result is on record, once and in order."""
    assert record[-1]["status"] == "done"
    begun = [event["action"]["action"]["command"] for event in record if event["type"] == "action_started"]
    assert sorted(begun) == sorted(set(begun)), "a command was begun twice"
    assert (stage.demo / "log").read_text().splitlines() == _lines(record)


def _lines(record: list[dict[str, Any]]) -> list[str]:
    """Of the commands whose result is on record."""
    line, lines = "", []
    for event in record:
        if event["type"] == "action_started":
            line = event["action"]["action"]["command"].split()[1]
        elif event["type"] == "action_finished" and event["observation"]["kind"] == "command":
            lines.append(line)
    return lines


def test_a_result_that_was_not_yet_synced_is_unknown_after_a_power_cut(stage: Stage) -> None:
    """While the model thinks. Once must do, but another's sync of all disks may have been in between."""
    machine = _machine(stage, delay_s=0.4)
    lines_of_a_turn = 5  # answered, understood, started, checkpoint, finished
    before_the_first = 3
    for turn in range(1, 4):
        arguments = ("runs", "resume", "last") if turn > 1 else ("run", "append", *machine.flags)
        known = len(machine.said)
        record = machine.cut_after(before_the_first + lines_of_a_turn, 0.0, *arguments)
        if record and record[-1]["type"] == "action_started":
            break
        assert len(record) >= known
    assert record[-1]["type"] == "action_started", "what was not synced has outlived the power"
    cut_off = record[-1]["action"]["action"]["command"]
    record = machine.to_the_end()
    place = next(n for n, event in enumerate(record) if event["type"] == "run_resumed")
    assert record[place - 1]["observation"]["kind"] == "unknown"
    assert record[place - 2]["action"]["action"]["command"] == cut_off
    assert cut_off.split()[1] not in (stage.demo / "log").read_text()
    _check(stage, record)


def test_what_is_applied_of_a_run_whose_power_was_cut_is_what_it_had_on_record(stage: Stage) -> None:
    """Without going on: the layer itself holds an empty file then, since nobody synced what the bot wrote."""
    machine = _machine(stage, delay_s=0.4)
    record = machine.cut_after(3 + 5 * 3, 0.0, "run", "append", *machine.flags)
    with mounted(machine.image, machine.place) as within:
        machine.call((*within, *_just_up()), "-m", "stockade.cli", "runs", "apply", "last")
    assert len(_lines(record)) >= 2
    assert (stage.demo / "log").read_text().splitlines() == _lines(record)


def _just_up() -> tuple[str, ...]:
    """Before an argv: it sees a machine that was started now. A clock is set back by whole seconds, so at one."""
    up_s = int(time.clock_gettime(time.CLOCK_BOOTTIME)) + 1
    threading.Event().wait(up_s - time.clock_gettime(time.CLOCK_BOOTTIME))
    return ("unshare", "--time", "--boottime", f"-{up_s}", "--fork", "--")


@pytest.mark.parametrize("seed", range(-(-CUTS // CUTS_A_RUN)))
def test_runs_whose_power_was_cut_go_on_to_their_end(stage: Stage, seed: int) -> None:
    chance = random.Random(seed)
    machine = _machine(stage, delay_s=0.02)
    for _ in range(CUTS_A_RUN):
        arguments = ("runs", "resume", "last") if machine.said else ("run", "append", *machine.flags)
        machine.cut_after(chance.randrange(1, 30), chance.random() * 0.05, *arguments)
    _check(stage, machine.to_the_end())
    assert not list((machine.place / "stockade").glob("runs/*")), f"seed {seed}"
