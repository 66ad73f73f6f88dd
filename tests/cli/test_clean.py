"""`stockade doctor --clean` after a stockade that was killed."""

import signal

from tests.cli.conftest import DONE, Stage, until_event


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
    assert stage.call("doctor", "--clean", "--json").out == ""
    assert "interrupted" in stage.call("runs", "list").out
    assert stage.call("runs", "show", "last").status == 0
