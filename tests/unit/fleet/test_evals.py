"""What two `stockade eval` at once do to each other."""

import json
from pathlib import Path

import pytest

from stockade.extend import EvalSet, EvalTask
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


def test_each_task_has_a_folder_of_its_own_in_the_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = ("a", "a/b", "a_b", "..", ".a", "x" * 190, "x" * 191, "\N{BULLET}", "\udcff")
    tasks = [EvalTask(one, "words", "true", f"echo {number}") for number, one in enumerate(ids)]
    monkeypatch.setattr(evals, "set_of", lambda _: EvalSet("", "", "", lambda: tasks))

    def made(task: EvalTask, aside: Path) -> str:
        (aside / "made").write_text(ascii(task.id))
        return ""

    monkeypatch.setattr(evals, "_made", made)
    rows = map(json.loads, evals.write_tasks("set", 1, None, tmp_path).path.read_text().splitlines())
    found = {row["id"]: (tmp_path / "set" / row["folder"].rpartition(":")[0] / "made").read_text() for row in rows}
    assert found == {one: ascii(one) for one in ids}
    assert (tmp_path / "set" / "folders" / "a" / "made").is_file()
