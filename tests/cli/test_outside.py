"""What a command stands in and writes to: no room, nobody who reads, a folder that is gone or closed."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stockade.runtime import settings
from tests.cli.conftest import COUNT, DONE, PATIENCE_S, Stage
from tests.conformance.ordinary_user import UID, run_as_ordinary_user


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
    assert "Not applied. Review: stockade diff " in done.stderr
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


def test_no_room_for_a_list_is_not_the_records(stage: Stage) -> None:
    assert stage.call(*a_run(stage)).status == 0
    done = in_bash(stage, '"$@" > /dev/full', "runs", "list", "--json")
    assert done.stderr.startswith("stockade: standard output cannot be written: No space left on device\n")


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


@pytest.mark.parametrize("words", ["runs list", "run x", "mcp", "trust stockade.toml", "auto"])
def test_a_current_folder_that_is_gone(stage: Stage, words: str) -> None:
    gone = stage.tmp_path / "gone"
    gone.mkdir()
    done = in_bash(stage, f'cd {gone} && rmdir {gone} && "$@"', *words.split())
    assert done.returncode == 2
    assert done.stderr.startswith("stockade: the current folder is gone\nhint: cd ")


@dataclass
class Door:
    """`closed` is a folder of an ordinary user, with files in it that would be read, which not even they may enter."""

    home: Path

    @property
    def closed(self) -> Path:
        return self.home / "closed"

    def call(self, where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command of that user, who stands in `where`."""
        script = f'chmod 700 {self.closed} && cd {where} && chmod 0 {self.closed} && exec "$@"'
        own = {"PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(self.home), "PATH": os.environ["PATH"]}
        variables = [f"{name}={value}" for name, value in own.items()]
        command = [sys.executable, "-P", "-m", "stockade.cli", *arguments]
        argv = ["env", "-i", *variables, "sh", "-c", script, "sh", *command]
        if os.geteuid() != 0:
            return subprocess.run(argv, capture_output=True, text=True, check=False)
        os.chown(self.closed, UID, UID)
        return run_as_ordinary_user(argv, self.home)


@pytest.fixture
def door() -> Iterator[Door]:
    with tempfile.TemporaryDirectory() as home:
        door = Door(Path(home))
        door.closed.mkdir()
        (door.closed / "stockade.toml").write_text("")
        (door.closed / ".mcp.json").write_text("{}")
        yield door
        door.closed.chmod(0o700)


def test_a_folder_that_may_not_be_read_is_refused_by_its_name(door: Door) -> None:
    done = door.call(Path("/"), "run", "x", "--folder", str(door.closed))
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"stockade: the folder '{door.closed}' cannot be read by you\n")


def test_a_current_folder_that_may_not_be_read_is_noted(door: Door) -> None:
    done = door.call(door.closed, "runs", "list")
    assert (done.returncode, "bug" in done.stderr) == (0, False), done.stderr
    done = door.call(door.closed, "run", "x", "--folder", "/nowhere")
    assert done.stderr.startswith(f"stockade: {door.closed}/stockade.toml could not be looked at: Permission denied\n")
    assert "bug" not in done.stderr


def test_a_state_folder_that_is_read_only_can_be_listed(door: Door) -> None:
    """Also with what is only in the log of a record, and one of an older schema: it is a copy that is read."""
    script = door.home / "script.jsonl"
    script.write_text(json.dumps({"content": COUNT}) + "\n" + json.dumps({"content": DONE}) + "\n")
    (door.home / "demo").mkdir()
    state = door.home / ".local" / "state" / "stockade"
    if os.geteuid() == 0:
        os.chown(door.home, UID, UID)
        os.chown(door.home / "demo", UID, UID)
    run = ("run", "x", "--folder", str(door.home / "demo"), "--model", f"scripted/{script}", "--discard")
    made = door.call(door.home, *run)
    assert made.returncode == 0, made.stderr
    for path in (*state.rglob("*"), state):
        path.chmod(path.stat().st_mode & ~0o222)
    before = {path: path.stat().st_mtime_ns for path in state.rglob("*")}
    listed = door.call(door.home, "runs", "list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "done" in listed.stdout
    assert "3 lines" in door.call(door.home, "runs", "show").stdout
    refused = door.call(door.home, *run)
    assert (refused.returncode, "bug" in refused.stderr) == (4, False), refused.stderr
    assert {path: path.stat().st_mtime_ns for path in state.rglob("*")} == before
    state.chmod(0o700)


def test_a_folder_that_may_not_be_looked_into_has_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Path.stat

    def closed(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path.parent == tmp_path:
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return look(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", closed)
    found = settings.load({"folder": (os.fspath(tmp_path),)}, {}, tmp_path, tmp_path.parent / "no.toml")
    assert found.options.mcp == ()
    assert found.notes == (f"{tmp_path}/stockade.toml could not be looked at: Permission denied",)
