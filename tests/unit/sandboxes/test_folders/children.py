"""Running part of a test as somebody else, with mounts of its own, or cut off in the middle."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from stockade.core.errors import StockadeError

_WRITING = {
    "os.rename",
    "os.mkdir",
    "os.remove",
    "os.rmdir",
    "os.chmod",
    "os.chown",
    "os.symlink",
    "os.truncate",
    "open",
}
_CUT_OFF = 77


def in_child(act: Callable[[], object], before: Callable[[], object] | None = None) -> str:
    """What `act` returns, as text, or the error of ours that it raised."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if before:
                before()
            try:
                said = str(act())
            except StockadeError as error:
                said = f"{type(error).__name__}: {error}"
            os.write(write, said.encode("utf-8", "surrogateescape")[:60_000])
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as said_by:
        text = said_by.read().decode("utf-8", "surrogateescape")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return text


def become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def mount_small_disk(folder: Path, size: str) -> None:
    """A tmpfs over a folder, seen by this process only."""
    new_mounts = 0x00020000
    assert ctypes.CDLL(None).unshare(new_mounts) == 0
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)


def cut_off_at(step: str, act: Callable[[], object]) -> None:
    """Run `act` in a child that dies when it comes to this step."""
    pid = os.fork()
    if pid == 0:

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            if event == "stockade.step" and arguments[0] == step:
                os._exit(_CUT_OFF)

        try:
            sys.addaudithook(hook)
            act()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == _CUT_OFF


def cut_off_after(steps: int, act: Callable[[], object]) -> bool:
    """Run `act` in a child that dies at its `steps`-th touch of the disk. Whether it died."""
    pid = os.fork()
    if pid == 0:
        left = steps

        def hook(event: str, _: tuple[object, ...]) -> None:
            nonlocal left
            if event in _WRITING:
                left -= 1
                if left < 0:
                    os._exit(_CUT_OFF)

        status = 1
        try:
            sys.addaudithook(hook)
            act()
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, _CUT_OFF)
    return status == _CUT_OFF
