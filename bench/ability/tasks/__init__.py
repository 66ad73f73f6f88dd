"""The tasks, in the order in which they run: rounds of one of each kind, so that a part of them is mixed too.

Frozen on 22 November 2026, before anything was tuned on them. Those with an even number, counted from 1, were looked
at while tuning; those with an odd number only counted.
"""

from bench.ability.task import Task
from bench.ability.tasks import archives, csv_files, files, git, json_files, logs, programs, text

_KINDS = tuple(kind.TASKS for kind in (files, text, csv_files, json_files, logs, archives, git, programs))
_ROUNDS = min(map(len, _KINDS))
# Each round begins with another kind: half of every kind is even, half is odd.
TASKS: tuple[Task, ...] = tuple(
    _KINDS[(place + turn) % len(_KINDS)][turn] for turn in range(_ROUNDS) for place in range(len(_KINDS))
)


def held_out(task: Task) -> bool:
    """True for the half of the tasks that nothing was tuned on: the first, the third and so on."""
    return TASKS.index(task) % 2 == 0
