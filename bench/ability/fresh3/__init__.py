"""A fourth set of tasks, in rounds of one of each kind, with other jobs than the first three.

Written by somebody who had seen neither the rules nor a run, frozen before any run. Nothing is to be tuned on them: no
run of them is to be looked at to make the product better.
"""

from bench.ability.fresh3 import archives, csv_files, files, git, json_files, logs, programs, text
from bench.ability.task import Task

_KINDS = tuple(kind.TASKS for kind in (files, text, csv_files, json_files, logs, archives, git, programs))
TASKS: tuple[Task, ...] = tuple(task for turn in zip(*_KINDS, strict=True) for task in turn)
