"""`stockade run` over fakes: what is on stdout, what becomes of the changes, which status comes out."""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from stockade import run_lock
from stockade.answers.json_schema import JsonAnswers
from stockade.cli.run import carry_out
from stockade.cli.ui.summary import status_of
from stockade.core.budget import Budget
from stockade.core.errors import ModelUnavailable, SandboxDied, StockadeError, StoreFailed, UsageError
from stockade.core.events import ActionFinished, RunEvent, RunFinished, RunStarted
from stockade.core.ports import ExecResult, OnEvent, OnText
from stockade.loop.run import Dependencies
from stockade.paths import run_dir
from stockade.runtime import factory, records, sandboxes
from stockade.runtime.settings import Front, Settings
from stockade.runtime.spec import RunSpec
from stockade.testing import FixedClock, MemorySandbox, MemoryStore, ScriptedModel, say
from stockade_sandbox.overlay import prepare_layer
from stockade_sandbox.policy import FolderRule, Policy
from stockade_sandbox.results import CommandOutput, FolderLayer

WORK = say("shell", command="work")
DONE = say("finish", answer="It is 42.")
OnCommand = Callable[[str], CommandOutput]


class Beside(MemorySandbox):
    """Runs commands only; programs beside the shell fail."""

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        return ExecResult(exit_code=127, stdout=b"", stderr=b"not in this test")


@dataclass
class Stage:
    """A folder with a layer, and everything of a run but its model."""

    tmp_path: Path
    store: MemoryStore
    host: Path
    layer: FolderLayer

    def work(self, _command: str) -> CommandOutput:
        """What the bot does: a new file in its copy of the folder."""
        assert self.layer.layer is not None
        (Path(self.layer.layer) / "copy" / "count.txt").write_text("3\n")
        return CommandOutput(exit_code=0, cwd="/workspace")

    def run(
        self,
        *answers: str | StockadeError,
        on_command: OnCommand | None = None,
        check: str | None = None,
        sandbox: MemorySandbox | None = None,
        **front: Any,
    ) -> int:
        started = RunStarted(
            at=records.SystemClock().now(), version="0", run_id="r1", task="count", bot="writing", model="script",
            answers="json", sandbox="memory", policy=Policy(folders=(FolderRule(host=str(self.host)),)),
            budget=Budget(max_turns=5), system_prompt="", check=check,
        )  # fmt: skip
        parts = Dependencies(
            model=ScriptedModel([*answers, *answers[-1:]]), protocol=JsonAnswers(),
            sandbox=sandbox or Beside(on_command=on_command or self.work, layers=(self.layer,)),
            store=self.store,
            clock=FixedClock(records.SystemClock().now()), tools=("shell", "finish"), reviewer=sandboxes.reviewer(),
        )  # fmt: skip

        async def prepare(on_event: OnEvent, on_text: OnText | None, on_progress: object) -> factory.Prepared:
            return factory.Prepared(started, replace(parts, on_event=on_event, on_text=on_text))

        settings = Settings(options=RunSpec(), front=Front.model_validate(front))
        return carry_out(settings, self.store, prepare)

    @property
    def finished(self) -> RunFinished:
        (event,) = [event for event in anyio.run(self.store.events, "r1") if isinstance(event, RunFinished)]
        return event

    @property
    def kinds(self) -> list[str]:
        return [event.type for event in anyio.run(self.store.events, "r1")]

    def kept(self) -> bool:
        return self.layer.layer is not None and Path(self.layer.layer).exists()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    host = tmp_path / "demo"
    host.mkdir()
    (host / "data.csv").write_text("a\nb\nc\n")
    base = run_dir("r1")
    base.mkdir(parents=True)
    layer = prepare_layer(FolderRule(host=str(host)), base, sandbox_uid=None, can_overlay=lambda _: "not in this test")
    return Stage(tmp_path, MemoryStore(), host, layer)


