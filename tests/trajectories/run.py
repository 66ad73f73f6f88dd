"""Plays a trajectory through the real command and says what came between."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cli.conftest import Stage
from tests.cli.test_approve import ASKING, at_terminal
from tests.support.fake_openai import Asked
from tests.support.strong_model import strong_model
from tests.trajectories.trajectory import Trajectory

REFUSED_BY_THE_USER = "user"


@dataclass(frozen=True)
class Played:
    """`events` without the result line; `changed` as Trajectory.after; `seen` for a failing test."""

    events: list[dict[str, Any]]
    turns: list[Asked]
    changed: dict[str, str | None]
    seen: str


def play(trajectory: Trajectory, stage: Stage, *flags: str) -> Played:
    """The whole run, its changes applied."""
    for name, text in trajectory.files.items():
        path = stage.demo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (stage.demo / "data.csv").unlink()
    subprocess.run(["bash", "-ec", trajectory.setup], cwd=stage.demo, check=True)
    before = _texts(stage)
    arguments = ["run", trajectory.task, "--folder", str(stage.demo), "--model", "openai/strong", "--apply", *flags]
    with strong_model(trajectory.turns) as model, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", model.base_url)
        if trajectory.typed:
            argv = [sys.executable, "-m", "stockade.cli", *arguments, "--approve", "ask", "--plain"]
            seen = at_terminal(stage.home, argv, [(ASKING, typed) for typed in trajectory.typed])
        else:
            ended = stage.call(*arguments, "--json")
            seen = ended.out + ended.err
    stage.call("runs", "apply", "last", "--flagged")  # what runs by itself too, which --apply holds back
    shown = stage.call("runs", "export", "last", "--format", "jsonl").out
    events = [json.loads(line) for line in shown.splitlines()]
    after = _texts(stage)
    changed = {name: after.get(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return Played(events, model.turns, changed, seen)


def acts(played: Played, kind: str) -> list[dict[str, Any]]:
    return [event for event in played.events if event["type"] == kind]


def disturbances(trajectory: Trajectory, played: Played) -> list[str]:
    """Whatever a model would not have met without us: refusals, words, questions again, actions not as written."""
    found: list[str] = []
    for event in played.events:
        kind, seen = event["type"], event.get("observation", {})
        if kind in ("message_injected", "answer_unreadable", "history_compacted", "hook_ran"):
            found.append(f"{kind}: {event}")
        if kind == "action_finished" and event["words"]:
            found.append(f"words: {event['words']}")
        if seen.get("kind") == "refused" and seen["by"] != REFUSED_BY_THE_USER:
            found.append(f"refused: {seen}")
    if len(played.turns) != len(trajectory.turns):
        found.append(f"{len(played.turns)} turns for {len(trajectory.turns)}")
    meant = [call for turn in trajectory.turns if not isinstance(turn, str) for call in turn if call.tool != "finish"]
    done = [event["action"]["action"] for event in played.events if event["type"] == "action_started"]
    for call, action in zip(meant, done, strict=False):
        written = {"timeout_s" if key == "timeout" else key: value for key, value in call.arguments.items()}
        if {"tool": call.tool, **written}.items() - action.items():
            found.append(f"not as written: {call} {action}")
    if len(done) != len(meant):
        found.append(f"{len(done)} actions for {len(meant)}")
    return found


def _texts(stage: Stage) -> dict[str, str]:
    return {
        name: data.decode()
        for name, data in stage.tree().items()
        if not name.startswith(".git/") and "__pycache__" not in name
    }
