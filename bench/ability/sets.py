"""The sets of tasks. Their results are never mixed: a folder of results is of one set."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from bench.ability import fresh, fresh2, fresh3, questions, tasks
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


def set_of(names: Collection[str]) -> str:
    """The set that all these tasks are of, the default one when there are none. ValueError when there is no such."""
    for name, members in SETS.items():
        if {task.name for task in members}.issuperset(names):
            return name
    raise ValueError("these tasks are not all of one set: " + ", ".join(sorted(names)))
