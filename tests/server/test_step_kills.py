"""The server is killed by SIGKILL at each named step that a run of it comes to, and the next one goes on: no event that
a reader has is lost or comes twice, no command runs twice, and what was asked for by a key is one run.
"""

import os
import signal
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest

from stockade.testing import say
from tests.server.conftest import DONE, PATIENCE_S, Stage, Told, make_stage, stream, until
from tests.support.aimed import aimed, traced
from tests.support.scale import SCALE

TIMES = max(1, min(10, round(SCALE / 2)))
"""Kills at each step: ten in `make test-long`."""
STEPS = (
    "lease.take", "record.begin", "record.append", "record.index", "record.commit", "record.sync", "record.acknowledge",
    "snapshot.sync", "snapshot.rename", "snapshot.taken", "lease.release",
)  # fmt: skip
COMMANDS = [f"echo {number} >> ledger" for number in range(5)]
HEADERS = {"Idempotency-Key": "once"}


def asked(stage: Stage) -> dict[str, str]:
    script = stage.script("ledger", *(say("shell", command=command) for command in COMMANDS), DONE)
    return {"task": "t", "folder": ".", "model": script}


@dataclass
class Reader:
    """Begins the run and reads its events until the connection ends."""

    client: httpx2.Client
    body: dict[str, str]
    seen: list[Told] = field(default_factory=list)
    run: str = ""

    def read(self) -> None:
        with suppress(httpx2.TransportError):
            self.run = self.client.post("/v1/runs", json=self.body, headers=HEADERS).json()["id"]
            for one in stream(self.client, self.run):
                self.seen.append(one)


@cache
def undisturbed() -> tuple[Counter[str], Counter[str]]:
    """How often each step is come to by a server that starts, and by one that has had the run."""
    with TemporaryDirectory() as folder:
        stage = make_stage(Path(folder))
        steps, token = stage.path / "steps", stage.token("t")
        steps.touch()
        stage.program = traced(steps)
        try:
            stage.serve()
            before = Counter(steps.read_text().split())
            with stage.client(token) as client:
                until(client, client.post("/v1/runs", json=asked(stage)).json()["id"], "end")
            return before, Counter(steps.read_text().split())
        finally:
            stage.end()


def killed_at(stage: Stage, step: str, time: int, token: str, body: dict[str, str]) -> Reader:
    """What a reader had when the server was killed."""
    stage.program = aimed(step, time)
    process = stage.serve()
    with stage.client(token) as client:
        reader = Reader(client, body)
        thread = threading.Thread(target=reader.read)
        thread.start()
        while (found := os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG))[0] == 0:
            assert thread.is_alive(), f"{step} was not come to for the {time}th time"
            thread.join(0.05)
        assert os.WIFSTOPPED(found[1])
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
        thread.join(PATIENCE_S)
    stage.program = Stage.program
    return reader


def check(stage: Stage, step: str, number: int) -> None:
    before, after = undisturbed()
    assert after[step] > before[step], f"no run comes to {step}"
    token, body = stage.token("t"), asked(stage)
    time = before[step] + (after[step] - before[step]) * number // (TIMES + 1)
    reader = killed_at(stage, step, time, token, body)
    seen = [one for one in reader.seen if one.id is not None]
    stage.serve("--resume-on-start")
    with stage.client(token) as client:
        again = client.post("/v1/runs", json=body, headers=HEADERS)
        run = again.json()["id"]
        assert again.status_code == 200 or not reader.run
        assert reader.run in ("", run)
        rest = until(client, run, "end", seen[-1].id if seen else None)
        whole = until(client, run, "end")
        assert [*seen, *rest] == whole
        assert [one.id for one in whole[:-1]] == list(range(len(whole) - 1))
        state = client.get(f"/v1/runs/{run}").json()
        assert state["status"] == "done", f"{state}\n{whole}\n{(stage.path / 'stderr').read_text()}"
        begun = [one.data["action"]["action"]["command"] for one in whole if one.name == "action_started"]
        assert len(begun) == len(set(begun)), "a command was begun twice"
        ledger = [f"echo {line} >> ledger" for line in client.get(f"/v1/runs/{run}/files/ledger").text.split()]
        assert len(ledger) == len(set(ledger)), "a command ran twice"
        assert set(ledger) <= set(begun)
        assert len(ledger) >= len(COMMANDS) - 1, f"more than the one that was cut off is missing: {whole}"
        assert len(client.get("/v1/runs").json()["runs"]) == 1


@pytest.mark.parametrize("number", range(1, TIMES + 1))
@pytest.mark.parametrize("step", STEPS)
def test_a_server_killed_at_a_step_goes_on_with_its_run(step: str, number: int, own: Stage) -> None:
    check(own, step, number)
