"""`read_document` on files of a real sandbox."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stockade.core.errors import ActionFailed
from stockade.core.ports import Sandbox
from stockade.tools.documents import DocumentToolbox, page_range
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.policy import FolderRule, Policy
from stockade_sandbox.reading import ReadingRoom
from tests.support.documents import docx, paragraph, pdf


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "report.pdf").write_bytes(
        pdf([f"This is page {number}. " + "word " * 400 for number in range(1, 9)], "Q3")
    )
    (folder / "-n.docx").write_bytes(docx(paragraph("dashed")))
    (folder / "zero").write_bytes(b"")
    policy = Policy(folders=(FolderRule(host=str(folder), mode="ro"),))
    async with BubblewrapSandbox(policy, prepare_layers(policy, tmp_path / "run"), tmp_path / "run") as box:
        yield box


@pytest.fixture
def tool(sandbox: Sandbox, tmp_path: Path) -> DocumentToolbox:
    return DocumentToolbox(sandbox, ReadingRoom(tmp_path))


async def said(tool: DocumentToolbox, **arguments: object) -> tuple[str, str]:
    result = await tool.call("read_document", arguments, 60)
    return result.status, result.text


@pytest.mark.anyio
async def test_counts_first_pages_and_how_to_go_on(tool: DocumentToolbox) -> None:
    status, text = await said(tool, path="report.pdf")
    assert status == "data"
    lines = text.splitlines()
    assert lines[0] == "report.pdf: 'Q3', PDF, 8 pages."
    assert lines[1] == "--- page 1 ---"
    assert lines[-1] == "--- There is more: pages=4-8 ---"
    assert "This is page 3" in text
    assert "This is page 4" not in text
    status, text = await said(tool, path="/workspace/report.pdf", pages="7-20")
    assert "This is page 8" in text
    assert "There is more" not in text
    status, text = await said(tool, path="report.pdf", pages=2)
    assert [line for line in text.splitlines() if line.startswith("---")] == ["--- page 2 ---"]


@pytest.mark.anyio
async def test_other_files(tool: DocumentToolbox) -> None:
    assert await said(tool, path="-n.docx") == ("data", "-n.docx: DOCX, 1 part, 1 line, 6 characters.\ndashed")
    assert (await said(tool, path="zero"))[0] == "data"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("nothing.pdf", "File not found"),
        ("sub", "Is a directory"),
        ("/dev/zero", "Not a regular file"),
        ("/dev/null", "Not a regular file"),
        ("", "the path is empty"),
        ("a\0b", "the path is empty"),
        ("x" * 5000, "the path is empty"),
    ],
)
async def test_what_cannot_be_read(tool: DocumentToolbox, path: str, cause: str) -> None:
    status, text = await said(tool, path=path)
    assert status == "error"
    assert cause in text


@pytest.mark.anyio
async def test_a_file_that_is_too_large(tool: DocumentToolbox, sandbox: Sandbox) -> None:
    await sandbox.run("truncate -s 33M /tmp/huge")
    assert await said(tool, path="/tmp/huge") == ("error", "/tmp/huge is larger than 32 MiB")


@pytest.mark.anyio
async def test_no_time(tool: DocumentToolbox) -> None:
    result = await tool.call("read_document", {"path": "report.pdf"}, 0.01)
    assert (result.status, result.text) == ("error", "read_document took longer than 0.01 s")
    assert (await said(tool, path="report.pdf"))[0] == "data"


@pytest.mark.parametrize(
    ("pages", "expected"),
    [("", (1, 0)), ("3", (3, 3)), ("2-5", (2, 5)), (" 2 - 5 ", (2, 5)), ("2-", (2, 0))],
)
def test_pages_as_models_write_them(pages: str, expected: tuple[int, int]) -> None:
    assert page_range(pages) == expected


@pytest.mark.parametrize("pages", ["0", "5-2", "all", "-3", "1,2", "9" * 10, "1-2-3", "2 to 4"])
def test_other_pages_are_not_understood(pages: str) -> None:
    with pytest.raises(ActionFailed, match="pages"):
        page_range(pages)
