"""Evaluation sets as files of tasks for a batch: `DIR/SET/tasks.jsonl`, with a folder for each task that has one."""

import hashlib
import json
import os
import random
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stockade.core.errors import UsageError
from stockade.extend import EvalSet, EvalTask
from stockade.fleet.results import Attempt, latest, read_results
from stockade.fleet.statistics import Summary, summary
from stockade.paths import write_whole
from stockade.runtime import registry
from stockade_sandbox import Sandbox

GROUP: registry.Group = "stockade.evals"
RESULTS = ".results.jsonl"
_PREPARE_S = 120.0
_MAX_NAME = 100
_SAFE = re.compile(r"[^\w.-]+")


def set_of(name: str) -> EvalSet:
    """UsageError for none of that name, and for a package's that is no EvalSet."""
    found = registry.load(GROUP, name)
    if not isinstance(found, EvalSet):
        raise registry.wrong(GROUP, name, "is no stockade.extend.EvalSet")
    return found


@dataclass(frozen=True, slots=True)
class Written:
    """A file of tasks, and which were left out of it and why."""

    path: Path
    left_out: Mapping[str, str]


def write_tasks(name: str, seed: int, limit: int | None, into: Path) -> Written:
    """`limit` tasks, drawn by the seed, whose folders can be made here and whose reference passes; each is tried once.

    Those of a smaller limit are among those of a larger one. UsageError where there is none; SandboxFailed.
    """
    place, tasks = into / name, list(set_of(name).tasks())
    random.Random(seed).shuffle(tasks)
    rows, left_out = list[dict[str, object]](), dict[str, str]()
    (place / "folders").mkdir(parents=True, exist_ok=True, mode=0o700)
    for task in tasks:
        if len(rows) == limit:
            break
        folder = place / "folders" / _folder_name(task.id)
        if task.prepare is not None and (why := _prepared(task, folder)):
            left_out[task.id] = why
            continue
        where = {"folder": f"folders/{folder.name}:overlay"} if task.prepare is not None else {}
        rows.append({"id": task.id, "task": task.task, "score": task.score, "tags": [name], **where})
    if not rows:
        raise UsageError(f"the set {name} has no task that can be done here", next(iter(left_out.values()), None))
    path = place / f"tasks-seed{seed}{f'-{limit}' if limit else ''}.jsonl"
    write_whole(path, "".join(f"{json.dumps(row)}\n" for row in rows))
    return Written(path, left_out)


def _folder_name(task_id: str) -> str:
    """Of one task alone, also where ids differ in what no name of a folder may have."""
    name = _SAFE.sub("_", task_id).lstrip(".")[:_MAX_NAME]
    digest = hashlib.sha256(task_id.encode(errors="surrogatepass")).hexdigest()[:8]
    return name if name == task_id else f"{name}-{digest}"


def _prepared(task: EvalTask, folder: Path) -> str:
    """Why it cannot be done here; "" where its folder is there. It is made aside and moved to its place whole."""
    unfit = folder.with_name(f"{folder.name}.unfit")
    if folder.is_dir():
        return ""
    if unfit.is_file():
        return unfit.read_text()
    made = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(mode=0o700)
    why = _made(task, made)
    if why:
        shutil.rmtree(made)
        write_whole(unfit, why)
    else:
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another eval made it meanwhile
                raise
            shutil.rmtree(made)
    return why


def _made(task: EvalTask, folder: Path) -> str:
    with Sandbox(folder=f"{folder}:overlay") as box:
        done = box.exec(["bash", "-c", task.prepare or ""], timeout=_PREPARE_S)
        if done.timed_out or done.exit_code:
            words = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            return f"its folder cannot be made here: {''.join(words)[:200] or f'exit status {done.exit_code}'}"
        box.apply()
    if task.reference is None:
        return ""
    if _passes(folder, task, ":"):
        return "nothing done passes its check"
    return "" if _passes(folder, task, task.reference) else "its own reference does not pass its check here"


def _passes(folder: Path, task: EvalTask, solution: str) -> bool:
    with Sandbox(folder=f"{folder}:overlay") as box:
        answer = box.exec(["bash", "-c", solution], timeout=_PREPARE_S).stdout.decode(errors="replace").strip()
        done = box.exec(["bash", "-c", task.score], env={"ANSWER": answer}, timeout=_PREPARE_S)
        return done.exit_code == 0 and not done.timed_out


def results_file(place: Path, model: str, small_models: bool | None) -> Path:
    """One for each model, with and without the help for small models."""
    help_ = {None: "", True: "+help", False: "-help"}[small_models]
    return place / f"{_SAFE.sub('_', model or 'auto').strip('.')}{help_}{RESULTS}"


@dataclass(frozen=True, slots=True)
class Row:
    """What a model reached on a set. `help`: that for small models, as it was set. `within`: solved within so many of
    the model's answers, from 1 on.
    """

    set: str
    model: str
    help: str
    summary: Summary
    within: tuple[int, ...]


def table(into: Path) -> Iterator[Row]:
    """A row for each file of results, in order of set and file."""
    for path in sorted(into.glob(f"*/*{RESULTS}")):
        found = read_results(path)
        if not found:
            continue
        stem = path.name.removesuffix(RESULTS)
        help_ = {"+help": "on", "-help": "off"}.get(stem[-5:], "as the model's profile says")
        yield Row(path.parent.name, found[-1].model, help_, summary(found), _within(latest(found)))


def _within(attempts: Sequence[Attempt]) -> tuple[int, ...]:
    turns = [one.turns for one in attempts if one.outcome == "solved"]
    return tuple(sum(taken <= most for taken in turns) for most in range(1, max(turns, default=0) + 1))
