"""Removing a layer, whatever a bot built in it."""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from stockade.core.changes import FolderLayer
from stockade.core.errors import SandboxFailed
from stockade.sandboxes.folders.record import LAYER_FILE, read_record

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h."""
_HELD = 0x10 | 0x20
"""FS_IMMUTABLE_FL and FS_APPEND_FL: the entry cannot be removed or renamed."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def discard_layer(layer: FolderLayer) -> None:
    """Remove all that was written; the host folder is not touched. Again after a crash it goes on where it stopped.

    UsageError when it is not a layer of that folder, or already gone; SandboxFailed when it cannot be removed.
    """
    if layer.strategy == "direct":
        return
    base, _ = read_record(layer)
    try:
        remove_tree(base, last=LAYER_FILE)
    except OSError as error:
        raise SandboxFailed(
            f"cannot remove the layer {base}: {error.strerror}", "is its sandbox still there?"
        ) from error


def remove_tree(root: Path, last: str | None = None) -> None:
    """Remove a folder of any depth and with any modes; no symlink is followed. `last` is removed after all else.

    Each folder found is moved up to the root and emptied there: two descriptors are enough, and no path grows long.
    """
    fd = os.open(root, _DIRECTORY)
    try:
        if os.fstat(fd).st_mode & 0o700 != 0o700:
            os.fchmod(fd, 0o700)
        _empty(fd, last)
        if last is not None:
            os.unlink(last, dir_fd=fd)
    finally:
        os.close(fd)
    root.rmdir()


def remove_entry(at: int, name: str) -> None:
    """The same for an entry of an open folder; nothing happens when there is none."""
    try:
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=at)
        return
    _open_up(name, at)
    fd = os.open(name, _DIRECTORY, dir_fd=at)
    try:
        _empty(fd, None)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=at)


def _empty(root: int, last: str | None) -> None:
    fresh = count()
    while names := [name for name in os.listdir(root) if name != last]:
        for name in names:
            _remove(root, name, root, fresh)


def _remove(at: int, name: str, root: int, fresh: Iterator[int]) -> None:
    found = os.stat(name, dir_fd=at, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        _insisting(name, at, lambda: os.unlink(name, dir_fd=at))
        return
    _insisting(name, at, lambda: _open_up(name, at))
    if at != root:
        _insisting(name, at, lambda: os.rename(name, _unused(root, fresh), src_dir_fd=at, dst_dir_fd=root))
        return
    inner = os.open(name, _DIRECTORY, dir_fd=at)
    try:
        for below in os.listdir(inner):
            _remove(inner, below, root, fresh)
    finally:
        os.close(inner)
    _insisting(name, at, lambda: os.rmdir(name, dir_fd=at))


def _unused(root: int, fresh: Iterator[int]) -> str:
    for number in fresh:
        name = f".discarded-{number}"
        try:
            os.stat(name, dir_fd=root, follow_symlinks=False)
        except FileNotFoundError:
            return name
    raise AssertionError


def _open_up(name: str, at: int) -> None:
    """Mode 0700 for a folder of ours, so that it can be emptied and moved."""
    pin = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
    try:
        if os.fstat(pin).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{pin}", 0o700)
    finally:
        os.close(pin)


def _insisting(name: str, at: int, act: Callable[[], None]) -> None:
    try:
        act()
    except PermissionError as error:
        if error.errno != errno.EPERM:
            raise
        _release(name, at)
        act()


def _release(name: str, at: int) -> None:
    """Take the immutable and append-only marks off an entry and its folder. Only root can set or clear them."""
    fds = [os.dup(at)]
    try:
        kind = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
        if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
            fds.append(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at))
        for fd in fds:
            flags = struct.unpack("l", fcntl.ioctl(fd, _GET_FLAGS, struct.pack("l", 0)))[0]
            if flags & _HELD:
                fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", flags & ~_HELD))
    finally:
        for fd in fds:
            os.close(fd)
