"""`read_document` passes the toolbox suite, its file in a real sandbox."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stockade.core.policy import CopyRule, Policy
from stockade.sandboxes.bubblewrap import BubblewrapSandbox
from stockade.sandboxes.reading import ReadingRoom
from stockade.testing.conformance.toolbox import Call, ToolboxConformance
from stockade.tools.reading.toolbox import DocumentToolbox
from tests.support.documents import pdf


class TestDocuments(ToolboxConformance):
    @pytest.fixture
    async def toolbox(self, tmp_path: Path) -> AsyncIterator[DocumentToolbox]:
        (tmp_path / "a b.pdf").write_bytes(pdf(["The first page", "The second"]))
        policy = Policy(copies=(CopyRule(host=str(tmp_path / "a b.pdf"), inside="/copied/a b.pdf"),))
        async with BubblewrapSandbox(policy, (), tmp_path / "run") as sandbox:
            yield DocumentToolbox(sandbox, ReadingRoom(tmp_path))

    @pytest.fixture
    def good(self) -> Call:
        return "read_document", {"path": "/copied/a b.pdf", "pages": "2"}, "The second"
