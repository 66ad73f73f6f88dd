"""The measurements of limits and of big folders, on little."""

from pathlib import Path

import anyio
import pytest

from bench import folders, limits
from stockade_sandbox.policy import MIB


@pytest.mark.parametrize("flood", ["write", "fallocate"])
def test_a_flood_is_measured(flood: str, tmp_path: Path) -> None:
    (found,) = limits.measure([flood], 32 * MIB, tmp_path)
    assert found.after == "goes on"
    assert ("No space left (limit 32 MiB)" in found.told) == (flood == "write")
    assert "32 MiB" in limits.drawn([found])


def test_a_folder_is_measured(tmp_path: Path) -> None:
    folders.fill(tmp_path / "folder", 7 * folders.EACH)
    spent = anyio.run(folders.measure, tmp_path / "folder", tmp_path / "run", 1)
    assert {len(rounds) for rounds in spent.ms.values()} == {1}
    assert max(max(read) for read in spent.read.values()) < MIB
    assert "difference of 5 changes" in folders.drawn(spent, 3500)
