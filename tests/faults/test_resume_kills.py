"""Runs killed for real, again and again, at any instant; resumed until they are done.

Each command of the script adds its own line to a file of the folder. In the end that file must hold, in order, the line
of every command whose result is on record, once, and no other: nothing acknowledged was lost, nothing ran twice, and
what an interrupted command wrote was taken back. Every other run is on record in PostgreSQL, and half of them have a
window so small that the conversation is folded on the way. A failing one names its seed.
"""

import json
import os
import random
import signal
import subprocess
import threading
from contextlib import suppress
from typing import Any

import anyio
import pytest

from stockade.core.errors import UsageError
from stockade.core.events import to_json
from stockade.runtime.records import open_store
from stockade.testing import say
from tests.cli.conftest import PATIENCE_S, Ended, Stage, descendants, gone, watched
from tests.support.scale import scaled

KILLS = scaled(16)
KILLS_A_RUN = 4
TURNS = 12
SMALL_WINDOW = 2000
VICTIMS = ("process", "sandbox", "shell", "anything")


def command(number: int) -> str:
    """Appends its line; some take a while, export something, or write more than one sync can hide."""
    extra = ("", "; sleep 0.05", f"; export V{number}=1", f"; head -c 200000 /dev/urandom > noise{number % 3}")[
        number % 4
    ]
    return f"echo line-{number} >> log{extra}"


def script(*, folding: bool) -> list[dict[str, Any]]:
    loud = "; seq 400" if folding else ""
    turns = [say("shell", command=f"{command(number)}{loud}") for number in range(1, TURNS + 1)]
    answers: list[dict[str, Any]] = [
        {"content": text} for text in (*turns, *[say("finish", answer="done")] * (TURNS + 3))
    ]
    if folding:
        answers[0]["context_window"] = SMALL_WINDOW
    return answers


def killed(stage: Stage, chance: random.Random, *arguments: str) -> list[dict[str, Any]]:
    """Starts the command, kills something of it at some moment, waits for its end. The events it acknowledged."""
    process = stage.start(*arguments, "--json")
    assert process.stdout is not None
    seen: list[dict[str, Any]] = []
    moment = chance.randrange(0, 24)
    counted = threading.Event()

    def read() -> None:
        for number, line in enumerate(process.stdout or ()):
            with suppress(ValueError):  # the last line may be cut with its writer
                seen.append(json.loads(line))
            if number >= moment:
                counted.set()
        counted.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert counted.wait(PATIENCE_S)
    threading.Event().wait(chance.random() * 0.03)
    below = descendants(process.pid)
    pidfds = watched([process.pid, *below])
    with suppress(ProcessLookupError):
        os.kill(_victim(chance.choice(VICTIMS), process, below, chance), signal.SIGKILL)
    process.wait(PATIENCE_S)
    reader.join(PATIENCE_S)
    assert gone(pidfds), "a process is left"
    return [event for event in seen if event["type"] != "result"]


def _victim(kind: str, process: "subprocess.Popen[bytes]", below: list[int], chance: random.Random) -> int:
    if kind == "process" or not below:
        return process.pid
    if kind == "sandbox":
        return below[0]
    return below[-1] if kind == "shell" else chance.choice(below)


def resumed(stage: Stage) -> Ended:
    """To its end; a run that was over already says so."""
    return stage.call("runs", "resume", "last", "--json", "--no-input")


def on_record(stage: Stage, where: str, run: str = "last") -> list[dict[str, Any]]:
    """Read in this process; empty when the run never began. One whose sandbox never came up is not `last`."""
    if not where.startswith("postgresql:") and not (stage.state / "runs.db").exists():
        return []

    async def read() -> list[dict[str, Any]]:
        store = open_store(where)
        try:
            return [json.loads(to_json(event)) for event in await store.events(await store.find(run))]
        except UsageError:
            return []
        finally:
            await store.close()

    return anyio.run(read)


def check(events: list[dict[str, Any]], acknowledged: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Nothing acknowledged is missing, nothing was begun twice. The lines that must be in the folder, that may be."""
    missing = [event for event in acknowledged if event not in events]
    assert not missing, "acknowledged events are lost"
    begun = [event["action"]["action"]["command"] for event in events if event["type"] == "action_started"]
    assert sorted(begun) == sorted(set(begun)), "a command was begun twice"
    must, may, line = [], [], ""
    for event in events:
        if event["type"] == "action_started":
            line = event["action"]["action"]["command"].split()[1].rstrip(";")
        elif event["type"] == "action_finished" and event["observation"]["kind"] == "command":
            may.append(line)
            if event["observation"]["exit_code"] == 0:  # else its shell was killed, before or after the line
                must.append(line)
    return must, may


@pytest.mark.parametrize("seed", range(-(-KILLS // KILLS_A_RUN)))
def test_killed_runs_go_on_to_their_end(
    stage: Stage, seed: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, folding = random.Random(seed), seed % 4 in (0, 3)
    where = str(request.getfixturevalue("postgres").new_database()) if seed % 2 else str(stage.state / "runs.db")
    monkeypatch.setenv("STOCKADE_STORE", where)
    model = stage.script(*script(folding=folding))
    flags = ("--folder", str(stage.demo), "--model", model, "--max-turns", "40", "--no-input")
    acknowledged = killed(stage, chance, "run", "append", *flags)
    for _ in range(KILLS_A_RUN - 1):
        if on_record(stage, where):
            acknowledged += killed(stage, chance, "runs", "resume", "last", "--no-input")
    if not on_record(stage, where):
        assert not acknowledged
        return
    ended = resumed(stage)
    assert ended.status in (0, 2), f"seed {seed}: {ended.err}"
    events = on_record(stage, where)
    assert (events[-1]["type"], events[-1].get("status")) == ("run_finished", "done"), f"seed {seed}: {events[-1]}"
    assert any(event["type"] == "history_compacted" for event in events) or not folding, (
        f"seed {seed}: nothing was folded"
    )
    must, may = check(events, acknowledged)
    assert stage.tree() == {"data.csv": b"a\n"}, "the folder was touched before anybody applied"
    _killed_while_applying(stage, chance)
    log = (stage.demo / "log").read_text().splitlines() if (stage.demo / "log").exists() else []
    history = [(e["type"], e.get("turn"), e.get("observation", {}).get("exit_code"), e.get("files")) for e in events]
    assert [line for line in log if line in must] == must, f"seed {seed}: {history}"
    assert [line for line in may if line in log] == log, f"seed {seed}: {history}"
    assert stage.left_behind() == [], f"seed {seed}"


def _killed_while_applying(stage: Stage, chance: random.Random) -> None:
    process = stage.start("runs", "apply", "last")
    threading.Event().wait(0.2 + chance.random() * 0.6)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    stage.call("runs", "apply", "last")
