"""`stockade runs` over a real record and a real layer."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from stockade import run_lock
from stockade.cli import commands as cli
from stockade.core.actions import Answer, Finish, Shell, Step
from stockade.core.budget import Budget
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    ModelAnswered,
    RunEvent,
    RunFinished,
    RunStarted,
    SandboxStarted,
)
from stockade.core.messages import ModelAnswer
from stockade.paths import run_dir
from stockade.runtime import records
from stockade_sandbox.overlay import prepare_layer
from stockade_sandbox.overlay.snapshots import Snapshots
from stockade_sandbox.policy import FolderRule, Policy
from stockade_sandbox.results import Chunk, CommandOutput, FolderLayer


def recorded(run_id: str, layer: FolderLayer | None, *, finished: bool = True, at: float = 1e9) -> list[RunEvent]:
    step = Step(action=Shell(command="wc -l data.csv"))
    output = CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", b"1 data.csv\n"),), cwd="/workspace")
    events: list[RunEvent] = [
        RunStarted(
            at=at, version="0", run_id=run_id, task="count \x1b[2J lines", bot="writing", model="script",
            answers="json", sandbox="memory", policy=Policy(), budget=Budget(), system_prompt="",
        ),
        SandboxStarted(at=at, backend="memory", layers=(layer,) if layer else ()),
        ModelAnswered(at=at, turn=1, answer=ModelAnswer(content="")),
        AnswerUnderstood(at=at, turn=1, answer=Answer(thought="Let me count.", steps=(step,))),
        ActionStarted(at=at, turn=1, step=0, action=step),
        ActionFinished(at=at, turn=1, step=0, observation=output),
        AnswerUnderstood(at=at, turn=2, answer=Answer(steps=(Step(action=Finish(answer="One.")),))),
    ]  # fmt: skip
    return [*events, RunFinished(at=at, status="done", reason="finish", answer="One.", turns=2)] if finished else events


@dataclass
class Desk:
    host: Path
    layer: FolderLayer
    capsys: pytest.CaptureFixture[str]

    @property
    def written(self) -> Path:
        assert self.layer.layer is not None
        return Path(self.layer.layer) / "copy"

    def runs(self, *arguments: str) -> tuple[int, str, str]:
        status = cli.call(["runs", *arguments])
        out, err = self.capsys.readouterr()
        return status, out, err


async def keep(run_id: str, events: list[RunEvent]) -> None:
    store = records.open_store()
    await store.append(run_id, events)
    await store.close()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    host = tmp_path / "demo"
    host.mkdir()
    (host / "data.csv").write_text("a\n")
    layer = prepare_layer(
        FolderRule(host=str(host)), run_dir("r1"), sandbox_uid=None, can_overlay=lambda _: "not in this test"
    )
    anyio.run(keep, "r1", recorded("r1", layer))
    desk = Desk(host, layer, capsys)
    (desk.written / "count.txt").write_text("1\n")
    return desk


def test_list_shows_the_newest_first(desk: Desk) -> None:
    anyio.run(keep, "r2", recorded("r2", None, finished=False, at=2e9))
    status, out, _ = desk.runs("list")
    header, first, second = out.splitlines()
    assert (status, header.split()) == (0, ["run", "when", "bot", "model", "status", "turns", "folder", "task"])
    assert first.startswith("r2")
    assert "interrupted" in first
    assert second.startswith("r1")
    assert "done" in second
    assert "count \\x1b[2J lines" in second


def test_a_run_that_is_under_way_is_running_and_cannot_be_decided_on(desk: Desk) -> None:
    anyio.run(keep, "r2", recorded("r2", desk.layer, finished=False, at=2e9))
    with run_lock.lock("r2"):
        assert "running" in desk.runs("list")[1]
        assert desk.runs("apply", "r2")[::2] == (
            2,
            "stockade: run r2 is still under way\nhint: wait for its end, or stop it\n",
        )


def test_list_as_json(desk: Desk) -> None:
    (line,) = desk.runs("list", "--json")[1].splitlines()
    assert json.loads(line)["run_id"] == "r1"
    assert "\x1b" not in line


def test_show_is_the_session_with_the_answer(desk: Desk) -> None:
    status, out, _ = desk.runs("show")
    assert status == 0
    assert "Let me count.\n/workspace $ wc -l data.csv\n1 data.csv\nOne.\ndone" in out
    assert "\x1b" not in out


def test_show_as_json_is_the_record(desk: Desk) -> None:
    lines = [json.loads(line) for line in desk.runs("show", "r1", "--json")[1].splitlines()]
    assert [line["type"] for line in lines] == [event.type for event in recorded("r1", None)]


def test_show_of_a_cut_run_says_so(desk: Desk) -> None:
    anyio.run(keep, "r2", recorded("r2", None, finished=False, at=2e9))
    assert desk.runs("show", "last")[1].endswith("[interrupted: the record ends here]\n")


def test_diff_to_a_pipe_is_what_git_applies(desk: Desk, tmp_path: Path) -> None:
    os.symlink("/etc/passwd", desk.written / "link")
    (desk.written / "data.csv").write_text("a\n\x1b[2J\n")
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        ["stockade", "runs", "diff", "last"], capture_output=True, check=True, env=_on_path(environment)
    )
    assert b"left out: link: " in done.stderr
    assert b"--directory" not in done.stderr
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "data.csv").write_text("a\n")
    subprocess.run(["git", "init", "-q"], cwd=copy, check=True)
    subprocess.run(["git", "apply"], cwd=copy, input=done.stdout, check=True)
    assert (copy / "count.txt").read_text() == "1\n"
    assert (copy / "data.csv").read_text() == "a\n\x1b[2J\n"


def test_a_patch_of_a_folder_inside_a_repository_comes_with_the_words_that_apply_it(desk: Desk, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    environment = _on_path({**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")})
    done = subprocess.run(["stockade", "runs", "diff", "last"], capture_output=True, check=True, env=environment)
    assert b"hint: git apply --directory=demo" in done.stderr
    for place in (desk.host, tmp_path):
        subprocess.run(["git", "apply", "--directory=demo"], cwd=place, input=done.stdout, check=True)
        assert (desk.host / "count.txt").read_text() == "1\n"
        (desk.host / "count.txt").unlink()


def _on_path(environment: dict[str, str]) -> dict[str, str]:
    scripts = str(Path(sys.executable).parent)
    return {**environment, "PATH": f"{scripts}:{environment['PATH']}"}


def test_diff_as_json_has_each_change_with_its_patch(desk: Desk) -> None:
    (line,) = desk.runs("diff", "last", "--json")[1].splitlines()
    change = json.loads(line)
    assert (change["path"], change["kind"], change["folder"]) == ("count.txt", "added", str(desk.host))
    assert "+1\n" in change["diff"]


def test_apply_then_again(desk: Desk) -> None:
    assert desk.runs("apply", "last")[::2] == (0, "stockade: applied 1 file; stockade undo r1 takes it back\n")
    assert (desk.host / "count.txt").read_text() == "1\n"
    assert [entry.name for entry in run_dir("r1").iterdir()] == ["0.journal"]
    status, _, err = desk.runs("apply", "last")
    assert status == 2
    assert err.startswith("stockade: the changes of run r1 were already applied on ")
    assert err.endswith("hint: stockade undo r1 takes them back\n")


def test_undo_and_apply_again(desk: Desk) -> None:
    """What is there goes by content, and only what was edited since stays."""
    assert desk.runs("undo", "r1")[::2] == (0, "stockade: nothing of run r1 was undone\n")
    assert desk.runs("apply", "r1")[0] == 0
    assert desk.runs("undo", "r1")[::2] == (0, "stockade: undone 1 file; stockade apply r1 takes it back\n")
    assert not (desk.host / "count.txt").exists()
    assert "it was undone on " in desk.runs("undo", "r1")[2]
    assert "were taken back on " in desk.runs("diff", "r1")[2]
    assert desk.runs("apply", "r1")[::2] == (0, "stockade: applied 1 file; stockade undo r1 takes it back\n")
    assert (desk.host / "count.txt").read_text() == "1\n"
    (desk.host / "count.txt").write_text("mine\n")
    status, out, err = desk.runs("undo", "r1", "--json")
    assert (status, "left as it is: count.txt: it was edited since" in err) == (1, True)
    assert json.loads(out.splitlines()[-1])["left"] == {"count.txt": "it was edited since"}
    assert err.endswith("hint: stockade undo r1 --force takes the others too\n")
    assert desk.runs("undo", "r1", "--force")[0] == 0
    assert not (desk.host / "count.txt").exists()
    assert desk.runs("apply", "r1")[0] == 0
    assert (desk.host / "count.txt").read_text() == "mine\n"


def test_a_rename_is_one_file_whatever_becomes_of_it(desk: Desk) -> None:
    (desk.written / "deep").mkdir()
    (desk.written / "data.csv").rename(desk.written / "deep/moved.csv")
    assert desk.runs("apply", "r1")[2].startswith("stockade: applied 2 files; ")
    assert desk.runs("undo", "r1")[2].startswith("stockade: undone 2 files; ")
    assert desk.runs("apply", "r1")[2].startswith("stockade: applied 2 files; ")
    assert desk.runs("undo", "r1")[0] == 0
    assert desk.runs("apply", "r1", "--only", "deep")[2].startswith("stockade: applied 1 file; ")
    assert desk.runs("undo", "r1")[2].startswith("stockade: undone 1 file; ")


def test_of_an_apply_in_part_the_files_applied_are_counted(desk: Desk) -> None:
    (desk.written / "deep").mkdir()
    (desk.written / "data.csv").rename(desk.written / "deep/moved.csv")
    assert desk.runs("apply", "r1", "--only", "data.csv")[2].startswith("stockade: applied 1 file; ")
    assert desk.runs("undo", "r1")[2].startswith("stockade: undone 1 file; ")
    assert desk.runs("discard", "r1")[2] == "stockade: threw away 2 files that run r1 changed\n"


NAMED = "stockade: run r1: count \\x1b[2J lines\n"


def test_without_a_name_it_is_the_newest_run_of_this_folder(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert desk.runs("diff")[2].startswith("stockade: no run has changes in ")
    monkeypatch.chdir(desk.host)
    assert desk.runs("undo")[2].startswith("stockade: nothing was applied to ")
    assert desk.runs("diff")[2].startswith(NAMED)
    assert desk.runs("apply")[::2] == (
        0,
        NAMED + "stockade: applied 1 file; stockade undo r1 takes it back\n",
    )
    (desk.host / "below").mkdir()
    monkeypatch.chdir(desk.host / "below")
    assert desk.runs("undo")[2].startswith(NAMED + "stockade: undone 1 file")
    assert desk.runs("apply")[2].startswith(NAMED + "stockade: applied 1 file")


def test_discard_then_apply(desk: Desk) -> None:
    assert desk.runs("discard", "r1")[::2] == (0, "stockade: threw away 1 file that run r1 changed\n")
    assert not (desk.host / "count.txt").exists()
    status, _, err = desk.runs("apply", "r1")
    assert status == 2
    assert err.startswith("stockade: the changes of run r1 were discarded on ")


def test_held_changes_need_their_name_or_the_flag(desk: Desk) -> None:
    (desk.written / "Makefile").write_text("x:\n")
    (desk.written / "sub").mkdir()
    for name in (".envrc", "sub/.envrc"):
        (desk.written / name).write_text("x\n")
    status, _, err = desk.runs("apply", "last", "--only", "sub")
    assert (status, "not applied yet: sub/.envrc: direnv runs it (by itself, on entering the folder)" in err) == (
        1,
        True,
    )
    assert desk.runs("apply", "last", "--only", "sub/.envrc")[0] == 0
    assert (desk.host / "sub/.envrc").exists()
    status, _, err = desk.runs("apply", "last")
    assert status == 1
    assert "not applied yet: .envrc: " in err
    assert (desk.host / "count.txt").exists()
    assert (desk.host / "Makefile").exists()  # only shown first
    assert not (desk.host / ".envrc").exists()
    assert desk.runs("apply", "last", "--flagged")[0] == 0
    assert (desk.host / ".envrc").exists()


def test_refused_changes_are_named_with_status_1(desk: Desk) -> None:
    os.symlink("/etc/passwd", desk.written / "link")
    status, _, err = desk.runs("apply", "last")
    assert status == 1
    assert "not applied: link: " in err
    status, _, err = desk.runs("apply", "last")
    assert (status, err.splitlines()[-1]) == (1, "stockade: nothing was applied")
    assert desk.runs("discard", "last")[0] == 0


def test_a_conflict_needs_force(desk: Desk) -> None:
    (desk.host / "count.txt").write_text("mine\n")
    status, _, err = desk.runs("apply", "last")
    assert status == 1
    assert "count.txt" in err
    assert "force" in err
    assert desk.runs("apply", "last", "--force")[0] == 0
    assert (desk.host / "count.txt").read_text() == "1\n"


def test_what_both_changed_is_shown_and_merged(desk: Desk) -> None:
    (desk.written / "data.csv").write_text("a\nbot\n")
    Snapshots(desk.layer).take()
    (desk.host / "data.csv").write_text("mine\na\n")
    (desk.host / "count.txt").write_text("mine\n")
    assert desk.runs("diff", "last", "--host")[1].count("\n+mine\n") == 2
    status, _, err = desk.runs("apply", "last", "--merge")
    assert status == 1
    assert "not applied: count.txt: both made it, with other content\n" in err
    assert "runs diff --host r1" in err
    assert (desk.host / "data.csv").read_text() == "mine\na\nbot\n"
    (desk.host / "count.txt").unlink()
    assert desk.runs("apply", "last", "--merge")[0] == 0
    assert (desk.host / "count.txt").read_text() == "1\n"


def test_no_side_of_the_host_s_is_said(desk: Desk) -> None:
    said = "stockade: nothing of what run r1 changed has changed here since\n"
    assert desk.runs("diff", "last", "--host") == (0, "", said)


def test_a_run_that_was_killed_can_still_be_applied(desk: Desk) -> None:
    anyio.run(keep, "r2", recorded("r2", desk.layer, finished=False, at=2e9))
    assert desk.runs("apply", "r2")[0] == 0
    assert (desk.host / "count.txt").read_text() == "1\n"


def test_the_bar_begins_with_what_is_done() -> None:
    """On a real terminal; what rich has for a task that nobody told it of is 0/100."""
    code = """
from stockade.cli import changes
changes._SOON_S = 0
with changes._shown(plain=False) as shown:
    shown("writing", 3, 7)
"""
    ours, theirs = os.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    env.pop("CI", None)
    subprocess.run([sys.executable, "-c", code], stderr=theirs, env=env, check=True)
    os.close(theirs)
    seen = os.read(ours, 65536)
    os.close(ours)
    assert b"writing" in seen
    assert b"3/7" in seen
    assert b"0/100" not in seen
