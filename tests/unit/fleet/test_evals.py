"""What two `stockade eval` at once do to each other."""

from pathlib import Path

import pytest

from stockade.extend import EvalTask
from stockade.fleet import evals


def test_a_folder_that_another_eval_made_meanwhile_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "7"

    def made(task: EvalTask, aside: Path) -> str:
        for place in (aside, folder):
            place.mkdir(exist_ok=True)
            (place / "made").write_text(place.name)
        return ""

    monkeypatch.setattr(evals, "_made", made)
    assert evals._prepared(EvalTask("7", "words", "true", "true"), folder) == ""
    assert list(tmp_path.iterdir()) == [folder]
    assert (folder / "made").read_text() == "7"
