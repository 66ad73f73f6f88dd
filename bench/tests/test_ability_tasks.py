"""Each task of the ability bench: solved by its solution, not by doing nothing, and the same bytes each time."""

import calendar
import tarfile
import time
import zipfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from bench.ability.checks import names
from bench.ability.sets import SETS
from bench.ability.task import Task, bash, judge, set_up
from bench.ability.tasks import TASKS, held_out

ALL = [task for tasks in SETS.values() for task in tasks]
BY_NAME = pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)


@BY_NAME
def test_the_solution_passes(task: Task, tmp_path: Path) -> None:
    set_up(task, tmp_path)
    done = bash(task.solution, tmp_path)
    assert done.returncode == 0, done.stderr
    assert judge(task, tmp_path)


@BY_NAME
def test_an_untouched_folder_fails(task: Task, tmp_path: Path) -> None:
    set_up(task, tmp_path)
    assert not judge(task, tmp_path)


@BY_NAME
def test_an_empty_or_ruined_folder_fails_without_an_error(task: Task, tmp_path: Path) -> None:
    assert not judge(task, tmp_path)
    set_up(task, tmp_path)
    for name in names(tmp_path):
        (tmp_path / name).write_bytes(b"\xff\x00 nonsense")
    assert not judge(task, tmp_path)


@BY_NAME
def test_a_folder_is_the_same_each_time(task: Task, tmp_path: Path) -> None:
    contents, begun = [], time.time()
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        set_up(task, folder)
        contents.append({file: (folder / file).read_bytes() for file in names(folder)})
        contents[-1] |= {"HEAD": bash("git rev-parse HEAD 2> /dev/null || true", folder).stdout.encode()}
    assert contents[0] == contents[1]
    assert not [file for file in names(folder) if max(times_in(folder / file), default=0) > begun - 3]


def times_in(archive: Path) -> list[float]:
    """When its members were changed last, in seconds since 1970; a part of an archive may end early."""
    if tarfile.is_tarfile(archive):
        times: list[float] = []
        with tarfile.open(archive) as tar, suppress(EOFError):
            times.extend(member.mtime for member in tar)
        return times
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            return [calendar.timegm(member.date_time) for member in packed.infolist()]
    return []


def test_there_are_enough_of_each_kind_and_half_of_them_are_held_out() -> None:
    assert len(TASKS) == len({task.name for task in TASKS}) >= 40
    kinds = Counter(task.kind for task in TASKS)
    held = Counter(task.kind for task in TASKS if held_out(task))
    assert min(kinds.values()) >= 5
    assert all(abs(2 * held[kind] - count) <= 1 for kind, count in kinds.items())
    assert Counter(task.level for task in TASKS).keys() == {1, 2, 3}


@pytest.mark.parametrize(("name", "each"), [("fresh", 5), ("fresh2", 5), ("fresh3", 4)])
def test_a_fresh_set_is_as_many_of_each_kind_and_as_hard_as_the_other(name: str, each: int) -> None:
    fresh = SETS[name]
    assert list(Counter(task.kind for task in fresh).values()) == [each] * 8
    assert [task.kind for task in fresh[:8]] == [task.kind for task in fresh[8:16]]
    levels, others = (Counter(task.level for task in tasks) for tasks in (fresh, TASKS))
    assert all(abs(levels[level] / len(fresh) - others[level] / len(TASKS)) < 0.03 for level in others)


def test_no_task_of_one_set_is_in_another() -> None:
    assert len({task.name for task in ALL}) == len({task.words for task in ALL}) == len(ALL)
