"""The model server killed in the midst of an answer: the run ends by name, and goes on when there is one again."""

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import PATIENCE_S, Stage
from tests.faults import model_server
from tests.faults.test_resume_kills import check, on_record
from tests.support.scale import scaled

KILLS = scaled(1)


@contextmanager
def serving(port: int = 0) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    argv = [sys.executable, model_server.__file__, str(port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield server, int(server.stdout.readline())
        finally:
            server.kill()


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_model_server_ends_the_run_by_name(
    stage: Stage,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = random.Random(seed)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    flags = ("--folder", str(stage.demo), "--model", "openai/m", "--answers", "json", "--no-input", "--json")
    with serving() as (server, port):
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        run = stage.start("run", "append", *flags)
        assert run.stdout is not None
        for number, _ in enumerate(run.stdout):
            if number >= chance.randrange(3, 16):
                break
        threading.Event().wait(chance.random() * 0.06)
        server.kill()
        _, err = run.communicate(timeout=PATIENCE_S)
    before = on_record(stage, str(stage.state / "runs.db"))
    assert before[-1]["type"] == "run_finished"
    if before[-1]["status"] == "failed":
        assert (run.returncode, before[-1]["reason"]) == (5, "model"), err
        with serving(port):
            ended = stage.call("runs", "resume", "--apply")
        assert ended.status == 0, ended.err
    events = on_record(stage, str(stage.state / "runs.db"))
    must, _ = check(events, before)
    assert must == [f"line-{turn}" for turn in range(1, model_server.TURNS + 1)]
    if before[-1]["status"] == "failed":
        assert (Path(stage.demo) / "log").read_text().split() == must
