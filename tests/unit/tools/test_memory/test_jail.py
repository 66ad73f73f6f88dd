"""Attacks on the folder of a memory, and runs that use it at once. Everything real: links, races, processes, kills."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from stockade.core.actions import ToolResult
from stockade.core.errors import ActionFailed, UsageError
from stockade.tools.memory.folder import MemoryFolder
from stockade.tools.memory.toolbox import MemoryToolbox

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
SECRET = "the person's own secret"

APPEND = """
import sys, json
from pathlib import Path
from stockade.tools.memory import commands
from stockade.tools.memory.folder import MemoryFolder
folder, who = MemoryFolder(Path(sys.argv[1])), sys.argv[2]
print("ready", flush=True)
for number in range(int(sys.argv[3])):
    with folder.changing():
        commands.insert(folder, ("notes.md",), 0, f"{who} {number}")
"""
HOLD = """
import sys
from pathlib import Path
from stockade.tools.memory.folder import MemoryFolder
with MemoryFolder(Path(sys.argv[1])).changing():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    MemoryFolder(tmp_path / "memory").make()
    (tmp_path / "memory" / "notes.md").write_text("mine\n")
    return tmp_path / "memory"


def call(root: Path, timeout_s: float = 30, **arguments: Any) -> ToolResult:
    async def run() -> ToolResult:
        async with MemoryToolbox(root) as box:
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


@pytest.mark.parametrize(
    "path",
    ["../outside/secret", "/memories/../outside/secret", "a/../../outside/secret", "..", "/etc/passwd", "~/../x/..",
     "/memories/../../../../../../etc/passwd", "\\..\\outside", ".lock", ".hidden", "a\0b", "a\nb", "\u202etxt.x",
     "x" * 300, "\ud800", "/memoriesx/secret"],
)  # fmt: skip
def test_no_path_leads_out(root: Path, outside: Path, path: str) -> None:
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
    folder, seen = MemoryFolder(root), set()
    try:
        for _ in range(3000):
            try:
                seen.add(folder.read(("f", "secret")))
                folder.write(("f", "new"), "x")
                folder.entries()
            except (ActionFailed, OSError) as error:
                seen.add(type(error).__name__)
    finally:
        over.set()
        thread.join()
    assert seen >= {"inside", "ActionFailed"}
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
    (root / ".part-left").write_text("half")
    assert (call(root, command="create", path="after", file_text="x")).status == "success"
    assert not list(root.glob(".part-*"))


def test_who_waits_for_the_lock_too_long_changes_nothing(root: Path) -> None:
    holder = _start(HOLD, root)
    result = call(root, 0.2, command="create", path="late", file_text="x")
    assert result.status == "error"
    assert "nothing was changed" in result.text
    assert "mine" in (call(root, command="view", path="notes.md")).text
    holder.communicate("")
    assert (call(root, command="create", path="next", file_text="x")).status == "success"
    assert not (root / "late").exists()


def test_a_full_disk_is_a_line_for_the_model(root: Path) -> None:
    """A write beyond RLIMIT_FSIZE fails like one on a full disk."""
    program = (
        "import anyio, json, resource, signal, sys\nfrom pathlib import Path\n"
        "from stockade.tools.memory.toolbox import MemoryToolbox\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (5, 5))\n"
        "async def main():\n async with MemoryToolbox(Path(sys.argv[1])) as box:\n"
        "  r = await box.call('memory_create', {'path': 'x', 'file_text': 'y' * 100}, 30)\n"
        "  print(json.dumps([r.status, r.text]))\nanyio.run(main)"
    )
    done = subprocess.run([sys.executable, "-c", program, root], capture_output=True, text=True, check=True)
    status, text = json.loads(done.stdout)
    assert status == "error"
    assert "File too large" in text
    assert sorted(path.name for path in root.iterdir()) == [".lock", "notes.md"]
