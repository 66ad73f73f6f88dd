"""Removing a layer, whatever a bot built in it."""

import errno
import fcntl
import os
import secrets
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.overlay.record import LAYER_FILE, MANIFEST_FILE, read_record, sync_folder
from stockade_sandbox.results import FolderLayer

TOMBSTONE = ".removed-"
_PARTS = {"upper", "work", "copy", "kept", "base", MANIFEST_FILE}

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h."""
_HELD = 0x10 | 0x20
"""FS_IMMUTABLE_FL and FS_APPEND_FL: the entry cannot be removed or renamed."""
_AT_ONCE = 32
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def discard_layer(layer: FolderLayer) -> None:
    """Remove all that was written; the host folder is not touched.

    The layer goes by one rename to a tombstone, so it is there whole or not at all. What a crash leaves of the
    tombstone, the next call of `sweep_tombstones` removes. UsageError when it is not a layer of that folder, or already
    gone; SandboxFailed when it cannot be removed.
    """
    if layer.strategy == "direct":
        return
    base = _place_of(layer)
    try:
        sys.audit("stockade.step", "discard")
        with suppress(FileNotFoundError):  # somebody else's discard was first
            base.rename(base.with_name(f"{TOMBSTONE}{base.name}-{secrets.token_hex(4)}"))
        sync_folder(base.parent)
        sys.audit("stockade.step", "discarded")
        sweep_tombstones(base.parent)
    except OSError as error:
        raise SandboxFailed(
            f"cannot remove the layer {base}: {error.strerror}", "is its sandbox still there?"
        ) from error


def _place_of(layer: FolderLayer) -> Path:
    """Where the layer is. One whose record is lost is still known by what is in it, so that it can be thrown away."""
    base = Path(str(layer.layer))
    without_record = base.name.isdecimal() and base.is_dir() and not (base / LAYER_FILE).exists()
    if without_record and set(os.listdir(base)) <= _PARTS:
        return base
    return read_record(layer)[0]


def sweep_tombstones(run_dir: Path) -> list[Path]:
    """Remove the layers of a run that were thrown away, as far as that is still to be done. OSError where it fails."""
    dead = list(run_dir.glob(f"{TOMBSTONE}*"))
    for tombstone in dead:
        with suppress(FileNotFoundError):
            remove_tree(tombstone)
    return dead


def in_runs(runs: Path, pattern: str) -> list[Path]:
    """What matches in the folder of any run, sorted. Runs begin and go meanwhile."""
    found = list[Path]()
    with suppress(FileNotFoundError):
        for name in os.listdir(runs):
            with suppress(FileNotFoundError):
                found += () if name.startswith(".") else (runs / name).glob(pattern)
    return sorted(found)


def remove_tree(root: Path) -> None:
    """Remove a folder of any depth and with any modes; no symlink is followed.

    Each folder found is moved up to the root and emptied there: two descriptors are enough, and no path grows long.
    """
    fd = os.open(root, _DIRECTORY)
    try:
        if os.fstat(fd).st_mode & 0o700 != 0o700:
            os.fchmod(fd, 0o700)
        _empty(fd)
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
        _empty(fd)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=at)


def _empty(root: int) -> None:
    """Many at a time: where a file system gives the blocks of a file back at once, each removal waits for the disk."""
    fresh = count()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        while names := os.listdir(root):
            for name in filter(None, pool.map(partial(_unlink, root, None, fresh), names)):
                inner = os.open(name, _DIRECTORY, dir_fd=root)
                try:
                    for _ in pool.map(partial(_unlink, inner, root, fresh), os.listdir(inner)):
                        pass
                finally:
                    os.close(inner)
                _insisting(name, root, partial(os.rmdir, name, dir_fd=root))


def _unlink(at: int, up: int | None, fresh: Iterator[int], name: str) -> str:
    """Remove an entry. A folder is opened up, and moved to `up` where there is one; else its name is returned."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
        _insisting(name, at, partial(os.unlink, name, dir_fd=at))
        return ""
    _insisting(name, at, partial(_open_up, name, at))
    if up is None:
        return name
    _insisting(name, at, lambda: os.rename(name, _unused(up, fresh), src_dir_fd=at, dst_dir_fd=up))
    return ""


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
