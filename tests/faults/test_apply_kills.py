"""Kills while changes are applied or thrown away: the folder is one of its two legal trees, and nothing is lost."""

import subprocess
import sys
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, PATIENCE_S, Stage
from tests.support.aimed import killed_at, overlaid

FILES = 3_000


def _call(stage: Stage, within: tuple[str, ...], *arguments: str) -> str:
    argv = [*within, sys.executable, "-m", "stockade.cli", *arguments]
    done = subprocess.run(argv, capture_output=True, env=stage.environment(), timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr.decode()


@pytest.mark.parametrize("first", ["apply", "discard"])
@pytest.mark.parametrize("removed", [5, 700, 2_990])
def test_no_file_of_the_host_goes_with_a_copy_whose_removal_was_cut(
    stage: Stage, tmp_path: Path, first: str, removed: int
) -> None:
    """On 90cacfa 248 files of the host are "applied" as deleted: the layer was removed in place, a copy's rest taken
    for what the bot had deleted."""
    for number in range(FILES):
        (stage.demo / f"f{number}").write_text(f"{number}\n")
    before = stage.tree()
    within = overlaid(tmp_path / "state", stage.state)
    model = stage.script(say("shell", command="echo changed > f7"), DONE)
    _call(stage, within, "run", "x", "--folder", str(stage.demo), "--model", model, "--no-input")
    (layer,) = (tmp_path / "state" / "upper").glob("runs/*/0")
    assert len(list((layer / "copy").iterdir())) == FILES + 1
    after = before if first == "discard" else {**before, "f7": b"changed\n"}
    died = killed_at("os.remove", removed, ["runs", first, "last"], stage.environment(), within)
    assert died
    assert stage.tree() in (before, after)
    argv = [*within, sys.executable, "-m", "stockade.cli", "runs", "apply", "last"]
    subprocess.run(argv, env=stage.environment(), timeout=PATIENCE_S, check=False)
    assert stage.tree() == after


@pytest.mark.parametrize("step", ["decided", "recorded", "place", "placed", "finished"])
def test_without_a_name_the_run_whose_apply_was_cut_off_is_meant(
    stage: Stage, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older run of the folder has changes to decide on too: they are none of that apply's."""
    monkeypatch.chdir(stage.demo)
    before = stage.tree()
    for command in ("echo older > older", "echo newer > newer"):
        stage.run(say("shell", command=command), DONE, flags=("--no-input",))
    assert killed_at(step, 0, ("apply", "last"), stage.environment())
    assert stage.call("apply").status == 0
    assert stage.tree() == {**before, "newer": b"newer\n"}
    assert stage.call("undo").status == 0
    assert stage.tree() == before
