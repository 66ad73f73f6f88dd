"""The total of what a sandbox writes to disk, watched from the host: bytes and files, the written folders included.

Watched, not kernel-held: an ordinary user can mount no file system of bounded size, and a layer must still be there for
review when its sandbox is gone. So one way serves all: root and user, overlay, copy and rw. A thread looks at the file
systems' own counters, which costs microseconds, the more often the less is left; by them it knows what may have been
written at most. Once that reaches the limit the sandbox's processes are stopped, where we may, and the folders counted.
At the limit all that runs in the sandbox is ended, and the sandbox goes on, so that the bot can delete. What writes on
is ended again at each further sixty-fourth of the limit; a quarter beyond it, or 64 MiB, the sandbox is. Before the
host's disk itself is in danger, the same happens whatever the count says. What takes room without writing, fallocate,
is refused by the filter of system calls.

What is counted is hostile: no symlink is followed, folders nested too deep to be counted or closed to us are charged
with all that the file system has grown by, and files that were removed while still open are found in the descriptors
of the sandbox's processes.
"""

import functools
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from stockade_sandbox.policy import GIB, KIB, MIB, file_limit, margin
from stockade_sandbox.processes import descendants, open_files, start_time
from stockade_sandbox.results import FolderLayer

_STEP = 64
_LEAST_LOOK_S, _LOOK_S = 0.005, 0.2
_BYTES_PER_S, _FILES_PER_S = 8 * GIB, 2_000_000
"""More than a machine of today writes: memory takes 1 to 2 GiB a second of each of two writers, tried 2026-11."""
_COUNT_EVERY_S = 10.0
_ENDED_S, _TICK_S = 0.2, 0.001
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
            for path, _ in open_files(one):
                with suppress(OSError):
                    found = os.stat(path)
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
    """Watches `places` until stopped, from its own thread: calls `end_commands`, with the words for it, when they are
    full and go on growing, and `end` once, when `reason` is found for the sandbox's own end.

    `limit` in bytes; 0 watches only that the host's disk stays usable. `guard` gives the pid whose descendants are the
    sandbox's processes, `stoppable` those of them that may be stopped while it is counted.
    """

    def __init__(
        self, places: Sequence[Path], limit: int, end_commands: Callable[[str], None], end: Callable[[], None],
        guard: Callable[[], int | None], stoppable: Callable[[], Iterable[int]] = tuple,
    ) -> None:  # fmt: skip
        self._places = tuple(place for place in places if place.exists())
        self._limit = limit
        self._end_commands, self._end = end_commands, end
        self._guard, self._stoppable = guard, stoppable
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stockade-disk", daemon=True)
        self._devices = {os.stat(place).st_dev for place in self._places}
        self._tops = {os.stat(place).st_dev: place for place in reversed(self._places)}
        self._floors = {place: floor_of(place) for place in self._tops.values()}
        self._first = self._counted_at = self._rooms()
        self._before = count(self._places) if limit else Usage()
        self._counted = _Bounds.of(self._before)
        self._most = _Bounds(self._before.size + limit, self._before.files + file_limit(limit))
        self._end_at = _Bounds(self._most.size + margin(limit), self._most.files + file_limit(margin(limit)))
        self._steps = _Bounds(max(limit // _STEP, MIB), max(file_limit(limit) // _STEP, 64))
        self._free_then: dict[Path, int] = {}
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
        counted, not_before, pause_s = time.monotonic(), 0.0, _LEAST_LOOK_S
        while not self._stop.wait(pause_s):
            rooms, now = self._rooms(), time.monotonic()
            self._look_at_host(rooms)
            if self._limit and not self.reason:
                bound, next_count = self._bound(rooms), self._next_count()
                old = now - counted >= _COUNT_EVERY_S and now >= not_before
                if bound.reaches(next_count) or self._has_shrunk(bound) or old:
                    spent = time.thread_time()
                    self._count(next_count)
                    counted = time.monotonic()
                    not_before = counted + (time.thread_time() - spent) / _SHARE_OF_A_CORE
                    bound, next_count = self._bound(rooms), self._next_count()
                pause_s = self._pause_s(bound, next_count)
            elif not self._limit:
                pause_s = _LOOK_S
            if self.reason:
                self._end()
                return

    def _pause_s(self, bound: "_Bounds", next_count: "_Bounds") -> float:
        """Until what is left, and an eighth of the limit, could have been written at the most."""
        size = (max(0, next_count.size - bound.size) + self._limit // 8) / _BYTES_PER_S
        files = (max(0, next_count.files - bound.files) + file_limit(self._limit) // 8) / _FILES_PER_S
        return min(max(min(size, files), _LEAST_LOOK_S), _LOOK_S)

    def _look_at_host(self, rooms: dict[Path, Room]) -> None:
        """Ends commands once a file system is nearly full, again as it fills on, and the sandbox in the end."""
        for place, room in rooms.items():
            floor, then = self._floors[place], self._free_then.get(place)
            free = f"{spelled(room.free)} are left where {place} is"
            if room.free >= floor:
                self._free_then.pop(place, None)
            elif room.free < floor // 2:
                self.reason = f"the host's disk is nearly full: {free}"
            elif then is None or room.free < then - floor // 16:
                self._free_then[place] = room.free
                self._end_commands(f"No space left (the host's disk is nearly full: {free})")

    def _bound(self, rooms: dict[Path, Room]) -> "_Bounds":
        """What there is at the most, by the file systems' own counters, if nobody else has freed some meanwhile."""
        size, files = _growth(self._counted_at, rooms)
        return _Bounds(self._counted.size + size, self._counted.files + files)

    def _next_count(self) -> "_Bounds":
        """What would have to be counted: at the limit, or a step after the last count."""
        most, steps, counted = self._most, self._steps, self._counted
        return _Bounds(max(most.size, counted.size + steps.size), max(most.files, counted.files + steps.files))

    def _has_shrunk(self, bound: "_Bounds") -> bool:
        """Whether what was full may be so no more."""
        counted, steps = self._counted, self._steps
        full = counted.size >= self._most.size or counted.files >= self._most.files
        return full and (bound.size <= counted.size - steps.size or bound.files <= counted.files - steps.files)

    def _count(self, due: "_Bounds") -> None:
        """Counts, and ends what runs or all where there is as much as `due`; then what is left is counted anew."""
        with _Stopped(self._stoppable) as stopped:
            found = self._look()
            if not found.reaches(due) or self._stop.is_set():
                return
            if found.exceeds(self._end_at):
                self.reason = f"the disk limit of {spelled(self._limit)} is used up by what the bot wrote"
                return
            what = spelled(self._limit) if found.size >= due.size else f"{file_limit(self._limit)} files"
            self._end_commands(f"No space left (limit {what})")
            stopped.until_ended()
        self._look()

    def _look(self) -> "_Bounds":
        """What is there, as far as it takes to know; remembered."""
        rooms = self._rooms()
        usage = count(self._places, lambda usage: self._stop.is_set() or _Bounds.of(usage).exceeds(self._end_at))
        hidden = removed_but_open(self._guard(), self._devices)
        found = _Bounds(usage.size + hidden.size, usage.files + hidden.files)
        if (usage.blind and not self._before.blind) or (usage.deep and not self._before.deep):
            size, files = _growth(self._first, rooms)
            found = _Bounds(max(found.size, self._before.size + size), max(found.files, self._before.files + files))
        self._counted, self._counted_at = found, rooms
        return found


@dataclass(frozen=True)
class _Bounds:
    """Bytes, and files."""

    size: int
    files: int

    @classmethod
    def of(cls, usage: Usage) -> "_Bounds":
        return cls(usage.size, usage.files)

    def reaches(self, other: "_Bounds") -> bool:
        return self.size >= other.size or self.files >= other.files

    def exceeds(self, other: "_Bounds") -> bool:
        return self.size > other.size or self.files > other.files


class _Stopped:
    """Inside, none of the processes runs; those they start while they are being stopped are stopped too."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids, self._found = pids, set[int]()

    def __enter__(self) -> Self:
        before = -1
        while before < len(self._found):
            before = len(self._found)
            for pid in self._pids():
                if pid not in self._found:
                    self._found.add(pid)
                    _signal(pid, signal.SIGSTOP)
        return self

    def until_ended(self) -> None:
        """Waits, not for long, until somebody has ended all of them but the shell and its checkpoint."""
        end = time.monotonic() + _ENDED_S
        while time.monotonic() < end and sum(start_time(pid, zombies=False) is not None for pid in self._found) > 2:
            time.sleep(_TICK_S)

    def __exit__(self, *_: object) -> None:
        for pid in self._found:
            _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _growth(then: dict[Path, Room], now: dict[Path, Room]) -> tuple[int, int]:
    """Bytes and files by which the file systems have grown, by anybody's writing; less than 0 where they shrank."""
    return (sum(now[place].used - room.used for place, room in then.items()),
            sum(now[place].used_files - room.used_files for place, room in then.items()))  # fmt: skip


def spelled(size: int) -> str:
    """`2 GiB`, `64 MiB`, `1000 bytes`: whole units only where nothing is lost beyond a tenth."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{round(size / unit, 1):g} {name}"
    return f"{size} bytes"
