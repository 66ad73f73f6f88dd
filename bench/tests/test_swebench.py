"""Predictions for SWE-bench: real runs in a made image with a repository, of a scripted model."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.support.engines import small_rootfs
from tests.support.oci_images import Layout
from tests.support.strong_model import Turn, shell, strong_model

from bench.ability import swebench

BROKEN, MENDED = "def double(n):\n    return n + n + 1\n", "def double(n):\n    return n + n\n"
MEND = "sed -i 's/ + 1$//' double.py"


def _git(repository: Path, *words: str, given: str | None = None) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", "-C", repository, *who, *words], input=given, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Of the image `oci:IMAGES/maths-1`; this one is beside it, as it was before any run."""
    root = small_rootfs(tmp_path / "root", more=("git", "sed"))
    where = root / "testbed"
    where.mkdir()
    (where / "double.py").write_text(BROKEN)
    _git(where, "init", "-q")
    _git(where, "add", "--all")
    _git(where, "commit", "-q", "-m", "one")
    (where / "left.pyc").write_bytes(b"\0")
    layer = subprocess.run(["tar", "-C", root, "-c", "."], capture_output=True, check=True).stdout
    Layout(tmp_path / "images/maths-1").add(layer, WorkingDir="/testbed")
    (tmp_path / "rows.jsonl").write_text(
        json.dumps({"instance_id": "maths-1", "problem_statement": "double(2) is 5, and should be 4"}) + "\n"
    )
    return where


def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *script: Turn) -> list[dict[str, str]]:
    """The predictions of all runs so far, after one more call of the bench, with a model that says this."""
    into = tmp_path / "out"
    with strong_model(script) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        words = [str(tmp_path / "rows.jsonl"), "--model", "openai/strong", "--into", str(into)]
        monkeypatch.setattr("sys.argv", ["x", *words, "--images", f"oci:{tmp_path}/images/{{instance_id}}"])
        swebench.main()
    file = into / "predictions.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_the_prediction_is_all_that_the_run_changed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Committed or not, new files too; against the repository as it was before."""
    commit = "git -c user.name=B -c user.email=b@example.org commit -qam mended"
    [found] = _run(tmp_path, monkeypatch, [shell(f"{MEND} && {commit} && echo n > notes.txt")], "Mended.")
    assert "left.pyc" not in found["model_patch"]
    assert (found["instance_id"], found["model_name_or_path"]) == ("maths-1", "stockade-openai/strong")
    _git(repository, "apply", "-", given=found["model_patch"])
    assert (repository / "double.py").read_text() == MENDED
    assert (repository / "notes.txt").read_text() == "n\n"


def test_called_again_only_what_has_none_is_run(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that the model ended has no prediction; one that changed nothing has an empty one, and is done."""
    assert _run(tmp_path, monkeypatch) == []
    [found] = _run(tmp_path, monkeypatch, "It is right as it is.")
    assert found["model_patch"] == ""
    assert _run(tmp_path, monkeypatch, [shell(MEND)], "Mended.") == [found]
