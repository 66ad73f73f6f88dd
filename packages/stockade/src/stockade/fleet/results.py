"""The results of a batch: a line an attempt, appended and synced; and beside them which runs were begun, so that after
a kill none is lost and none begun twice.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os.path import isfile
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import Field, ValidationError

from stockade.core.data import Data
from stockade.core.errors import StoreFailed, UsageError
from stockade.core.events import RunFinished
from stockade.fleet.tasks import Item
from stockade_sandbox.locks import lock_within, open_lock, release, try_lock
from stockade_sandbox.processes import start_time

Outcome = Literal["solved", "check failed", "gave up", "budget", "model error", "sandbox error", "cancelled",
                  "usage error"]  # fmt: skip
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
INFRASTRUCTURE: frozenset[Outcome] = frozenset({"model error", "sandbox error"})
"""They say nothing about the task."""
FINAL: frozenset[Outcome] = frozenset({"solved", "check failed", "gave up", "budget"})
"""With one of these a task is not done again unless the user says so."""
_OF_REASONS: Mapping[str, Outcome] = {
    "check_failed": "check failed", "gave_up": "gave up", "schema": "gave up", "loop": "gave up",
    "unreadable": "gave up", "declined": "gave up",
    "turns": "budget", "time": "budget", "tokens": "budget", "cost": "budget",
    "model": "model error", "sandbox": "sandbox error", "store": "sandbox error", "bug": "sandbox error",
    "user": "cancelled",
}  # fmt: skip
_JOURNAL = ".journal"
_LOOK_S = 1.0
"""A look at a lock has it for a moment."""
Row = TypeVar("Row", bound=Data)
Seconds = Annotated[float, Field(ge=0, lt=2**36)]
"""Since 1970, or of an attempt: within what a calendar has."""


def outcome_of(finished: RunFinished) -> Outcome:
    """What the end of a run is in a batch. A hook or tool of the user's that broke is theirs to mend."""
    if finished.status == "done":
        failed = finished.verified is False or finished.reason == "check_failed"
        return "check failed" if failed else "solved"
    if (finished.status, finished.reason) == ("stopped", "hook"):
        return "gave up"
    return _OF_REASONS.get(finished.reason, "usage error")


class Tried(Data):
    """A candidate of an attempt with `--best-of`. `verified` None: it was stopped, or failed, before its check."""

    run: str
    status: str
    verified: bool | None = None
    turns: int = 0
    cost: float = 0.0


class Attempt(Data):
    """A line of the results. `cost` in USD and `tokens` are those of the whole run, `seconds` of this attempt."""

    id: str
    epoch: int = 1
    hash: str
    attempt: int
    run: str
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    verified: bool | None = None
    answer: str | None = None
    turns: int = 0
    tokens: int = 0
    cost: float = 0.0
    started: Seconds
    seconds: Seconds
    resumed: bool = False
    applied: tuple[str, ...] = ()
    kept: str = ""
    """Why changes were not applied that should have been, or its layers not removed."""
    model: str = ""
    candidates: tuple[Tried, ...] = ()
    tags: tuple[str, ...] = ()
    task: str = ""

    @property
    def key(self) -> tuple[str, int, str]:
        return self.id, self.epoch, self.hash


def default_results(tasks: Path) -> Path:
    """Where they are when nobody says: beside the tasks."""
    return tasks.with_name(f"{tasks.stem if tasks.suffix in ('.jsonl', '.csv') else tasks.name}.results.jsonl")


def results_of(path: Path) -> Path:
    """Those of a file of tasks, or of their own name. UsageError where there are none."""
    for one in (default_results(path), path):
        if isfile(one) and one.name.endswith(".jsonl") and (one != path or _are_results(one)):
            return one
    raise UsageError(f"there are no results of {path}", f"stockade batch run {path}")


def _are_results(path: Path) -> bool:
    if path.name.endswith(".results.jsonl"):
        return True
    with path.open("rb") as file:
        line = file.readline(1 << 20)
    return not line or b'"outcome"' in line


def read_results(path: Path) -> list[Attempt]:
    """In the order of writing. A last line that a kill cut off is none."""
    return _read(path, Attempt, "results")


class Noted(Data):
    """A line of the journal: a run that was begun, or `driver`, the process that drives from here on, its id and start
    time; None is a server.
    """

    id: str = ""
    epoch: int = 1
    hash: str = ""
    run: str = ""
    driver: tuple[int, int] | None = None
    at: float = 0.0


def _read(path: Path, kind: type[Row], what: str) -> list[Row]:
    found = list[Row]()
    for number, line in enumerate(_whole_lines(path), 1):
        try:
            found.append(kind.model_validate_json(line))
        except ValidationError:
            raise StoreFailed(
                f"{path}, line {number} is no line of {what}", "name other results by --results"
            ) from None
    return found


