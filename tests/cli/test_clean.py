"""`stockade doctor --clean` after a stockade that was killed."""

import re
import signal
import sqlite3

import pytest

from tests.cli.conftest import COUNT, DONE, Stage, until_event


def test_what_a_killed_run_left_is_named_and_removed(stage: Stage) -> None:
    (stage.tmp_path / "given").mkdir()
    model = stage.script({"content": DONE, "delay_s": 300})
    copy = f"{stage.tmp_path / 'given'}:/in"
    process = stage.start("run", "count", "--folder", str(stage.demo), "--copy", copy, "--model", model, "--json")
    until_event(process, "sandbox_started")
    process.send_signal(signal.SIGKILL)
    process.wait()
    (copies,) = stage.state.glob("runs/*/copies-*")
    done = stage.call("doctor", "--clean")
    assert done.status == 0
    assert f"removed {copies}" in done.out
    assert not copies.exists()
    assert stage.left_behind() == []
    again = stage.call("doctor", "--clean", "--json")
    groups = re.compile(rf"removed the control group .*/stockade-(?!{process.pid}-)\d+-\d+-\w+")
    assert [event for event in again.events if not groups.fullmatch(event["message"])] == [], "of other tests"
    assert again.err == ("" if again.events else "stockade: there is nothing to clean\n")
    assert "interrupted" in stage.call("runs", "list").out
    assert stage.call("runs", "show", "last").status == 0


@pytest.mark.parametrize("damage", ["UPDATE runs SET turns='x'", "UPDATE leases SET seen='x'"])
def test_nothing_is_cleaned_while_a_row_is_damaged(stage: Stage, damage: str) -> None:
    """It might belong to that run; the way out is named, and works."""
    assert stage.run(COUNT, DONE, flags=("--no-input",)).status == 0
    run_id = stage.call("runs", "list", "--json").events[0]["run_id"]
    with sqlite3.connect(stage.state / "runs.db") as db:
        assert db.execute(damage).rowcount == 1
    db.close()
    before = stage.left_behind()
    refused = stage.call("doctor", "--clean")
    assert (refused.status, refused.out) == (4, "")
    assert f"nothing is cleaned: run {run_id}: its " in refused.err
    assert f"stockade runs rm --force {run_id}" in refused.err
    assert stage.left_behind() == before != []
    assert stage.call("runs", "rm", "--force", run_id).status == 0
    assert stage.call("doctor", "--clean").status == 0
    assert stage.left_behind() == []
