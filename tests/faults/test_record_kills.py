"""Runs killed at every named step of the record: its transactions, leases and snapshots; resumed to their end.

The folder must be what the commands made whose results are on record: all of them, or all but the one that was cut off,
which is never begun again. How many kills there are: tests/support/worlds.py.
"""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from stockade.testing import say
from tests.support.worlds import (
    BENEATH,
    KILLS,
    STRATEGIES,
    Beneath,
    Strategy,
    World,
    chosen,
    give,
    note_kill,
    tree_hash,
    world,
)

STEPS = {"record.begin", "record.append", "record.index", "record.sync", "record.commit", "record.acknowledge",
         "record.large", "record.close", "lease.take", "lease.release", "snapshot.sync", "snapshot.rename",
         "snapshot.taken"}  # fmt: skip
"""All but the heartbeat of a lease, which comes every 15 seconds: tests/faults/test_store_kills.py."""
LONG = "x" * 70_000
COMMANDS = tuple(
    f"echo line-{number} >> log; mkdir -p d{number}; cp log d{number}/x; seq {number} 40000 > noise{number % 3}"
    + ("; rm -f data.csv" if number == 3 else f"; : {LONG}" if number == 4 else "")
    for number in range(1, 7)
)
RUN = ("run", "x", "--no-input", "--max-turns", "40")
RESUME, APPLY = ("runs", "resume", "last", "--no-input"), ("runs", "apply", "last", "--flagged")


@dataclass
class Machine:
    world: World
    where: dict[str, Any]
    trees: dict[tuple[str, ...], str] = field(default_factory=dict)

    def begin(self) -> tuple[str, ...]:
        """A folder as new and a record as new; the command that runs there."""
        self.world.clear(self.world.state)
        folder = self.world.clear(self.world.folder)
        (folder / "data.csv").write_text("a\n")
        give(folder, self.world.uid)
        give(self.world.seen(self.world.state), self.world.uid)
        ends = [say("finish", answer="done")] * 9
        answers = [*(say("shell", command=command) for command in COMMANDS), *ends]
        script = self.world.base / "script.jsonl"
        self.world.seen(script).write_text("".join(json.dumps({"content": text}) + "\n" for text in answers))
        return (*RUN, "--folder", str(self.world.folder), "--model", f"scripted/{script}")

    def made_by(self, commands: Iterable[str]) -> str:
        """The tree that these commands leave, one after the other."""
        key = tuple(commands)
        if key not in self.trees:
            folder = self.world.seen(self.world.folder).with_name("reference")
            folder.mkdir()
            (folder / "data.csv").write_text("a\n")
            for command in key:
                subprocess.run(["sh", "-c", command], check=True, cwd=folder, umask=0o022, stdout=subprocess.DEVNULL)
            give(folder, self.world.uid)
            self.trees[key] = tree_hash(folder)
            subprocess.run(["rm", "-r", str(folder)], check=True)
        return self.trees[key]

    def traced(self) -> Counter[str]:
        begun = self.begin()
        ended = self.world.call(*begun, trace=True)
        assert ended.status == 0, ended
        steps = Counter(step for step in ended.out.splitlines() if step in STEPS)
        assert set(steps) == STEPS
        self.good(*APPLY)
        assert self.world.tree() == self.made_by(COMMANDS)
        return steps

    def good(self, *argv: str) -> str:
        ended = self.world.call(*argv)
        assert ended.status == 0, (argv, ended)
        return ended.out

    def killed(self, step: str, time: int, *, twice: bool) -> None:
        """A run, and where `twice` its resumption too. What is left is gone on with, and applied."""
        begun = self.begin()
        note = {**self.where, "command": "run, resume" if twice else "run", "step": step, "time": time}
        kills = 1
        ended = self.world.call(*begun, step=step, time=time)
        assert ended.was_killed, (note, ended)
        on_record = bool(self.good("runs", "list"))
        if twice and on_record:
            kills += self.world.call(*RESUME, step=step, time=0).was_killed
        last = self.world.call(*(RESUME if on_record else begun))
        assert last.status in (0, 2), (note, last)  # 2: it was over already, and says so
        events = [json.loads(line) for line in self.good("runs", "show", "last", "--json").splitlines()]
        actions = [event["action"]["action"] for event in events if event["type"] == "action_started"]
        begun_ones = [action["command"] for action in actions if action["tool"] == "shell"]
        assert begun_ones == list(COMMANDS), (note, "a command was left out, or begun twice", begun_ones)
        assert self.world.tree() == self.made_by([]), "the folder was touched before anybody applied"
        self.good(*APPLY)
        known = with_results(events)
        legal = len(known) >= len(COMMANDS) - kills and self.world.tree() == self.made_by(known)
        note["legal"] = ("new" if len(known) == len(COMMANDS) else "old") if legal else "illegal"
        note_kill(note)
        assert legal, (note, known, self.world.call("runs", "show", "last").out)
        run = events[0]["run_id"]
        left = [name for name in self.world.left_behind() if name.startswith(f"{run}/")]
        kept = re.compile(rf"{run}/(\d+\.journal|lock|live)(/|$)")  # for undo; of the killed: they go with the run
        assert [name for name in left if not kept.match(name)] == [], note


def with_results(events: list[dict[str, Any]]) -> list[str]:
    """The commands whose result is on record."""
    command, known = "", []
    for event in events:
        if event["type"] == "action_started":
            command = event["action"]["action"].get("command", "")
        elif event["type"] == "action_finished" and event["observation"]["kind"] == "command":
            known.append(command)
    return known


@pytest.mark.parametrize("seed", range(max(KILLS, 1)))
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("beneath", BENEATH)
def test_a_killed_run_is_resumed_to_one_of_two_trees(beneath: Beneath, strategy: Strategy, seed: int) -> None:
    with world(beneath, strategy, seed) as here:
        machine = Machine(here, {"beneath": beneath, "strategy": strategy, "seed": seed})
        for number, (step, time) in enumerate(chosen(machine.traced(), beneath, seed)):
            machine.killed(step, time, twice=(seed + number) % 2 == 1)
