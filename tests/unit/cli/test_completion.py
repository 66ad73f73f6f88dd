"""What the Tab key offers of models and runs."""

from pathlib import Path

import anyio
import pytest

from stockade.cli import completion
from stockade.store.sqlite import SQLiteStore
from stockade.testing.conformance.store import first


def test_a_model_of_ones_own_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("STOCKADE_MODELS", str(tmp_path))
    (one,) = completion.models("gguf/" + str(tmp_path))
    assert (one.value, one.help) == (f"gguf/{tmp_path}/mine.gguf", "here")


def test_of_many_runs_the_newest_are_offered_and_any_by_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOCKADE_STORE", str(tmp_path / "runs.db"))
    ids = [f"20260101-0000{number:02}-aaaaaa" for number in range(60)]

    async def fill() -> None:
        store = SQLiteStore(tmp_path / "runs.db")
        for at, run_id in enumerate(ids):
            one = first(run_id, task=f"task {run_id}\nand more").model_copy(update={"at": float(at)})
            await store.append(run_id, [one], durable=False)
        await store.close()

    anyio.run(fill)
    assert [one.value for one in completion.runs("")] == ["last", *reversed(ids[10:])]
    assert [(one.value, one.help) for one in completion.runs(ids[0][:15])] == [(ids[0], f"task {ids[0]}")]
