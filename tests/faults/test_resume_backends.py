"""A run that was killed goes on, on every backend: its folder, its shell, its record."""

import json
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import Stage
from tests.support.engines import engine_environment

BACKENDS = ("bubblewrap", "docker", "podman", "gvisor")
TURNS = 6


@pytest.mark.parametrize("victim", ["process", "sandbox"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_killed_run_goes_on(stage: Stage, backend: str, victim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend in ("docker", "podman"):
        for name, value in engine_environment(backend).items():
            monkeypatch.setenv(name, value)
    turns = [say("shell", command=f"export SEEN=${{SEEN}}{n}; echo line-{n} >> log") for n in range(1, TURNS + 1)]
    model = stage.script(*turns, say("shell", command="echo $SEEN >> log"), say("finish", answer="done"))
    flags = ("--folder", str(stage.demo), "--model", model, "--sandbox", backend, "--no-input")
    process = stage.start("run", "append", *flags, "--json")
    assert process.stdout is not None
    done = 0
    for line in process.stdout:
        done += json.loads(line)["type"] == "action_finished"
        if done == 3:
            break
    process.kill()
    process.communicate()
    if victim == "sandbox":
        swept = stage.call("doctor", "--clean")
        assert swept.status in (0, 4), swept.err
    assert not (stage.demo / "log").exists()
    ended = stage.call("runs", "resume", "last", "--json", "--no-input")
    assert ended.status == 0, ended.err
    applied = stage.call("runs", "apply", "last")
    assert applied.status == 0, applied.err
    log = Path(stage.demo, "log").read_text().splitlines()
    assert log[:3] == ["line-1", "line-2", "line-3"]
    assert len(log) == len(set(log)), log
    assert log[-1].startswith("123"), "the exported variable is what it was"
    assert stage.left_behind() == []
