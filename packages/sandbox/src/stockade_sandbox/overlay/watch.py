"""Knowing without a look that nothing was written to a layer: its folders are watched by inotify(7).

Of an overlay both sides: the upper folders tell what is made and copied up, those that the sandbox sees tell what is
written into files. inotify does not tell of what is written through a mapping or by io_submit(2) before the file is
closed, so a process that holds a file of the layer open for writing counts as one that writes. Whatever cannot be
told, on any machine, is answered with no: then the layer is looked at as if there were no watch.
"""

import ctypes
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from stockade_sandbox.overlay.safe_fs import DirTree
from stockade_sandbox.processes import descendants, open_files, pids_of
from stockade_sandbox.results import FolderLayer

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED, _CREATE, _DELETE, _ONLYDIR = 0xC0, 0x100, 0x200, 0x1000000
_WRITTEN = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _ONLYDIR
_SHARE = 4
"""A layer takes at most one in so many of the watches that a user may have: their editor wants some too."""
_EVENTS = 1 << 16


class Watch:
    """Of one layer. `guard` gives the process whose descendants are the sandbox's, or None. Not thread-safe."""

    def __init__(self, layer: FolderLayer, guard: Callable[[], int | None]) -> None:
        self._layer, self._guard = layer, guard
        self._below = os.fsencode(layer.inside) + b"/"
        self._fd: int | None = None
        self._agent: int | None = None
        self._left = 0
        self._is_whole = False

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._is_whole = None, False

    @contextmanager
    def looking(self) -> Iterator[Callable[[str, int], None]]:
        """While everything is looked at: call what this gives with each folder and its descriptor, before it is read.

        From the end on `is_quiet` speaks of what is written after each folder was given.
        """
        self._is_whole = False
        with ExitStack() as stack:
            try:
                self._begin()
                merged = self._merged(stack)
            except OSError:
                self.close()
                yield lambda _path, _fd: None
                return
            whole = True

            def add(path: str, fd: int) -> None:
                nonlocal whole
                if whole:
                    whole = self._add(fd) and (merged is None or self._add_merged(merged, path))

            yield add
            self._is_whole = whole
        if not whole:
            self.close()

    def is_quiet(self) -> bool:
        """Whether nothing was written since the last look. No where that cannot be told."""
        if self._fd is None or not self._is_whole:
            return False
        try:
            agent, bots = self._processes()
            if agent != self._agent or any(self._is_writing(pid) for pid in bots):
                return False
            return not self._read()
        except OSError:
            return False

    def _begin(self) -> None:
        """OSError where there can be no watch."""
        agent, _ = self._processes()
        if agent is None:
            raise FileNotFoundError(errno.ENOENT, "no process of the sandbox is seen from here")
        if agent != self._agent:
            self.close()
        self._agent = agent
        if self._fd is None:
            self._left = int(Path("/proc/sys/fs/inotify/max_user_watches").read_text()) // _SHARE
            self._fd = _called("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        while self._read():
            pass

    def _merged(self, stack: ExitStack) -> DirTree | None:
        """An overlay as the sandbox sees it. Of a copy it is checked that the sandbox sees it there."""
        seen = f"/proc/{self._agent}/root{self._layer.inside}"
        if self._layer.strategy == "overlay":
            return stack.enter_context(DirTree(Path(seen)))
        if not os.path.samestat(os.stat(seen, follow_symlinks=False), os.stat(self._layer.written or "")):
            raise FileNotFoundError(errno.ENOENT, "the sandbox has the copy elsewhere")
        return None

    def _add_merged(self, merged: DirTree, path: str) -> bool:
        try:
            return self._add(merged.folder(path))
        except OSError:
            return False

    def _add(self, folder: int) -> bool:
        """Twice the same is one watch."""
        self._left -= 1
        try:
            if self._fd is None or self._left < 0:
                return False
            _called("inotify_add_watch", self._fd, f"/proc/self/fd/{folder}".encode(), _WRITTEN)
        except OSError:
            return False
        return True

    def _read(self) -> bool:
        """Whether something was written. What the kernel had no room to tell is told as one event too."""
        try:
            return bool(os.read(self._fd if self._fd is not None else -1, _EVENTS))
        except BlockingIOError:
            return False

    def _processes(self) -> tuple[int | None, list[int]]:
        """Pid 1 of the sandbox, and what runs there beside it. OSError where the kernel does not list children."""
        guard = self._guard()
        os.stat(f"/proc/self/task/{threading.get_native_id()}/children")
        agent, bots = None, []
        for pid in descendants(guard) if guard else ():
            ids = pids_of(pid)
            if ids[-1:] != [1]:
                bots.append(pid)
            elif len(ids) > 1:
                agent = pid
        return agent, [pid for pid in bots if pid != guard]

    def _is_writing(self, pid: int) -> bool:
        """Whether a process could write to the layer without an event. One that ends tells of it by closing."""
        with suppress(FileNotFoundError, ProcessLookupError):
            try:
                return self._has_mapped(pid) or self._has_open(pid)
            except PermissionError:  # without memory of its own it is not ours any more
                return bool(Path(f"/proc/{pid}/maps").read_bytes())
        return False

    def _has_mapped(self, pid: int) -> bool:
        with open(f"/proc/{pid}/maps", "rb") as maps:
            for line in maps:
                fields = line.split(None, 5)
                if fields[1][1:2] == b"w" and fields[1][3:] == b"s" and fields[-1].startswith((self._below, b"/[aio]")):
                    return True
        return False

    def _has_open(self, pid: int) -> bool:
        for path, described in open_files(pid):
            with suppress(FileNotFoundError):
                if os.fsencode(os.readlink(path)).startswith(self._below) and is_for_writing(described):
                    return True
        return False


def is_for_writing(described: str) -> bool:
    with open(described, "rb") as info:
        flags = next(int(line.split()[1], 8) for line in info if line.startswith(b"flags:"))
    return flags & os.O_ACCMODE != os.O_RDONLY


def _called(name: str, *arguments: int | bytes) -> int:
    """A function of the C library that says -1 and errno."""
    found = int(getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found
