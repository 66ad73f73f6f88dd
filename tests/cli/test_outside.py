"""What a command stands in and writes to: no room, nobody who reads, a folder that is gone or closed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade import settings
from tests.cli.conftest import COUNT, DONE, PATIENCE_S, Stage

NOBODY = 65534


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
    assert "changes kept: stockade runs diff|apply|discard" in done.stderr
    assert "done" in statuses(stage)


def test_no_room_for_the_answer_leaves_the_changes_as_they_were_asked_for(stage: Stage) -> None:
    done = in_bash(stage, '"$@" > /dev/full', *a_run(stage), "--apply")
    assert done.returncode == 4
    assert (stage.demo / "count.txt").read_text() == "3\n"


def test_no_room_for_json_stops_the_run(stage: Stage) -> None:
    done = in_bash(stage, '"$@" > /dev/full', *a_run(stage), "--json")
    assert done.returncode == 4
    assert done.stderr.startswith("stockade: standard output cannot be written: No space left on device\n")
    assert "stopped" in statuses(stage)


@pytest.mark.parametrize("where", ["2> /dev/full", "2>&-", "2< /dev/null"])
def test_a_run_goes_on_without_its_picture(stage: Stage, where: str) -> None:
    done = in_bash(stage, f'"$@" {where}', *a_run(stage))
    assert (done.returncode, done.stdout) == (0, "3 lines\n")
    assert "done" in statuses(stage)


def test_a_closed_output_is_none(stage: Stage) -> None:
    done = in_bash(stage, '"$@" >&-', *a_run(stage))
    assert (done.returncode, "bug" in done.stderr) == (0, False)
    assert "done" in statuses(stage)


@pytest.mark.parametrize("pipe", ['"$@" 2>&1 | head -n 1', '"$@" | true'])
def test_a_reader_that_has_gone(stage: Stage, pipe: str) -> None:
    done = in_bash(stage, f"{pipe} > /dev/null; exit ${{PIPESTATUS[0]}}", *a_run(stage))
    assert (done.returncode, done.stderr.count("bug")) == (141, 0)
    assert "done" in statuses(stage)


@pytest.mark.parametrize("words", ["runs list", "run x", "mcp", "trust stockade.toml", "shell start"])
def test_a_current_folder_that_is_gone(stage: Stage, words: str) -> None:
    gone = stage.tmp_path / "gone"
    gone.mkdir()
    done = in_bash(stage, f'cd {gone} && rmdir {gone} && "$@"', *words.split())
    assert done.returncode == 2
    assert done.stderr.startswith("stockade: the current folder is gone\nhint: cd ")


def behind_a_door(stage: Stage, closed: Path, where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command of an ordinary user who stands in `where` when `closed` is closed to them."""
    drop: list[str] = []
    if os.geteuid() == 0:
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        os.chown(stage.home, NOBODY, NOBODY)
        for path in (stage.tmp_path, *stage.tmp_path.parents[:2]):
            path.chmod(path.stat().st_mode | 0o055)
    argv = ["sh", "-c", 'chmod 0 "$0" && exec "$@"', str(closed), *drop, sys.executable, "-P", "-m", "stockade.cli"]
    return subprocess.run(
        [*argv, *arguments], capture_output=True, text=True, cwd=where, env=stage.environment(), timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder to be closed, with files in it that would be read."""
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "stockade.toml").write_text("")
    (folder / ".mcp.json").write_text("{}")
    yield folder
    folder.chmod(0o700)


def test_a_folder_that_may_not_be_read_is_refused_by_its_name(stage: Stage, closed: Path) -> None:
    run = ("run", "x", "--folder", str(closed), "--model", stage.script(DONE))
    done = behind_a_door(stage, closed, Path("/"), *run)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"stockade: the folder '{closed}' cannot be read by you\n")


def test_a_current_folder_that_may_not_be_read_is_noted(stage: Stage, closed: Path) -> None:
    done = behind_a_door(stage, closed, closed, "runs", "list")
    assert (done.returncode, "bug" in done.stderr) == (0, False), done.stderr
    done = behind_a_door(stage, closed, closed, "run", "x", "--folder", "/nowhere", "--model", stage.script(DONE))
    assert done.stderr.startswith(f"stockade: {closed}/stockade.toml could not be looked at: Permission denied\n")
    assert "bug" not in done.stderr


def test_a_folder_that_may_not_be_looked_into_has_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path) -> bool:
        if path.parent == tmp_path:
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return False

    monkeypatch.setattr(Path, "is_file", closed)
    found = settings.load({"folder": (os.fspath(tmp_path),)}, {}, tmp_path, tmp_path.parent / "no.toml")
    assert found.options.mcp == ()
    assert found.notes == (f"{tmp_path}/stockade.toml could not be looked at: Permission denied",)
