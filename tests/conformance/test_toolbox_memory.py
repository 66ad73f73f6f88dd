"""The memory passes the toolbox suite."""

from pathlib import Path

import pytest

from stockade.testing.conformance.toolbox import Call, ToolboxConformance
from stockade.tools.memory import MemoryToolbox
from stockade_sandbox.reading import ReadingRoom


class TestMemory(ToolboxConformance):
    @pytest.fixture
    def toolbox(self, tmp_path: Path) -> MemoryToolbox:
        (tmp_path / "memory").mkdir()
        (tmp_path / "memory" / "notes.md").write_text("the deploy key is in the safe\n")
        return MemoryToolbox(tmp_path / "memory", ReadingRoom(tmp_path / "rooms"))

    @pytest.fixture
    def good(self) -> Call:
        return "memory_view", {"path": "/memories/notes.md"}, "the deploy key"
