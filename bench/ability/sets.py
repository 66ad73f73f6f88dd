"""The sets of tasks. Their results are never mixed: a folder of results is of one set."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from bench.ability import agentbench, evalsets, fresh, fresh2, fresh3, intercode, questions, tasks
from bench.ability.task import Task

DEFAULT = "tasks"
SETS: Mapping[str, tuple[Task, ...]] = MappingProxyType(
    {
        DEFAULT: tasks.TASKS,
        "fresh": fresh.TASKS,
        "fresh2": fresh2.TASKS,
        "fresh3": fresh3.TASKS,
        "questions": questions.TASKS,
    }
)
CHOOSING, JUDGING, CHOOSING2, JUDGING2, JUDGING3 = "choosing", "judging", "choosing2", "judging2", "judging3"
"""Frozen sets, a pair for each judgement: rules for small models are chosen on the one, and measured once on the other.
The third judgement has none to choose on: no rule was changed for it.
"""
_FROZEN = {JUDGING2: agentbench.JUDGING, CHOOSING2: agentbench.CHOOSING, JUDGING3: agentbench.JUDGING3}
NAMES = (*SETS, CHOOSING, JUDGING, *_FROZEN, *evalsets.NAMES)


def members(name: str) -> tuple[Task, ...]:
    """The tasks of a set. FileNotFoundError where the wheels of the judging set have not been downloaded."""
    if name == CHOOSING:
        names = json.loads(Path(__file__).with_name("choosing.json").read_text())["tasks"]
        return tuple(task for task in fresh3.TASKS if task.name in names)
    if name == JUDGING:
        return (*agentbench.tasks(), *intercode.tasks())
    if name in _FROZEN:
        return agentbench.tasks(_FROZEN[name])
    if name in evalsets.NAMES:
        return evalsets.tasks(name)
    return SETS[name]


def set_of(names: Collection[str]) -> str:
    """The set that all these tasks are of, the default one when there are none. ValueError when there is no such."""
    for one in evalsets.NAMES:
        if names and all(name.startswith(f"{one}-") for name in names):
            return one
    if any(name.startswith(("agentbench-", "intercode-")) for name in names):
        known = {one: {task.name for task in members(one)} for one in (JUDGING, *_FROZEN)}
    else:
        known = {name: {task.name for task in of} for name, of in SETS.items()}
    for name, tasks_of in known.items():
        if tasks_of.issuperset(names):
            return name
    raise ValueError("these tasks are not all of one set: " + ", ".join(sorted(names)))
