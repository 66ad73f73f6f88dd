"""Counting what folders hold, of whose making nothing is taken on trust: bytes allocated, and files.

Also a program of the standard library alone: `python usage.py BYTES FILES PLACE...` counts, until there is more than
that, as root of a user namespace of its own, who may look into folders that are closed to their own owner. It prints
bytes, files and 1 where part of it could not be read.
"""

import ctypes
import os
import stat
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

_OPEN = 256
"""Folders kept open on the way down; the way back to those above is checked."""
_BLOCK = 512
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_USER = 0x10000000
"""CLONE_NEWUSER, see unshare(2)."""


@dataclass
class Usage:
    """Bytes allocated and files made. `blind`: part of it could not be read."""

    size: int = 0
    files: int = 0
    blind: bool = False
    _linked: set[tuple[int, int]] = field(default_factory=set)

    def add(self, found: os.stat_result) -> None:
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            if (found.st_dev, found.st_ino) in self._linked:
                return
            self._linked.add((found.st_dev, found.st_ino))
        self.size += found.st_blocks * _BLOCK
        self.files += 1


def count(places: Iterable[Path], enough: Callable[[Usage], bool] = lambda _: False) -> Usage:
    """What is below `places`; stops early when `enough` says so. A place that is not there counts nothing."""
    usage = Usage()
    for place in places:
        with ExitStack() as stack:
            _Walk(usage, stack).below(place, enough)
    return usage


@dataclass
class _Level:
    """An open folder, or one that was closed on the way down, and the folders in it that are still to be entered."""

    fd: int
    key: tuple[int, int]
    names: list[str]


class _Walk:
    """Through one place, however deep it is nested."""

    def __init__(self, usage: Usage, stack: ExitStack) -> None:
        self._usage = usage
        self._levels: list[_Level] = []
        stack.callback(self._close)

    def below(self, place: Path, enough: Callable[[Usage], bool]) -> None:
        self._enter(str(place), None)
        while self._levels and not enough(self._usage):
            level = self._levels[-1]
            if level.names:
                self._enter(level.names.pop(), level.fd)
            elif not self._leave():
                self._usage.blind = True
                return

    def _enter(self, name: str, at: int | None) -> None:
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=at)
        except PermissionError:
            self._usage.blind |= _is_ours(name, at)
            return
        except OSError:
            return  # moved or replaced since it was listed: the next count sees it
        try:
            names = self._scan(fd)
        except OSError:
            os.close(fd)
            self._usage.blind = True
            return
        if len(self._levels) >= _OPEN:
            os.close(self._levels[-1].fd)
            self._levels[-1].fd = -1
        self._levels.append(_Level(fd, _key(fd), names))

    def _leave(self) -> bool:
        """Back to the folder above; False where that is another one by now."""
        level = self._levels.pop()
        try:
            if self._levels and self._levels[-1].fd < 0:
                above = self._levels[-1]
                above.fd = os.open("..", _DIRECTORY, dir_fd=level.fd)
                return _key(above.fd) == above.key
        except OSError:
            return False
        finally:
            os.close(level.fd)
        return True

    def _scan(self, fd: int) -> list[str]:
        """Adds what is in an open folder; returns the names of the folders in it."""
        folders = []
        with os.scandir(fd) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    self._usage.add(entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
        return folders

    def _close(self) -> None:
        for level in self._levels:
            if level.fd >= 0:
                os.close(level.fd)


def _key(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _is_ours(name: str, at: int | None) -> bool:
    """Whether a folder that cannot be read is one the sandbox may have closed itself."""
    with suppress(OSError):
        return os.stat(name, dir_fd=at, follow_symlinks=False).st_uid == os.geteuid()
    return False


def _become_root_of_a_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_USER):
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text)


def main(size: str, files: str, *places: str) -> None:
    _become_root_of_a_namespace()
    found = count(map(Path, places), lambda usage: usage.size > int(size) or usage.files > int(files))
    sys.stdout.write(f"{found.size} {found.files} {int(found.blind)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
