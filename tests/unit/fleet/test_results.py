"""The lines of a batch on a disk that gets full, and what somebody else wrote between them."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stockade import run_lock
from stockade.core.errors import StoreFailed
from stockade.fleet.results import Attempt, read_results, results_of, writing
from stockade.fleet.tasks import Selection, read_tasks
from stockade.runtime.spec import RunSpec

ATTEMPT = Attempt(id="a", hash="h", attempt=1, run="r", outcome="solved", started=0, seconds=1)


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_line_for_which_there_is_no_room_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "t.results.jsonl"
    with writing(path) as results:
        results.add(ATTEMPT)
        with no_file_larger_than(path.stat().st_size + 20), pytest.raises(StoreFailed, match="File too large"):
            results.add(ATTEMPT.model_copy(update={"attempt": 2}))
        results.add(ATTEMPT.model_copy(update={"attempt": 3}))
    assert [one.attempt for one in read_results(path)] == [1, 3]


def test_broken_results_are_named_as_such_and_not_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.results.jsonl"
    path.write_bytes(b"\xff\n")
    assert results_of(path) == path
    with pytest.raises(StoreFailed, match="line 1 is no line of results"):
        read_results(path)


@pytest.mark.parametrize("line", ['{"id": gar', "[1]", '{"run": 3}', '{"driver": "x"}', "[" * 100_000])
def test_a_journal_that_somebody_wrote_to_is_named(tmp_path: Path, line: str) -> None:
    path, (item,) = tmp_path / "t.results.jsonl", read_tasks([{"id": "a", "task": "t"}], RunSpec(), Selection())
    with writing(path) as results:
        results.begin(item, "r")
    journal = path.with_name(f"{path.name}.journal")
    lines = journal.read_text()
    journal.write_text(f"{lines}{line}\n")
    with pytest.raises(StoreFailed, match="journal, line 3 is no line of a journal"), writing(path):
        pass
    journal.write_text(lines)
    with writing(path) as results:
        assert results.begun(item) == "r"


@pytest.mark.parametrize("odd", ["1e300", "-1", "NaN", "Infinity"])
def test_a_moment_that_no_calendar_has_is_no_line_of_results(tmp_path: Path, odd: str) -> None:
    path = tmp_path / "t.results.jsonl"
    path.write_text(ATTEMPT.model_dump_json().replace('"started":0.0', f'"started":{odd}') + "\n")
    with pytest.raises(StoreFailed, match="line 1 is no line of results"):
        read_results(path)


def test_a_run_that_cannot_be_locked_for_want_of_room_is_refused() -> None:
    run_id = "20261129-060000-abc123"
    with no_file_larger_than(0), pytest.raises(StoreFailed, match="cannot be written: File too large"):
        with run_lock.lock(run_id, stoppable=True):
            pass
    with run_lock.lock(run_id, stoppable=True):
        assert run_lock.is_locked(run_id)
