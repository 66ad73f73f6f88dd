"""The memory passes the toolbox suite."""

from pathlib import Path

import pytest

from stockade.testing.conformance.toolbox import Call, ToolboxConformance
from stockade.tools.memory.folder import MemoryFolder
from stockade.tools.memory.toolbox import MemoryToolbox


class TestMemory(ToolboxConformance):
    @pytest.fixture
    def toolbox(self, tmp_path: Path) -> MemoryToolbox:
        folder = MemoryFolder(tmp_path / "memory")
        folder.make()
        folder.write(("notes.md",), "the deploy key is in the safe\n")
        return MemoryToolbox(folder.root)

    @pytest.fixture
    def good(self) -> Call:
        return "memory_view", {"path": "/memories/notes.md"}, "the deploy key"
