"""The total of what a sandbox writes to disk, watched from the host: bytes and files, the written folders included.

Watched, not kernel-held: an ordinary user can mount no file system of bounded size, and a layer must still be there for
review when its sandbox is gone. So one way serves all: root and user, overlay, copy and rw. A thread looks at the file
system's own counters several times a second, which costs microseconds, and counts the folders themselves when those
counters have moved, or now and then. Whoever writes past the limit is ended; what they overshot by is what a disk takes
in one look. Before the host's disk itself is in danger, the sandbox is ended whatever the count says.

What is counted is hostile: no symlink is followed, folders nested too deep to be counted end the run, folders the
writer has closed to us are charged with all that the file system has grown by, and files that were removed while still
open are found in the descriptors of the sandbox's processes.
"""

import functools
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from stockade_sandbox.policy import GIB, KIB, MIB, file_limit
from stockade_sandbox.processes import descendants
from stockade_sandbox.results import FolderLayer

LOOK_S = 0.2
_COUNT_EVERY_S = 10.0
_SHARE_OF_A_CORE = 0.1
_DEPTH = 256
_BLOCK = 512
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def written_places(layers: Sequence[FolderLayer], copies: Sequence[str]) -> tuple[Path, ...]:
    """The directories of the host in which a sandbox's writing ends up, none inside another."""
    found = set(copies)
    for layer in layers:
        if layer.strategy == "overlay":
            found |= {f"{layer.layer}/upper", f"{layer.layer}/work"}
        elif layer.mode != "ro":
            found.add(layer.source)
    kept: list[str] = []
    for path in sorted(map(os.path.realpath, found)):
        if not any(path == outer or path.startswith(outer.rstrip("/") + "/") for outer in kept):
            kept.append(path)
    return tuple(map(Path, kept))


@dataclass
class Usage:
    """Bytes allocated and files made. `blind`: part of it could not be read. `deep`: part of it is nested too deep."""

    size: int = 0
    files: int = 0
    blind: bool = False
    deep: bool = False
    _linked: set[tuple[int, int]] = field(default_factory=set)

    def add(self, found: os.stat_result) -> None:
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            if (found.st_dev, found.st_ino) in self._linked:
                return
            self._linked.add((found.st_dev, found.st_ino))
        self.size += found.st_blocks * _BLOCK
        self.files += 1


@dataclass(frozen=True)
class Room:
    """Of a file system: what is used of it and what is left, by anybody."""

    used: int
    used_files: int
    free: int

    @classmethod
    def of(cls, path: Path) -> "Room":
        found = os.statvfs(path)
        return cls((found.f_blocks - found.f_bfree) * found.f_frsize, found.f_files - found.f_ffree,
                   found.f_bavail * found.f_frsize)  # fmt: skip


def floor_of(path: Path) -> int:
    """Bytes of the file system that stay free: 1 GiB, or a twentieth of a small one, or half of a nearly full one's."""
    found = os.statvfs(path)
    return min(GIB, found.f_blocks * found.f_frsize // 20, found.f_bavail * found.f_frsize // 2)


def _scan(fd: int, usage: Usage) -> list[str]:
    """Adds what is in an open folder; returns the names of the folders in it."""
    folders = []
    with os.scandir(fd) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                usage.add(entry.stat(follow_symlinks=False))
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
    return folders


def nothing_in(places: Iterable[Path]) -> bool:
    """Whether counting them takes no time; no where one cannot be read."""
    try:
        for place in places:
            with os.scandir(place) as entries:
                if next(entries, None) is not None:
                    return False
    except OSError:
        return False
    return True


def count(places: Iterable[Path], enough: Callable[[Usage], bool] = lambda _: False) -> Usage:
    """What is below `places`; stops early when `enough` says so. A place that is not there counts nothing."""
    usage = Usage()
    for place in places:
        with ExitStack() as stack:
            _count_tree(place, usage, stack, enough)
    return usage


def _count_tree(place: Path, usage: Usage, stack: ExitStack, enough: Callable[[Usage], bool]) -> None:
    levels: list[tuple[int, list[str]]] = []

    def enter(name: str, at: int | None) -> None:
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=at)
        except PermissionError:
            usage.blind |= _is_ours(name, at)
            return
        except OSError:
            return  # moved or replaced since it was listed: the next count sees it
        try:
            names = _scan(fd, usage)
        except OSError:
            os.close(fd)
            usage.blind = True
            return
        levels.append((fd, names))

    def leave() -> None:
        for fd, _ in levels:
            os.close(fd)

    stack.callback(leave)
    enter(str(place), None)
    while levels and not enough(usage):
        fd, names = levels[-1]
        if not names:
            levels.pop()
            os.close(fd)
        elif len(levels) >= _DEPTH:
            usage.deep = True
            return
        else:
            enter(names.pop(), fd)


def _is_ours(name: str, at: int | None) -> bool:
    """Whether a folder that cannot be read is one the sandbox may have closed itself."""
    with suppress(OSError):
        return os.stat(name, dir_fd=at, follow_symlinks=False).st_uid == os.geteuid()
    return False


