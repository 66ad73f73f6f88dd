"""`runs rm` and `prune`: what goes, what is refused, and what a kill leaves to the next one."""

import os
import shutil
import sqlite3
import time

import pytest

from stockade.testing import say
from tests.cli.conftest import COUNT, DONE, Ended, Stage, until_event
from tests.support.aimed import killed_at

SLOW = say("shell", command="sleep 100")


def last(stage: Stage) -> str:
    return str(stage.call("runs", "list", "--json").events[0]["run_id"])


def applied(stage: Stage) -> str:
    assert stage.run(COUNT, DONE, flags=("--apply",)).status == 0
    return last(stage)


def runs(stage: Stage) -> list[str]:
    return [row["run_id"] for row in stage.call("runs", "list", "--json").events]


def folders(stage: Stage) -> list[str]:
    return os.listdir(stage.state / "runs")


def test_an_applied_run_goes_with_its_undo_and_that_is_said(stage: Stage) -> None:
    run_id = applied(stage)
    tree = stage.tree()
    gone = stage.call("runs", "rm", run_id)
    assert (gone.status, gone.err) == (0, f"stockade: removed run {run_id}\n")
    assert (runs(stage), folders(stage), stage.tree()) == ([], [], tree)
    undone = stage.call("undo", run_id)
    assert undone.status == 2
    assert f"run {run_id} was removed on " in undone.err
    assert "cannot be undone any more" in undone.err
    assert stage.tree() == tree
    assert stage.call("runs", "rm", run_id).status == 0


def test_undecided_changes_are_not_removed_without_force(stage: Stage) -> None:
    stage.run(COUNT, DONE, flags=("--no-input",))
    run_id = last(stage)
    refused = stage.call("runs", "rm", "last", "--json")
    assert refused.status == 2
    assert refused.events == [
        {"type": "removed", "run": run_id, "removed": False, "why": f"nobody decided on the changes of run {run_id}"}
    ]
    assert f"stockade runs rm --force {run_id}" in refused.err
    assert stage.call("runs", "prune", "--keep", "0", "--yes").status == 0
    assert runs(stage) == [run_id]
    assert "+3" in stage.call("diff", run_id).out
    assert stage.call("runs", "rm", "--force", run_id).status == 0
    assert (runs(stage), folders(stage)) == ([], [])
    assert list(stage.tree()) == ["data.csv"]


def test_a_discarded_run_goes(stage: Stage) -> None:
    stage.run(COUNT, DONE, flags=("--discard",))
    assert stage.call("runs", "rm", "last").status == 0
    assert (runs(stage), folders(stage)) == ([], [])


def test_a_run_under_way_is_refused_and_can_go_when_it_was_killed(stage: Stage) -> None:
    model = stage.script(SLOW, DONE)
    process = stage.start("run", "count", "--folder", str(stage.demo), "--model", model, "--json")
    until_event(process, "action_started")
    refused = stage.call("runs", "rm", "--force", "last")
    assert refused.status == 2
    assert "is still under way" in refused.err
    assert "it is under way" in stage.call("runs", "prune", "--keep", "0", "--yes").err
    process.kill()
    process.wait()
    assert stage.call("runs", "rm", "last").status == 0
    assert (runs(stage), folders(stage)) == ([], [])


def test_one_that_is_refused_keeps_no_other(stage: Stage) -> None:
    first = applied(stage)
    stage.run(say("shell", command="echo > more"), DONE, flags=("--no-input",))
    second = last(stage)
    assert stage.call("runs", "rm", second, first).status == 2
    assert runs(stage) == [second]


def pruned(stage: Stage, *flags: str) -> Ended:
    return stage.call("runs", "prune", *flags)


