"""`stockade runs copy`: between files and PostgreSQL, whole, once, and never over another run."""

from pathlib import Path

import anyio
import pytest

from stockade.store.opening import open_store
from stockade.testing import say
from tests.cli.conftest import PATIENCE_S, Stage
from tests.support import postgres as support

DONE = say("finish", answer="3 lines")
LARGE = say("write_file", path="out.txt", content="".join(f"line {number}\n" for number in range(20_000)))
PART = say("sub_task", task="a part of it")


def exported(stage: Stage, run: str, store: str | None = None) -> str:
    told = stage.call("runs", "export", run, "--format", "jsonl", *(["--store", store] if store else []))
    assert told.status == 0, told.err
    return told.out


def begun(stage: Stage, *answers: object, flags: tuple[str, ...] = ()) -> str:
    ended = stage.run(*answers, flags=("--discard", *flags))  # type: ignore[arg-type]
    assert ended.status == 0, ended.err
    return str(stage.call("runs", "list", "--json").events[0]["run_id"])


def rows(stage: Stage, store: str) -> list[tuple[str, str, int]]:
    return [
        (one["run_id"], one["status"], one["turns"])
        for one in stage.call("runs", "list", "--json", "--store", store).events
    ]


async def put(store: str, run: str, events: list[object]) -> None:
    there = open_store(store)
    await there.append(run, events)  # type: ignore[arg-type]
    await there.close()


async def read(store: str, run: str) -> list[object]:
    there = open_store(store)
    found = await there.events(run)
    await there.close()
    return list(found)


def test_there_and_back_it_is_the_same(stage: Stage, postgres: support.Server) -> None:
    runs = [begun(stage, LARGE, DONE), begun(stage, PART, DONE, DONE, flags=("--tool", "sub_task"))]
    database, back = postgres.new_database(), str(stage.tmp_path / "back.db")
    first = stage.call("runs", "copy", "--all", "--to", database)
    assert (first.status, "3 runs copied" in first.err) == (0, True), first.err
    again = stage.call("runs", "copy", *runs, "--to", database, "--json")
    assert [(one["run"], one["events"], one["why"]) for one in again.events] == [
        (runs[0], 0, ""), (runs[1], 0, ""), (f"{runs[1]}.1", 0, ""),
    ]  # fmt: skip
    assert stage.call("runs", "copy", "--all", "--store", database, "--to", back).status == 0
    default = str(stage.state / "runs.db")
    assert rows(stage, default) == rows(stage, database) == rows(stage, back)
    for run in (*runs, f"{runs[1]}.1"):
        assert exported(stage, run) == exported(stage, run, database) == exported(stage, run, back)
    assert len(exported(stage, runs[0], back)) > 200_000
    found = stage.call("runs", "search", "lines", "--store", back)
    assert runs[0] in found.out


def test_what_was_cut_off_goes_on(stage: Stage) -> None:
    run, there = begun(stage, LARGE, DONE), str(stage.tmp_path / "there.db")
    events = anyio.run(read, str(stage.state / "runs.db"), run)
    anyio.run(put, there, run, events[:5])
    told = stage.call("runs", "copy", run, "--to", there, "--json")
    assert [one["events"] for one in told.events] == [len(events) - 5]
    assert exported(stage, run, there) == exported(stage, run)


def test_another_run_of_that_id_and_one_that_was_removed_are_refused_and_the_rest_copied(stage: Stage) -> None:
    runs, there = [begun(stage, DONE) for _ in range(3)], str(stage.tmp_path / "there.db")
    events = anyio.run(read, str(stage.state / "runs.db"), runs[0])
    anyio.run(put, there, runs[0], [events[0].model_copy(update={"task": "another"}), *events[1:]])  # type: ignore[attr-defined]
    assert stage.call("runs", "copy", runs[1], "--to", there).status == 0
    assert stage.call("runs", "rm", runs[1], "--store", there).status == 0
    told = stage.call("runs", "copy", *runs, "--to", there)
    assert told.status == 2
    assert f"run {runs[0]} is another one" in told.err
    assert f"run {runs[1]} was removed" in told.err
    assert "1 run copied" in told.err
    assert [one[0] for one in rows(stage, there)] == [runs[2], runs[0]]


def test_one_under_way_is_refused(stage: Stage) -> None:
    model = stage.script(say("shell", command="sleep 60"), DONE)
    process = stage.start("run", "t", "--folder", str(stage.demo), "--model", model)
    assert process.stderr is not None
    while b"sleep" not in process.stderr.readline():
        assert process.poll() is None
    told = stage.call("runs", "copy", "last", "--to", str(stage.tmp_path / "there.db"))
    assert (told.status, "is under way" in told.err) == (2, True), told.err
    process.terminate()
    process.wait(PATIENCE_S)


@pytest.mark.parametrize("words", [(), ("last", "--all"), ("nobody",), ("--all", "--to", "/nowhere/x.db")])
def test_what_makes_no_sense(stage: Stage, words: tuple[str, ...], tmp_path: Path) -> None:
    begun(stage, DONE)
    to = () if "--to" in words else ("--to", str(tmp_path / "there.db"))
    told = stage.call("runs", "copy", *words, *to)
    assert (told.status, "Traceback" in told.err) == (2, False), told.err