def latest(attempts: list[Attempt]) -> list[Attempt]:
    """Of each task and epoch the last attempt, in the order in which they were first seen."""
    return list({(one.id, one.epoch): one for one in attempts}.values())


def _whole_lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreFailed(f"{path} cannot be read: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class Driver:
    """The process that drives a batch. `pidfd` is readable when it is gone; None: it is a server, and does more."""

    pidfd: int | None


def driver_of(path: Path) -> Driver | None:
    """Who drives the batch of these results now."""
    journal = _journal(path)
    if not journal.exists():
        return None
    descriptor = open_lock(journal)
    try:
        if try_lock(descriptor, shared=True):
            return None
    finally:
        release(descriptor)
    drivers = [row.driver for row in _read(journal, Noted, "a journal") if not row.run]
    if not drivers:
        return None
    if drivers[-1] is None:
        return Driver(None)
    pid, began = drivers[-1]
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    if start_time(pid, zombies=False) == began:
        return Driver(pidfd)
    os.close(pidfd)
    return None


def _journal(path: Path) -> Path:
    return path.with_name(path.name + _JOURNAL)


@dataclass(slots=True)
class Known:
    """Of one task and epoch with the very same settings: how often it was tried, and how that ended last."""

    tries: int
    outcome: Outcome


class Results:
    """Those that this process writes; nobody else does meanwhile. In memory is what the next attempt needs to know."""

    def __init__(self, path: Path, lines: int, journal: int, attempts: Iterable[Attempt]) -> None:
        self.path = path
        self.costs = dict[str, float]()
        """USD, by run."""
        self._lines, self._journal = lines, journal
        self._known = dict[tuple[str, int, str], Known]()
        self._begun = dict[tuple[str, int, str], str]()
        over = set[str]()
        for one in attempts:
            self._note(one)
            over.update(() if one.outcome == "cancelled" else (one.run,))
        for row in _read(_journal(path), Noted, "a journal"):
            if row.run and row.run not in over:
                self._begun[row.id, row.epoch, row.hash] = row.run

    def of(self, items: Iterable[Item]) -> list[Attempt]:
        """All attempts at these very tasks with these very settings, in order, read again."""
        keys = {item.key for item in items}
        return [one for one in read_results(self.path) if one.key in keys]

    def last(self, item: Item) -> Outcome | None:
        """Of the last attempt at this very task with these very settings."""
        known = self._known.get(item.key)
        return known.outcome if known else None

    def tries(self, item: Item) -> int:
        known = self._known.get(item.key)
        return known.tries if known else 0

    def begun(self, item: Item) -> str | None:
        """The run of it that was begun and has not come to its end."""
        return self._begun.get(item.key)

    def begin(self, item: Item, run_id: str) -> None:
        """On disk when this returns."""
        self._begun[item.key] = run_id
        _append(self._journal, {"id": item.task.id, "epoch": item.epoch, "hash": item.digest, "run": run_id})

    def add(self, attempt: Attempt) -> None:
        """On disk when this returns."""
        _append(self._lines, attempt.model_dump(mode="json"))
        self._note(attempt)
        if attempt.outcome != "cancelled":
            self._begun.pop(attempt.key, None)

    def _note(self, attempt: Attempt) -> None:
        known = self._known.setdefault(attempt.key, Known(0, attempt.outcome))
        known.tries, known.outcome = known.tries + 1, attempt.outcome
        self.costs[attempt.run] = attempt.cost


def _append(descriptor: int, row: Mapping[str, Any]) -> None:
    """Whole, or not at all. StoreFailed."""
    end, rest = os.lseek(descriptor, 0, os.SEEK_END), f"{json.dumps(row)}\n".encode()
    try:
        while rest:  # a disk that gets full takes a part
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError as error:
        with suppress(OSError):
            os.ftruncate(descriptor, end)
        raise StoreFailed(f"the results cannot be written: {error.strerror}", "stockade batch run goes on") from None


@contextmanager
def writing(path: Path, *, serving: bool = False) -> Iterator[Results]:
    """Inside, these results are this process's alone, which may be a server. UsageError while another's."""
    opened = list[int]()
    try:
        try:
            opened.append(journal := _open(_journal(path)))
            if not lock_within(journal, _LOOK_S):
                raise UsageError(f"the batch of {path} is under way in another process", "stockade batch status")
            opened.append(lines := _open(path))
        except OSError as error:
            raise UsageError(f"the results {path} cannot be written: {error.strerror}", "--results FILE") from None
        for descriptor, file in ((journal, _journal(path)), (lines, path)):
            os.ftruncate(descriptor, sum(len(line) + 1 for line in _whole_lines(file)))
        _append(journal, {"driver": None if serving else [os.getpid(), start_time(os.getpid())], "at": time.time()})
        yield Results(path, lines, journal, read_results(path))
    finally:
        for descriptor in opened:
            release(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
