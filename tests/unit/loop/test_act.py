"""Actions on files by the real scripts in a folder, and what they cost in programs."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from stockade.core.actions import Failed, FileWritten, Shell, WriteFile
from stockade.core.ports import ExecResult
from stockade.loop.act import Actor
from tests.unit.loop.helpers import HereSandbox

pytestmark = pytest.mark.anyio


class Counting(HereSandbox):
    """Counts the programs that it was asked to run."""

    started = 0

    async def exec(
        self, argv: Iterable[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        self.started += 1
        return await super().exec(argv, stdin, timeout_s, max_output_bytes)


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        (None, b"", False),
        (b"", b"", True),
        (b"a\n", b"a\n", True),
        (b"a\n", b"a", False),
        (b"a", b"a\n", False),
        (b"x", b"", False),
        (b"old " * 50_000, b"new", False),
    ],
)
async def test_a_file_is_written_whole_and_it_is_known_whether_it_was_so_before(
    tmp_path: Path, before: bytes | None, now: bytes, same: bool
) -> None:
    if before is not None:
        (tmp_path / "f").write_bytes(before)
    written = await Actor(HereSandbox(tmp_path)).do(WriteFile(path="f", content=now.decode()), None)
    assert written == FileWritten(path="f", size=len(now), same=same)
    assert (tmp_path / "f").read_bytes() == now


@pytest.mark.parametrize("path", ["a/b/c.txt", "./x", "-n", "a b/'c'.txt", "a//b", "$(id)/`id`"])
async def test_folders_are_made_on_the_way(tmp_path: Path, path: str) -> None:
    written = await Actor(HereSandbox(tmp_path)).do(WriteFile(path=path, content="1"), None)
    assert isinstance(written, FileWritten)
    assert (tmp_path / path).read_text() == "1"
    full = tmp_path / "deep" / path
    assert isinstance(await Actor(HereSandbox(tmp_path)).do(WriteFile(path=str(full), content="2"), None), FileWritten)
    assert full.read_text() == "2"


async def test_what_is_no_file_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    actor = Actor(HereSandbox(tmp_path))
    assert await actor.do(WriteFile(path="d", content="1"), None) == Failed(message="d: Is a directory")
    assert isinstance(await actor.do(WriteFile(path="new/", content="1"), None), Failed)
    assert not (tmp_path / "new").exists()


async def test_nothing_hidden_runs(tmp_path: Path) -> None:
    box = Counting(tmp_path)
    await Actor(box).do(WriteFile(path="a.py", content="for x\n"), None)
    await Actor(box).do(Shell(command="true"), None)
    assert box.started == 1


async def test_why_a_file_could_not_be_written_is_said_without_the_words_of_the_shell(tmp_path: Path) -> None:
    name = "n" * 300
    written = await Actor(HereSandbox(tmp_path)).do(WriteFile(path=name, content="x"), None)
    assert written == Failed(message=f"{name}: File name too long")
