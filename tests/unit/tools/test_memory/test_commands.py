"""What each command of the memory does and says."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from stockade.core.actions import ToolResult
from stockade.tools.memory import Bounds, MemoryToolbox
from stockade_sandbox.reading import ReadingRoom

NOTES = "/memories/notes.md"


def do(root: Path, command: str, bounds: Bounds | None = None, **arguments: Any) -> ToolResult:
    """In a toolbox of its own: each call is another run."""

    async def run() -> ToolResult:
        async with MemoryToolbox(root, ReadingRoom(root.parent / "rooms"), bounds) as box:
            return await box.call(f"memory_{command}", arguments, 30)

    return anyio.run(run)


def good(root: Path, command: str, **arguments: Any) -> str:
    result = do(root, command, **arguments)
    assert result.status == "success", result.text
    return result.text


def bad(root: Path, command: str, bounds: Bounds | None = None, **arguments: Any) -> str:
    result = do(root, command, bounds, **arguments)
    assert result.status == "error"
    return result.text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "memory"


def test_what_one_run_saves_the_next_one_finds(root: Path) -> None:
    assert good(root, "view", path="/memories") == "/memories is empty."
    assert NOTES in good(root, "create", path=NOTES, file_text="one\ntwo\n")
    assert good(root, "view", path=NOTES) == (
        f"Here's the content of {NOTES} with line numbers:\n     1\tone\n     2\ttwo"
    )
    assert root.stat().st_mode & 0o777 == 0o700
    assert (root / "notes.md").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in root.iterdir()) == [".lock", "notes.md"]


@pytest.mark.parametrize("path", ["n.md", "memories/n.md", "/memories/n.md", "/memories//./n.md", " n.md "])
def test_all_ways_in_which_a_small_model_writes_a_path(root: Path, path: str) -> None:
    good(root, "create", path=path, file_text="x")
    assert (root / "n.md").read_text() == "x"


def test_a_listing_has_two_levels_and_sizes(root: Path) -> None:
    for path, text in (("a.md", "x" * 10), ("f/b.md", "y" * 2048), ("f/g/c.md", ""), ("f/g/h/d.md", "z")):
        good(root, "create", path=path, file_text=text)
    lines = (good(root, "view", path="/memories")).splitlines()
    assert lines[1:] == ["2.0K\t/memories", "10B\t/memories/a.md", "2.0K\t/memories/f/", "2.0K\t/memories/f/b.md",
                         "1B\t/memories/f/g/"]  # fmt: skip
    assert "0B\t/memories/f/g/c.md\n1B\t/memories/f/g/h/" in good(root, "view", path="/memories/f")


def test_lines_of_a_file(root: Path) -> None:
    good(root, "create", path="n", file_text="".join(f"line {number}\n" for number in range(1, 10)))
    assert (good(root, "view", path="n", view_range=[2, 3])).splitlines()[1:] == [
        "     2\tline 2",
        "     3\tline 3",
    ]
    assert (good(root, "view", path="n", view_range=[8, -1])).splitlines()[1:] == [
        "     8\tline 8",
        "     9\tline 9",
    ]
    assert "9 lines" in bad(root, "view", path="n", view_range=[10, 12])
    assert "[3, 2]" in bad(root, "view", path="n", view_range=[3, 2])
    assert "is for files" in bad(root, "view", path="/memories", view_range=[1, 2])


def test_create_never_overwrites(root: Path) -> None:
    good(root, "create", path=NOTES, file_text="kept")
    assert "already exists" in bad(root, "create", path=NOTES, file_text="lost?")
    assert (root / "notes.md").read_text() == "kept"


def test_str_replace_wants_exactly_one_place(root: Path) -> None:
    good(root, "create", path=NOTES, file_text="a b\nb c\nd\n")
    assert "Multiple occurrences of old_str `b` in lines: 1, 2" in bad(
        root, "str_replace", path=NOTES, old_str="b", new_str="x"
    )
    assert "did not appear verbatim" in bad(root, "str_replace", path=NOTES, old_str="B", new_str="x")
    assert "old_str" in bad(root, "str_replace", path=NOTES, old_str="", new_str="x")
    said = good(root, "str_replace", path=NOTES, old_str="b\nb", new_str="new\nlines\nhere")
    assert "     2\tlines" in said
    assert (root / "notes.md").read_text() == "a new\nlines\nhere c\nd\n"
    good(root, "str_replace", path=NOTES, old_str="d\n", new_str="")
    assert (root / "notes.md").read_text() == "a new\nlines\nhere c\n"


def test_insert_after_a_line(root: Path) -> None:
    good(root, "create", path=NOTES, file_text="two")
    good(root, "insert", path=NOTES, insert_line=0, insert_text="one\n")
    said = good(root, "insert", path=NOTES, insert_line=2, insert_text="three\\n is no line end")
    assert "     3\tthree\\n is no line end" in said  # Microbots kept a literal \n for every line end
    assert (root / "notes.md").read_text() == "one\ntwo\nthree\\n is no line end\n"
    assert "[0, 3]" in bad(root, "insert", path=NOTES, insert_line=4, insert_text="x")
    assert "[0, 3]" in bad(root, "insert", path=NOTES, insert_line=-1, insert_text="x")


def test_delete_and_rename(root: Path) -> None:
    good(root, "create", path="f/a", file_text="a")
    good(root, "create", path="b", file_text="b")
    assert "already exists" in bad(root, "rename", old_path="b", new_path="f/a")
    assert "into itself" in bad(root, "rename", old_path="f", new_path="f/g")
    assert "does not exist" in bad(root, "rename", old_path="nothing", new_path="x")
    good(root, "rename", old_path="f", new_path="old/f")
    assert (root / "old" / "f" / "a").read_text() == "a"
    assert "does not exist" in bad(root, "delete", path="f")
    good(root, "delete", path="old")
    assert sorted(path.name for path in root.iterdir()) == [".lock", "b"]
    assert "forgets everything" in bad(root, "clear", path="b")
    assert "path: Missing required argument" in bad(root, "clear")
    assert "1 file deleted" in good(root, "clear", path="/memories")
    assert good(root, "view", path="/memories") == "/memories is empty."


@pytest.mark.parametrize("path", ["/memories", "/", "", "memories/"])
def test_the_root_itself_stays(root: Path, path: str) -> None:
    good(root, "create", path="kept", file_text="x")
    bad(root, "delete", path=path)
    bad(root, "rename", old_path=path, new_path="x")
    bad(root, "rename", old_path="kept", new_path=path)
    bad(root, "create", path=path, file_text="x")
    assert (root / "kept").read_text() == "x"


def test_what_a_command_lacks_is_named(root: Path) -> None:
    assert bad(root, "create", path="x") == "file_text: Missing required argument"
    assert bad(root, "rename") == "old_path: Missing required argument; new_path: Missing required argument"
    assert "path: Unexpected keyword argument" in bad(root, "rename", path="x", old_path="x", new_path="y")
    assert "view_range" in bad(root, "view", path="x", view_range=[1])


def test_bounds(root: Path) -> None:
    small = Bounds(file_bytes=10, total_bytes=25, files=4)
    assert "10 fit" in bad(root, "create", small, path="a", file_text="x" * 11)
    for name in "ab":
        good(root, "create", path=name, file_text="x" * 10)
    assert "5 bytes are left" in bad(root, "create", small, path="c", file_text="x" * 6)
    assert "5 bytes are left" in bad(root, "create", small, path="c", file_text="é" * 3)
    good(root, "create", path="c", file_text="")
    assert "no room for more than 4" in bad(root, "create", small, path="d/e", file_text="")
    assert "no room for more than 4" in bad(root, "rename", small, old_path="a", new_path="d/e/f")
    assert "10 fit" in bad(root, "insert", small, path="a", insert_line=0, insert_text="x")