def test_prune_shows_what_would_go_and_removes_it_when_told(stage: Stage) -> None:
    first, second, third = (applied(stage) for _ in range(3))
    with sqlite3.connect(stage.state / "runs.db") as db:
        db.execute("UPDATE runs SET started=? WHERE run_id IN (?, ?)", (time.time() - 40 * 86400, first, third))
    db.close()
    assert pruned(stage).status == 2
    assert pruned(stage, "--older", "x").status == 2
    for flags in (("--older", "30d"), ("--older", "30d", "--dry-run", "--yes")):
        shown = pruned(stage, *flags)
        assert shown.status == 0
        assert [line.split()[0] for line in shown.out.splitlines()[1:]] == [third, first]
        assert "nothing was removed" in shown.err
    assert runs(stage) == [third, second, first]
    lines = pruned(stage, "--older", "4w", "--keep", "1", "--json", "--yes").events
    assert [(line["type"], line["run"]) for line in lines] == [("candidate", first), ("removed", first)]
    assert lines[0]["undo"] is True
    assert lines[0]["bytes"] > 0
    assert runs(stage) == [third, second]
    assert pruned(stage, "--keep", "0", "-y").status == 0
    assert (runs(stage), folders(stage)) == ([], [])
    assert "there is nothing to remove" in pruned(stage, "--keep", "0", "-y").err


def test_a_failed_start_is_no_run(stage: Stage) -> None:
    """It is not listed, is not `last`, is not among the newest that stay, and goes with the first prune."""
    kept = applied(stage)
    failed = stage.run(flags=("--no-input",))
    assert failed.status == 5, failed.err
    listed = stage.call("runs", "list")
    assert [line.split()[0] for line in listed.out.splitlines()[1:]] == [kept]
    assert "1 failed start not listed" in listed.err
    shown = stage.call("runs", "list", "--status", "failed")
    assert len(shown.out.splitlines()) == 2
    assert stage.call("runs", "show", "last").out == stage.call("runs", "show", kept).out
    assert stage.call("runs", "prune", "--keep", "1", "--yes").status == 0
    assert stage.call("runs", "list", "--status", "failed").out == ""
    assert runs(stage) == [kept]


def test_a_damaged_run_goes_by_force_only(stage: Stage) -> None:
    run_id = applied(stage)
    with sqlite3.connect(stage.state / "runs.db") as db:
        db.execute("UPDATE events SET body='{' WHERE seq=1")
        db.execute("UPDATE runs SET turns='x'")
    db.close()
    assert pruned(stage, "--keep", "0", "--yes").status == 0
    refused = stage.call("runs", "rm", run_id)
    assert refused.status == 4
    assert f"stockade runs rm --force {run_id}" in refused.err
    assert f"stockade runs rm --force {run_id}" in stage.call("doctor", "--clean").err
    assert stage.call("runs", "rm", "--force", run_id).status == 0
    assert (runs(stage), folders(stage)) == ([], [])
    assert stage.call("doctor", "--clean").status == 0


def test_the_folder_of_a_run_may_be_gone(stage: Stage) -> None:
    applied(stage)
    shutil.rmtree(stage.demo)
    assert pruned(stage, "--keep", "0", "--yes").status == 0
    assert (runs(stage), folders(stage)) == ([], [])


def test_an_apply_that_was_cut_off_is_completed_first(stage: Stage) -> None:
    stage.run(COUNT, DONE, flags=("--no-input",))
    run_id = last(stage)
    assert killed_at("placed", 0, ("apply", run_id), stage.environment())
    assert stage.call("runs", "rm", run_id).status == 0
    assert sorted(os.listdir(stage.demo)) == ["count.txt", "data.csv"]
    assert (runs(stage), folders(stage)) == ([], [])


@pytest.mark.parametrize(
    ("step", "finish"),
    [
        ("record.remove", ("runs", "rm")),
        ("record.acknowledge", ("runs", "prune", "--keep", "9")),
        ("run.buried", ("doctor", "--clean")),
        ("os.rename", ("runs", "rm")),
        ("os.remove", ("runs", "prune", "--keep", "9")),
    ],
)
def test_a_kill_leaves_nothing_that_a_second_try_does_not_complete(
    stage: Stage, step: str, finish: tuple[str, ...]
) -> None:
    run_id = applied(stage)
    tree = stage.tree()
    reached = 2 if step == "record.acknowledge" else 0  # of the lease, and of the removal
    assert killed_at(step, reached, ("runs", "rm", run_id), stage.environment())
    if runs(stage):  # then it is whole
        assert stage.call("undo", run_id, "--json").result["undone"] == ["count.txt"]
        assert stage.call("apply", run_id).status == 0
    assert stage.call(*finish, *((run_id,) if finish == ("runs", "rm") else ())).status == 0
    assert (runs(stage), folders(stage), stage.tree()) == ([], [], tree)