def test_the_answer_alone_is_on_stdout_and_the_changes_are_kept(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage.run(WORK, DONE, DONE) == 0
    out, err = capsys.readouterr()
    assert out == "It is 42.\n"
    assert "/workspace $ work" in err
    assert "+++ b/count.txt\n@@ -0,0 +1 @@\n+3\n" in err
    assert "1 file changed, 1 line added, 0 removed" in err
    assert "Not applied. Review: stockade diff r1 · apply: stockade apply r1" in err
    assert stage.kept()
    assert not (stage.host / "count.txt").exists()


def test_apply_writes_to_the_folder_and_leaves_no_layer(stage: Stage) -> None:
    assert stage.run(WORK, DONE, DONE, apply=True) == 0
    assert (stage.host / "count.txt").read_text() == "3\n"
    assert stage.kinds[-2:] == ["run_finished", "changes_applied"]
    assert [entry.name for entry in run_dir("r1").iterdir()] == ["0.journal"]  # what undo needs


def test_discard_leaves_the_folder_and_no_layer(stage: Stage) -> None:
    assert stage.run(WORK, DONE, DONE, discard=True) == 0
    assert not (stage.host / "count.txt").exists()
    assert stage.kinds[-1] == "changes_discarded"
    assert not run_dir("r1").exists()


def test_a_run_without_changes_leaves_nothing(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.run(DONE) == 0
    assert "kept" not in capsys.readouterr().err
    assert not run_dir("r1").exists()


def test_work_that_did_not_succeed_is_never_applied_by_itself(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.run(WORK, ModelUnavailable("the model is gone", "start it"), apply=True) == 5
    assert "Not applied, because the run did not succeed" in capsys.readouterr().err
    assert not (stage.host / "count.txt").exists()
    assert stage.kept()


def test_json_is_one_event_a_line_and_the_result_last(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.run(WORK, *2 * [say("finish", answer="\x1b[2J\u202e done")], json=True, apply=True) == 0
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["type"] for line in lines] == [*stage.kinds, "result"]
    result = lines[-1]
    assert (result["run"], result["status"], result["reason"], result["verified"]) == ("r1", "done", "finish", None)
    assert result["answer"] == "\x1b[2J\u202e done"
    assert [change["path"] for change in result["changes"]] == ["count.txt"]
    counts = {"prompt_tokens", "cached_tokens", "completion_tokens", "thinking_tokens"}
    assert set(result["usage"]) == {*counts, "cost", "thinking_cost"}
    assert out.isascii()
    assert "\x1b" not in out
    assert err == ""


def test_quiet_is_the_answer_only(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.run(DONE, quiet=True) == 0
    assert capsys.readouterr() == ("It is 42.\n", "")


def test_quiet_still_says_why_a_run_failed(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.run(ModelUnavailable("the model is gone", "start it"), quiet=True) == 5
    assert capsys.readouterr() == ("", "stockade: failed (model): the model is gone (start it)\n")


@pytest.mark.parametrize("terminal", [True, False])
def test_an_answer_cannot_command_the_terminal_and_is_whole_in_a_pipe(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert stage.run(say("finish", answer="\x1b[2Jgone\rfake")) == 0
    assert capsys.readouterr().out == ("\\x1b[2Jgone\\x0dfake\n" if terminal else "\x1b[2Jgone\rfake\n")


def test_a_sandbox_that_dies_is_status_4(stage: Stage) -> None:
    def die(_command: str) -> CommandOutput:
        raise SandboxDied("the sandbox ended during: work")

    assert stage.run(WORK, on_command=die) == 4
    assert (stage.finished.status, stage.finished.reason) == ("failed", "sandbox")


def test_a_record_that_could_not_be_written_for_a_while_is_no_fault_of_the_models(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, full = stage.store.append, iter([StoreFailed("the disk is full")])

    async def append_or_not(run_id: str, events: Sequence[RunEvent], *, durable: bool = True) -> None:
        if any(isinstance(event, ActionFinished) for event in events) and (error := next(full, None)) is not None:
            raise error
        await append(run_id, events, durable=durable)

    monkeypatch.setattr(stage.store, "append", append_or_not)
    with pytest.raises(StoreFailed, match="the disk is full"):
        stage.run(WORK)
    assert (stage.finished.status, stage.finished.reason, stage.finished.detail) == (
        "failed", "store", "the disk is full",
    )  # fmt: skip


def test_a_bug_is_on_record_and_in_one_line(stage: Stage) -> None:
    def broken(_command: str) -> CommandOutput:
        raise ZeroDivisionError("oh")

    with pytest.raises(ZeroDivisionError):
        stage.run(WORK, on_command=broken)
    assert (stage.finished.status, stage.finished.reason, stage.finished.detail) == (
        "failed", "bug", "ZeroDivisionError: oh",
    )  # fmt: skip


def test_ctrl_c_closes_the_record(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    class Pressed(MemorySandbox):
        async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
            os.kill(os.getpid(), signal.SIGINT)
            await anyio.sleep_forever()
            raise AssertionError

    assert stage.run(WORK, sandbox=Pressed(layers=(stage.layer,))) == 130
    assert (stage.finished.status, stage.finished.reason) == ("stopped", "user")
    assert "interrupted: the run is closed and on record" in capsys.readouterr().err
    assert not run_lock.is_locked("r1")


def test_a_failed_check_is_status_1(stage: Stage) -> None:
    def failing(_command: str) -> CommandOutput:
        return CommandOutput(exit_code=1)

    assert stage.run(DONE, DONE, DONE, on_command=failing, check="false") == 1
    assert (stage.finished.status, stage.finished.verified) == ("done", False)


def test_a_mistake_before_the_start_leaves_no_record(stage: Stage) -> None:
    async def prepare(**_: object) -> factory.Prepared:
        raise UsageError("no such folder")

    with pytest.raises(UsageError, match="no such folder"):
        carry_out(Settings(options=RunSpec(), front=Front()), stage.store, prepare)
    assert anyio.run(stage.store.runs) == []


@pytest.mark.parametrize(
    ("status", "reason", "verified", "expected"),
    [
        ("done", "finish", None, 0), ("done", "finish", True, 0), ("done", "check_failed", False, 1),
        ("stopped", "turns", None, 3), ("stopped", "loop", None, 3), ("stopped", "unreadable", None, 3),
        ("stopped", "user", None, 3), ("stopped", "gave_up", None, 1), ("failed", "sandbox", None, 4),
        ("failed", "store", None, 4), ("failed", "bug", None, 4), ("failed", "model", None, 5),
        ("failed", "usage", None, 2),
    ],
)  # fmt: skip
def test_statuses(status: Any, reason: Any, verified: bool | None, expected: int) -> None:
    assert status_of(RunFinished(at=0, status=status, reason=reason, verified=verified)) == expected
