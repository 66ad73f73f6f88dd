"""Actions on files by the real scripts in a folder, and what they cost in programs."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from stockade.core.actions import EditFile, Failed, FileContent, FileWritten, ReadFile, Shell, WriteFile
from stockade.core.ports import ExecResult
from stockade.loop.act import Actor
from stockade.loop.observe import describe
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
    ("before", "now", "words"),
    [
        (None, b"", "f: new, 0 lines."),
        (None, b"a\r\n\0b", "f: new, 2 lines."),
        (b"", b"", "f already held exactly that (0 lines)."),
        (b"a\n", b"a\n", "f already held exactly that (1 line)."),
        (b"a\n", b"a", "f: 1 line as before, 2 bytes became 1."),
        (b"a", b"a\n", "f: 1 line as before, 1 bytes became 2."),
        (b"a\nb\nc\n", b"x", "f: 3 lines became 1."),
        (b"x", b"", "f: 1 line became 0."),
        (b"old\n" * 50_000, b"new", "f: 50000 lines became 1."),
        (b"\xff\n", b"a\n\n", "f: 1 line became 2."),
    ],
)
async def test_a_file_is_written_whole_and_what_changed_is_told_in_numbers(
    tmp_path: Path, before: bytes | None, now: bytes, words: str
) -> None:
    if before is not None:
        (tmp_path / "f").write_bytes(before)
    written = await Actor(HereSandbox(tmp_path)).do(WriteFile(path="f", content=now.decode()), None)
    assert describe(written, 1000) == words
    assert (tmp_path / "f").read_bytes() == now


@pytest.mark.parametrize(
    ("before", "edit", "after", "words"),
    [
        (b"a\nb\nc", EditFile(path="f", old="b\nc", new="x"), b"a\nx", "f: replaced at line 2; 3 lines became 2."),
        (b"a\r\nb\r\n", EditFile(path="f", old="b", new="c"), b"a\r\nc\r\n",
         "f: replaced at line 2; 2 lines as before, 6 bytes became 6."),
        (b"\xff a \0\n", EditFile(path="f", old="a", new="é"), b"\xff \xc3\xa9 \0\n",
         "f: replaced at line 1; 1 line as before, 6 bytes became 7."),
        (b"a b\na\n", EditFile(path="f", old="a", new="", replace_all=True), b" b\n\n",
         "f: replaced at 2 places (lines 1, 2); 2 lines as before, 6 bytes became 4."),
        (b"aaaa", EditFile(path="f", old="aa", new="b", replace_all=True), b"bb",
         "f: replaced at 2 places (lines 1, 1); 1 line as before, 4 bytes became 2."),
        (None, EditFile(path="d/f", old="", new="x\n"), b"x\n", "d/f: new, 1 line."),
        (b"a\n", EditFile(path="f", old="a", new="a"), b"a\n", "f already held exactly that (1 line)."),
    ],
)  # fmt: skip
async def test_an_edit_changes_what_it_names_and_no_other_byte(
    tmp_path: Path, before: bytes | None, edit: EditFile, after: bytes, words: str
) -> None:
    if before is not None:
        (tmp_path / "f").write_bytes(before)
        (tmp_path / "f").chmod(0o751)
        (tmp_path / "link").hardlink_to(tmp_path / "f")
    done = await Actor(HereSandbox(tmp_path)).do(edit, None)
    assert describe(done, 1000) == words
    assert (tmp_path / edit.path).read_bytes() == after
    if before is not None:
        assert (tmp_path / "f").stat().st_mode & 0o777 == 0o751
        assert (tmp_path / "link").read_bytes() == after


@pytest.mark.parametrize(
    ("before", "edit", "words"),
    [
        (b"a\nb\n", EditFile(path="f", old="x", new=""), "`old` does not stand in f (2 lines): read it"),
        (b"a\nb\na\n", EditFile(path="f", old="a", new=""), "stands 2 times in f, at 2 places (lines 1, 3)"),
        (b"aaa", EditFile(path="f", old="aa", new=""), "stands 2 times"),
        (b"a\n" * 30, EditFile(path="f", old="a", new=""), "30 places (lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 ...)"),
        (b"a\r\nb\r\n", EditFile(path="f", old="a\nb", new=""), "its lines end in CR LF, those of `old` in LF"),
        (b"a", EditFile(path="f", old="", new="b"), "makes a new file, and this one exists"),
        (b"", EditFile(path="f", old="", new="b"), "makes a new file, and this one exists"),
        (b"a", EditFile(path="no", old="a", new="b"), "no: File not found"),
        (b"a" * (5 << 20), EditFile(path="f", old="a", new="b"), "f is larger than 4194304 bytes: edit it with the"),
        (b"a", EditFile(path="f", old="a", new="\ud800"), "half a character"),
        (b"a", WriteFile(path="f", content="\ud800"), "half a character"),
    ],
)
async def test_an_edit_that_cannot_be_done_says_why_and_changes_nothing(
    tmp_path: Path, before: bytes, edit: EditFile | WriteFile, words: str
) -> None:
    (tmp_path / "f").write_bytes(before)
    done = await Actor(HereSandbox(tmp_path)).do(edit, None)
    assert isinstance(done, Failed)
    assert words in done.message
    assert os.listdir(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "asked", "found"),
    [
        (b"a\n\x0cb\xe2\x80\xa8c\r\nd", ReadFile(path="f"), ("a\n\x0cb\u2028c\r\nd", 1, 3, 3)),
        (b"a\nb\nc\n", ReadFile(path="f", start=2, end=2), ("b\n", 2, 2, 3)),
        (b"a\nb\nc\n", ReadFile(path="f", start=3), ("c\n", 3, 3, 3)),
        (b"a\nb", ReadFile(path="f", start=2, end=9), ("b", 2, 2, 2)),
        (b"", ReadFile(path="f"), ("", 0, 0, 0)),
        (b"x\n" * 5000, ReadFile(path="f"), ("x\n" * 2000, 1, 2000, 5000)),
        (b"x\n" * 5000, ReadFile(path="f", start=4000, end=9000), ("x\n" * 1001, 4000, 5000, 5000)),
        (b"x" * 100 + b"\n" + b"y" * (5 << 20), ReadFile(path="f", end=1), ("x" * 100 + "\n", 1, 1, 2)),
    ],
)
async def test_lines_are_read_as_they_are(
    tmp_path: Path, content: bytes, asked: ReadFile, found: tuple[str, int, int, int]
) -> None:
    (tmp_path / "f").write_bytes(content)
    text, first, last, total = found
    expected = FileContent(path="f", text=text, first=first, last=last, total=total)
    assert await Actor(HereSandbox(tmp_path)).do(asked, None) == expected


@pytest.mark.parametrize(
    ("content", "asked", "words"),
    [
        (b"\x89PNG\r\n\x1a\n", ReadFile(path="f"), "f is binary, no UTF-8 text (8 bytes): look at it with the shell"),
        (b"a\0b\n", ReadFile(path="f"), "f is binary"),
        (b"a\nb\n", ReadFile(path="f", start=3), "f has 2 lines: there is no line 3"),
        (b"a\nb\n", ReadFile(path="f", start=2, end=1), "before line 2"),
        (b"y" * (5 << 20), ReadFile(path="f"), "are more than 4194304 bytes"),
        (b"", ReadFile(path="."), ".: Is a directory"),
        (b"", ReadFile(path="no"), "no: File not found"),
    ],
)
async def test_what_cannot_be_read_is_said(tmp_path: Path, content: bytes, asked: ReadFile, words: str) -> None:
    (tmp_path / "f").write_bytes(content)
    done = await Actor(HereSandbox(tmp_path)).do(asked, None)
    assert isinstance(done, Failed)
    assert words in done.message


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
