"""Attacks on the folder of a memory, and runs that use it at once. Everything real: links, races, processes, kills."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from stockade.core.actions import ToolResult
from stockade.core.errors import UsageError
from stockade.tools.memory import MemoryToolbox
from stockade_sandbox.policy import Limits
from stockade_sandbox.reading import READING, ReadingRoom
from stockade_sandbox.results import FolderLayer

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
SECRET = "the person's own secret"

BOX = """
import anyio, sys
from pathlib import Path
from stockade_sandbox.reading import ReadingRoom
from stockade.tools.memory import MemoryToolbox
root, who = Path(sys.argv[1]), sys.argv[2]
box = MemoryToolbox(root, ReadingRoom(root.parent / f"rooms-{who}"))
"""
APPEND = (
    BOX
    + """
async def main():
    async with box:
        print("ready", flush=True)
        for number in range(int(sys.argv[3])):
            added = {"path": "notes.md", "insert_line": 0, "insert_text": f"{who} {number}"}
            result = await box.call("memory_insert", added, 60)
            assert result.status == "success", result.text
anyio.run(main)
"""
)
HOLD = """
import fcntl, sys
with open(sys.argv[1] + "/.lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""
LOOK = """
import json
def attempt(step):
    try:
        return step()
    except OSError as error:
        return type(error).__name__
def write():
    with open("/memories/f/new", "w") as file:
        file.write("x")
    return "written"
looks = [lambda: open("/memories/f/secret").read(), write]
seen = set()
for number in range(3_000_000):
    seen |= {attempt(look) for look in looks}
    if number > 3000 and len(seen) > 2:
        break
print(json.dumps(sorted(seen)))
"""
"""Follows every link, in one sandbox of a call: starting three thousand would leave the race hardly a chance. It goes
on until it met the folder both ways: on a busy machine the two may not meet for long.
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "memory").mkdir(mode=0o700)
    (tmp_path / "memory" / "notes.md").write_text("mine\n")
    return tmp_path / "memory"


def call(root: Path, timeout_s: float = 30, limits: Limits = READING, **arguments: Any) -> ToolResult:
    async def run() -> ToolResult:
        async with MemoryToolbox(root, ReadingRoom(root.parent / "rooms", limits)) as box:
            return await box.call(f"memory_{arguments.pop('command')}", arguments, timeout_s)

    return anyio.run(run)


def attempts(path: str) -> list[dict[str, Any]]:
    """Everything that can be asked for with a path."""
    return [
        {"command": "view", "path": path},
        {"command": "create", "path": path, "file_text": "owned"},
        {"command": "str_replace", "path": path, "old_str": "secret", "new_str": "owned"},
        {"command": "insert", "path": path, "insert_line": 0, "insert_text": "owned"},
        {"command": "delete", "path": path},
        {"command": "rename", "old_path": path, "new_path": "stolen"},
        {"command": "rename", "old_path": "notes.md", "new_path": path},
    ]


def _naive_read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        return type(error).__name__


async def _looks(root: Path) -> list[str]:
    """What LOOK sees in the sandbox of a call."""
    room = ReadingRoom(root.parent / "rooms")
    layer = FolderLayer(host=str(root), inside="/memories", mode="rw", strategy="direct")
    async with room.open(folders=(layer,)) as sandbox:
        done = await sandbox.exec([room.python, "-I", "-S", "-c", LOOK], timeout_s=60)
    assert done.exit_code == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.mark.parametrize(
    "path",
    ["../outside/secret", "/memories/../outside/secret", "a/../../outside/secret", "..", "/etc/passwd", "~/../x/..",
     "/memories/../../../../../../etc/passwd", "\\..\\outside", ".lock", ".hidden", "a\0b", "a\nb", "\u202etxt.x",
     "x" * 300, "\ud800", "/memoriesx/secret"],
)  # fmt: skip
def test_no_path_leads_out(root: Path, outside: Path, path: str) -> None:
    (root.parent / "rooms").mkdir()
    before = sorted(outside.parent.rglob("*"))
    for arguments in attempts(path):
        if path == "\\..\\outside":  # a plain name on this system
            continue
        result = call(root, **arguments)
        assert result.status == "error", (arguments, result.text)
        assert SECRET not in result.text
    assert (outside / "secret").read_text() == SECRET
    assert (root / "notes.md").read_text() == "mine\n"
    assert [path for path in sorted(outside.parent.rglob("*")) if path.name != ".lock"] == before


@pytest.mark.parametrize("link", ["file", "folder", "dangling", "itself"])
def test_no_link_leads_out(root: Path, outside: Path, link: str) -> None:
    target = {"file": outside / "secret", "folder": outside, "dangling": outside / "new", "itself": root / "link"}[link]
    (root / "link").symlink_to(target)
    for path in ("link", "link/secret", "link/new"):
        for arguments in attempts(path):
            result = call(root, **arguments)
            assert result.status == "error", (arguments, result.text)
            assert SECRET not in result.text
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == SECRET
    assert "link" not in (call(root, command="view", path="/memories")).text
    assert (call(root, command="clear", path="/memories")).status == "success"
    assert (outside / "secret").read_text() == SECRET
    assert not (root / "link").is_symlink()


def test_a_link_below_a_folder_that_is_deleted_is_not_followed(root: Path, outside: Path) -> None:
    (root / "f").mkdir()
    (root / "f" / "link").symlink_to(outside)
    assert (call(root, command="delete", path="f")).status == "success"
    assert (outside / "secret").read_text() == SECRET


def test_a_pipe_and_a_socket_hold_nobody_up(root: Path) -> None:
    os.mkfifo(root / "pipe")
    for arguments in attempts("pipe"):
        assert (call(root, **arguments)).status == "error"
    assert "pipe" not in (call(root, command="view", path="/memories")).text


def test_a_folder_that_turns_into_a_link_between_two_looks(root: Path, outside: Path) -> None:
    """Another process swaps a folder and a link to the outside as fast as it can."""
    (root / "f").mkdir()
    (root / "f" / "secret").write_text("inside")
    (root.parent / "evil").symlink_to(outside)
    over, libc = threading.Event(), ctypes.CDLL(None, use_errno=True)
    here, there = os.fsencode(root / "f"), os.fsencode(root.parent / "evil")

    def swap() -> None:
        while not over.is_set():
            libc.renameat2(_AT_FDCWD, here, _AT_FDCWD, there, _RENAME_EXCHANGE)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        naive = set[str]()
        for _ in range(1_000_000):
            naive.add(_naive_read(root / "f" / "secret"))
            if naive >= {"inside", SECRET}:
                break
        seen = set(anyio.run(_looks, root))
    finally:
        over.set()
        thread.join()
    assert naive >= {"inside", SECRET}  # outside a sandbox, without care, it gets through
    assert seen == {"inside", "written", "FileNotFoundError"}
    assert SECRET not in seen
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == SECRET


def test_the_root_is_no_link_and_no_file(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "file").write_text("")
    for name in ("link", "file", "file/below"):
        with pytest.raises(UsageError, match="cannot be used"):
            call(tmp_path / name, command="clear", path="/memories")


def test_what_is_no_text_or_too_large_is_said(root: Path) -> None:
    (root / "binary").write_bytes(b"\xff\xfe\x00")
    (root / "large").write_bytes(b"x" * 100_000)
    assert "not text" in (call(root, command="view", path="binary")).text
    assert "larger than 65536" in (call(root, command="view", path="large")).text


def _start(script: str, *arguments: str | Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", script, *map(str, arguments)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_two_runs_at_once_lose_nothing(root: Path) -> None:
    processes = [_start(APPEND, root, who, "40") for who in "abc"]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    lines = (root / "notes.md").read_text().splitlines()
    assert sorted(lines) == sorted(["mine", *(f"{who} {number}" for who in "abc" for number in range(40))])


def test_a_killed_run_leaves_whole_files_and_no_lock(root: Path) -> None:
    for delay in range(8):
        process = _start(APPEND, root, "k", "100000")
        while len((root / "notes.md").read_text().splitlines()) < 3 * (delay + 1):
            continue
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        text = (root / "notes.md").read_text()
        assert text.endswith("mine\n")
        assert all(line == "mine" or line.startswith("k ") for line in text.splitlines())
    (root / ".part").write_text("half")
    assert (call(root, command="create", path="after", file_text="x")).status == "success"
    assert not list(root.glob(".part*"))


def test_who_waits_for_the_lock_too_long_changes_nothing(root: Path) -> None:
    holder = _start(HOLD, root)
    result = call(root, 0.2, command="create", path="late", file_text="x")
    assert result.status == "error"
    assert result.text == "memory_create took longer than 0.2 s"
    assert "mine" in (call(root, command="view", path="notes.md")).text
    holder.communicate("")
    assert (call(root, command="create", path="next", file_text="x")).status == "success"
    assert not (root / "late").exists()


def test_a_full_disk_is_a_line_for_the_model(root: Path) -> None:
    """A write beyond RLIMIT_FSIZE fails like one on a full disk."""
    small = replace(READING, file_bytes=4096)
    result = call(root, limits=small, command="create", path="x", file_text="y" * 10_000)
    assert result.status == "error"
    assert "File size limit exceeded" in result.text
    assert sorted(path.name for path in root.iterdir()) == [".lock", "notes.md"]