def _in_memory(pid: int | str) -> set[int]:
    """Devices of the tmpfs that a process sees. See proc_pid_mountinfo(5)."""
    found = set()
    for line in Path(f"/proc/{pid}/mountinfo").read_bytes().splitlines():
        place, _, kind = line.partition(b" - ")
        if kind.startswith(b"tmpfs "):
            major, minor = place.split()[2].split(b":")
            found.add(os.makedev(int(major), int(minor)))
    return found


def removed_but_open(pid: int | None, devices: set[int]) -> Usage:
    """Files that have no name any more but are held open by a sandbox's processes, those in memory left out.

    Files in memory have bounds of their own, be they mounted by the sandbox or, for gVisor, by us. An overlay shows
    files with a device number of its own, so what is left out is named, not what is counted; `devices` are counted
    always.
    """
    usage, seen, memory = Usage(), set(), {_memory_device(), *_in_memory("self")}
    for one in descendants(pid) if pid else ():
        with suppress(OSError):
            skipped = (memory | _in_memory(one)) - devices
            for fd in os.listdir(f"/proc/{one}/fd"):
                with suppress(OSError):
                    found = os.stat(f"/proc/{one}/fd/{fd}")
                    key = found.st_dev, found.st_ino
                    nameless = found.st_nlink == 0 and stat.S_ISREG(found.st_mode)
                    if nameless and found.st_dev not in skipped and key not in seen:
                        seen.add(key)
                        usage.add(found)
    return usage


@functools.cache
def _memory_device() -> int:
    fd = os.memfd_create("stockade-device")
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)


class DiskWatch:
    """Watches `places` until stopped, and calls `end` once, from its own thread, when `reason` is found.

    `limit` in bytes; 0 watches only that the host's disk stays usable. `guard` gives the pid whose descendants are the
    sandbox's processes.
    """

    def __init__(self, places: Sequence[Path], limit: int, end: Callable[[], None], guard: Callable[[], int | None]):
        self._places = tuple(place for place in places if place.exists())
        self._limit = limit
        self._end = end
        self._guard = guard
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stockade-disk", daemon=True)
        self._devices = {os.stat(place).st_dev for place in self._places}
        self._tops = {os.stat(place).st_dev: place for place in reversed(self._places)}
        self._floors = {place: floor_of(place) for place in self._tops.values()}
        self._first = self._rooms()
        self._before = count(self._places) if limit else Usage()
        self.reason: str | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Blocks for as long as a count takes to notice; idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _rooms(self) -> dict[Path, Room]:
        return {place: Room.of(place) for place in self._tops.values()}

    def _watch(self) -> None:
        counted, counted_at, not_before = self._first, time.monotonic(), 0.0
        while not self._stop.wait(LOOK_S):
            rooms, now = self._rooms(), time.monotonic()
            self.reason = self._too_full(rooms)
            due = self._moved(counted, rooms) or now - counted_at >= _COUNT_EVERY_S
            if due and not self.reason and self._limit and now >= not_before:
                spent = time.thread_time()
                self.reason = self._over(rooms)
                counted, counted_at = rooms, time.monotonic()
                # not by the clock alone: a machine kept busy must not be a way to be counted seldom
                not_before = counted_at + max((time.thread_time() - spent) / _SHARE_OF_A_CORE, counted_at - now)
            if self.reason:
                self._end()
                return

    def _too_full(self, rooms: dict[Path, Room]) -> str | None:
        for place, room in rooms.items():
            if room.free < self._floors[place]:
                return f"the host's disk is nearly full: {spelled(room.free)} are left where {place} is"
        return None

    def _moved(self, then: dict[Path, Room], now: dict[Path, Room]) -> bool:
        size, files = _growth(then, now)
        return size > self._limit // 64 or files > file_limit(self._limit) // 64

    def _over(self, rooms: dict[Path, Room]) -> str | None:
        size_limit, files_limit = self._before.size + self._limit, self._before.files + file_limit(self._limit)

        def enough(usage: Usage) -> bool:
            return usage.size > size_limit or usage.files > files_limit or self._stop.is_set()

        usage = count(self._places, enough)
        if usage.deep and not self._before.deep:
            return f"folders nested more than {_DEPTH} deep were made, which the disk limit cannot count"
        hidden = removed_but_open(self._guard(), self._devices)
        size, files = usage.size + hidden.size, usage.files + hidden.files
        if usage.blind and not self._before.blind:
            grown, grown_files = _growth(self._first, rooms)
            size, files = max(size, self._before.size + grown), max(files, self._before.files + grown_files)
        if size > size_limit:
            return f"the disk limit of {spelled(self._limit)} is used up by what the bot wrote"
        if files > files_limit:
            return f"the disk limit's {file_limit(self._limit)} files are used up by what the bot wrote"
        return None


def _growth(then: dict[Path, Room], now: dict[Path, Room]) -> tuple[int, int]:
    """Bytes and files by which the file systems have grown, by anybody's writing."""
    return (sum(max(0, now[place].used - room.used) for place, room in then.items()),
            sum(max(0, now[place].used_files - room.used_files) for place, room in then.items()))  # fmt: skip


def spelled(size: int) -> str:
    """`2 GiB`, `64 MiB`, `1000 bytes`: whole units only where nothing is lost beyond a tenth."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{round(size / unit, 1):g} {name}"
    return f"{size} bytes"
