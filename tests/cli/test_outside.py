"""What a command stands in and writes to: no room, nobody who reads, a folder that is gone or closed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stockade import settings
from tests.cli.conftest import COUNT, DONE, PATIENCE_S, Stage


def in_bash(stage: Stage, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`script` with the command as "$@"."""
    argv = [sys.executable, "-m", "stockade.cli", *arguments]
    return subprocess.run(
        ["bash", "-c", script, "bash", *argv], capture_output=True, text=True, env=stage.environment(),
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def a_run(stage: Stage) -> list[str]:
    return ["run", "count", "--folder", str(stage.demo), "--model", stage.script(COUNT, DONE)]


def statuses(stage: Stage) -> str:
    return stage.call("runs", "list").out


def test_no_room_for_the_output_is_no_bug(stage: Stage) -> None:
    done = in_bash(stage, '"$@" > /dev/full', *a_run(stage))
    assert done.returncode == 4
    assert "standard output cannot be written: No space left on device" in done.stderr
    assert "bug" not in done.stderr
    assert "done" in statuses(stage)


def test_a_closed_output_is_none(stage: Stage) -> None:
    done = in_bash(stage, '"$@" >&-', *a_run(stage))
    assert (done.returncode, "bug" in done.stderr) == (0, False)
    assert "done" in statuses(stage)


@pytest.mark.parametrize("pipe", ['"$@" 2>&1 | head -n 1', '"$@" | true'])
def test_a_reader_that_has_gone(stage: Stage, pipe: str) -> None:
    done = in_bash(stage, f"{pipe} > /dev/null; exit ${{PIPESTATUS[0]}}", *a_run(stage))
    assert (done.returncode, done.stderr.count("bug")) == (141, 0)


def test_a_current_folder_that_is_gone(stage: Stage) -> None:
    gone = stage.tmp_path / "gone"
    gone.mkdir()
    done = in_bash(stage, f'cd {gone} && rmdir {gone} && "$@"', "runs", "list")
    assert done.returncode == 2
    assert done.stderr.startswith("stockade: the current folder is gone\nhint: cd ")


def test_a_folder_that_may_not_be_looked_into_has_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path) -> bool:
        if path.parent == tmp_path:
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return False

    monkeypatch.setattr(Path, "is_file", closed)
    found = settings.load({"folder": (os.fspath(tmp_path),)}, {}, tmp_path, tmp_path.parent / "no.toml")
    assert found.options.mcp == ()
