"""`read_document` passes the toolbox suite, its file in a real sandbox."""

import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stockade.testing.conformance.toolbox import Call, ToolboxConformance
from stockade.tools.documents import DocumentToolbox
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox
from stockade_sandbox.policy import CopyRule, Policy
from stockade_sandbox.reading import ReadingRoom
from tests.conformance.ordinary_user import run_as_ordinary_user
from tests.support.documents import pdf

ROOT = Path(__file__).parents[2]


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


@pytest.mark.root
def test_all_of_it_as_an_ordinary_user() -> None:
    home = Path(tempfile.mkdtemp(prefix="stockade-user-"))
    try:
        suite = f"{Path(__file__).relative_to(ROOT)}::TestDocuments"
        options = ["-q", "-p", "no:cacheprovider", f"--basetemp={home}/t", f"--rootdir={ROOT}"]
        done = run_as_ordinary_user([sys.executable, "-m", "pytest", *options, suite], home)
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout
    finally:
        shutil.rmtree(home)
