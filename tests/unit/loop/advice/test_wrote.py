"""What the bot is told of the files that an action wrote, by the real script in a folder."""

import os
import time
from pathlib import Path

import pytest

from stockade.core.actions import CommandOutput, Failed, FileWritten, Shell, WriteFile
from stockade.loop.act import Actor
from stockade.loop.advice.wrote import MAX_FILE_BYTES, MAX_FILES, wrote_since
from stockade.loop.observe import describe
from tests.unit.loop.helpers import DeafSandbox, HereSandbox

pytestmark = pytest.mark.anyio
LONG_AGO = 1_000_000_000.0


async def test_small_new_files_are_shown_and_old_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("old\n")
    os.utime(tmp_path / "old.txt", (LONG_AGO, LONG_AGO))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a b.txt").write_text("12\n")
    (tmp_path / "empty").touch()
    (tmp_path / "large").write_bytes(b"\0" * (MAX_FILE_BYTES + 1))
    told = await wrote_since(HereSandbox(tmp_path), LONG_AGO + 1, contents=True)
    assert told == "empty is empty.\nsub/a b.txt now holds:\n12"
    assert await wrote_since(HereSandbox(tmp_path), time.time() + 60, contents=True) == ""
    assert await wrote_since(HereSandbox(tmp_path), LONG_AGO + 1, contents=False) == ""


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("a.py", "for x\n", "invalid syntax"),
        ("a.sh", "if true\n", "syntax error"),
        ("a.sh", "for n in 1 2; do\n  echo $n\n}\n", "It has 1 do and 0 done."),
        ("a.json", "{", "line 1"),
    ],
)
async def test_errors_of_syntax_are_told(name: str, text: str, word: str, tmp_path: Path) -> None:
    written = await Actor(HereSandbox(tmp_path)).do(WriteFile(path=name, content=text), None)
    assert isinstance(written, FileWritten)
    told = describe(written, 2000)
    assert told.startswith(f"The file {name} has been written.\n{name} has a syntax error:\n")
    assert word in told


@pytest.mark.parametrize(("name", "text"), [("a.py", "x = 1\n"), ("a.sh", "echo\n"), ("a.json", "{}"), ("a.txt", "{")])
async def test_what_is_right_is_not_talked_about(name: str, text: str, tmp_path: Path) -> None:
    written = await Actor(HereSandbox(tmp_path)).do(WriteFile(path=name, content=text), None)
    assert describe(written, 2000) == f"The file {name} has been written."


async def test_it_is_bounded_and_hostile_text_is_left_out(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number:02}.txt").write_text("y" * MAX_FILE_BYTES)
    told = await wrote_since(HereSandbox(tmp_path), LONG_AGO, contents=True)
    assert told.count("now holds") == MAX_FILES
    (tmp_path / "00.txt").write_text("\x1b[31m")
    assert await wrote_since(HereSandbox(tmp_path), LONG_AGO, contents=True) == ""
    (tmp_path / "00.txt").write_bytes(b"\xff\xfe")
    assert await wrote_since(HereSandbox(tmp_path), LONG_AGO, contents=True) == ""


async def test_a_file_of_blanks_is_empty(tmp_path: Path) -> None:
    (tmp_path / "blank").write_text(" \n\n")
    assert await wrote_since(HereSandbox(tmp_path), LONG_AGO, contents=True) == "blank is empty."


async def test_only_a_command_that_says_nothing_is_looked_after(tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("12\n")
    box = HereSandbox(tmp_path)
    box.commands = {"loud": "words", "fails": 1}
    soon = time.time() + 60
    os.utime(tmp_path / "new.txt", (soon, soon))
    quiet, loud, failed = [await Actor(box).do(Shell(command=word), None) for word in ("quiet", "loud", "fails")]
    assert isinstance(quiet, CommandOutput)
    assert describe(quiet, 2000) == "The command has succeeded.\nnew.txt now holds:\n12"
    assert "new.txt" not in describe(loud, 2000) + describe(failed, 2000)


async def test_a_sandbox_that_cannot_look_is_no_reason_to_fail() -> None:
    done = await Actor(DeafSandbox()).do(Shell(command="true"), None)
    assert describe(done, 2000) == "The command has succeeded; it printed nothing."
    assert isinstance(await Actor(DeafSandbox()).do(WriteFile(path="a", content=""), None), Failed)


async def test_a_file_that_held_exactly_that_is_said_to_be_as_it_should(tmp_path: Path) -> None:
    box = HereSandbox(tmp_path)
    said = []
    for content in ("12\n", "12\n", "12\n\n", "1"):
        done = await Actor(box).do(WriteFile(path="n.txt", content=content), None)
        said.append("before" in describe(done, 2000))
        assert (tmp_path / "n.txt").read_text() == content
    assert said == [False, True, False, False]


async def test_of_a_long_file_the_beginning_is_shown(tmp_path: Path) -> None:
    (tmp_path / "part.txt").write_text("".join(f"line {number} {'x' * 200}\n" for number in range(1, 41)))
    told = (await wrote_since(HereSandbox(tmp_path), LONG_AGO, contents=True)).splitlines()
    assert told[0] == "part.txt now has 40 lines and begins with:"
    assert [line[:6] for line in told[1:]] == ["line 1", "line 2", "line 3"]
    assert max(map(len, told)) <= 120
