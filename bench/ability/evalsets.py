"""The sets of `stockade eval`, as drawn by its seed, for the arms of this bench: the same folders and the same checks.

They are read from the packages that `stockade eval` names (docs/eval.md), which have to be installed.
"""

import json
from functools import partial
from pathlib import Path

from bench.ability.agentbench import CACHE
from bench.ability.task import ANSWER, Task
from stockade.fleet.evals import write_tasks
from stockade_sandbox import Sandbox

LIMIT, SEED, SCORE_S = 40, 1, 60.0
NAMES = {"eval-agentbench": "agentbench", "eval-intercode": "intercode"}


def tasks(name: str) -> tuple[Task, ...]:
    """UsageError says which package is missing."""
    file = write_tasks(NAMES[name], SEED, LIMIT, CACHE / "evals").path
    return tuple(_task(name, json.loads(line), file.parent) for line in file.read_text().splitlines())


def _task(name: str, row: dict[str, str], place: Path) -> Task:
    made = place / row["folder"].removesuffix(":overlay") if "folder" in row else None
    return Task(
        name=f"{name}-{row['id']}",
        kind="questions",
        level=2,
        words=row["task"],
        solved=partial(_solved, row["score"]),
        solution="",
        prepare=f"cp -a {made}/. ." if made else "",
    )


def _solved(score: str, folder: Path) -> bool:
    said = (folder / ANSWER).read_text(errors="replace").strip()
    (folder / ANSWER).unlink()
    with Sandbox(folder=f"{folder}:overlay") as box:
        done = box.exec(["bash", "-c", score], env={"ANSWER": said}, timeout=SCORE_S)
    return done.exit_code == 0 and not done.timed_out
