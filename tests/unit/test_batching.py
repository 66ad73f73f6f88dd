"""Batches of the server: what is wrong with one, foreseen or not, ends no other and not the server."""

from pathlib import Path

import anyio
import pytest

from stockade.fleet.batch import Runner
from stockade.paths import state_dir
from stockade.runtime.roots import Roots
from stockade.runtime.spec import RunSpec
from stockade.server.batching import Batches, NewBatch
from stockade.testing import MemoryStore


async def _broken(_: Runner) -> None:
    raise ZeroDivisionError("of the driver")


@pytest.mark.anyio
async def test_a_bug_in_one_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Runner, "run", _broken)
    asked = NewBatch(tasks=({"id": "a", "task": "t", "folder": ".", "model": "scripted/none"},))
    batches = Batches(RunSpec(), Roots.of([str(tmp_path)]), MemoryStore())
    with anyio.fail_after(60):
        async with batches.serving(resume=False):
            ids = [await batches.begin(asked) for _ in range(2)]
    said = capsys.readouterr().err.splitlines()
    assert sorted(said) == sorted(f"stockade: batch {one}: ZeroDivisionError: of the driver" for one in ids)
    assert len(list(state_dir().glob("serve/batches/*/request.json"))) == 2  # for the next server
    with anyio.fail_after(60):
        async with batches.serving(resume=True):
            pass
    assert capsys.readouterr().err.count("ZeroDivisionError") == 2
