"""The total of what a sandbox writes to disk, watched from the host: bytes and files, the written folders included.

Watched, not kernel-held: an ordinary user can mount no file system of bounded size, and a layer must still be there for
review when its sandbox is gone. So one way serves all: root and user, overlay, copy and rw. A thread looks at the file
systems' own counters, which costs microseconds, the more often the less is left; by them it knows what may have been
written at most. Once that reaches the limit the sandbox's processes are stopped, where we may, and the folders counted.
At the limit all that runs in the sandbox is ended, and the sandbox goes on, so that the bot can delete. What writes on
is ended again at each further sixty-fourth of the limit; a quarter beyond it, or 64 MiB, the sandbox is. Before the
host's disk itself is in danger, the same happens whatever the count says. What takes room without writing, fallocate,
is refused by the filter of system calls.

What is counted is hostile (usage.py): no symlink is followed, folders that stay closed to us are charged with all that
the file system has grown by, and files that were removed while still open are found in the descriptors of the sandbox's
processes.
"""

import functools
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from stockade_sandbox.limits import usage as usage_module
from stockade_sandbox.limits.usage import Usage, count
from stockade_sandbox.policy import GIB, KIB, MIB, file_limit, margin
from stockade_sandbox.processes import descendants, is_stopped, open_files, start_time
from stockade_sandbox.results import FolderLayer

_NONE = subprocess.DEVNULL
_STEP = 64
_LEAST_LOOK_S, _LOOK_S = 0.005, 0.2
_BYTES_PER_S, _FILES_PER_S = 8 * GIB, 2_000_000
"""More than a machine of today writes: memory takes 1 to 2 GiB a second of each of two writers, tried 2026-11."""
_COUNT_EVERY_S, _LOOK_EVERY_S = 10.0, 0.5
"""While others free as much as is written, the counters do not tell: it is counted all the same, the more often where
they move at all."""
_ENDED_S, _TICK_S = 0.2, 0.001
_SHARE_OF_A_CORE = 0.1


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


@dataclass(frozen=True)
class Room:
    """Of a file system: what is used of it and what is left, by anybody."""

    used: int
    used_files: int
    free: int
    free_files: int = sys.maxsize

    @classmethod
    def of(cls, path: Path) -> "Room":
        found = os.statvfs(path)
        return cls((found.f_blocks - found.f_bfree) * found.f_frsize, found.f_files - found.f_ffree,
                   found.f_bavail * found.f_frsize, found.f_favail if found.f_files else sys.maxsize)  # fmt: skip


def floor_of(path: Path) -> "Bounds":
    """What of the file system stays free: 1 GiB and 65,536 files, or a twentieth of a small one, or half of a nearly
    full one's. Some count no files."""
    found = os.statvfs(path)
    return Bounds(min(GIB, found.f_blocks * found.f_frsize // 20, found.f_bavail * found.f_frsize // 2),
                  min(1 << 16, found.f_files // 20, found.f_favail // 2))  # fmt: skip


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


def count_closed(places: Iterable[Path], most: "Bounds", is_over: Callable[[], bool]) -> Usage | None:
    """As `count`, in a process that may look into folders which the bot closed to their owner, an ordinary user. None
    where there can be none (no user namespaces), and when it `is_over`.
    """
    argv = [sys.executable, "-I", "-S", usage_module.__file__, str(most.size), str(most.files), *map(str, places)]
    with subprocess.Popen(argv, stdin=_NONE, stdout=subprocess.PIPE, stderr=_NONE, env={}) as process:
        while process.poll() is None:
            if is_over():
                process.kill()
            time.sleep(_TICK_S)
        assert process.stdout is not None
        numbers = [int(word) for word in process.stdout.read().split()]
    return None if process.returncode else Usage(numbers[0], numbers[1], blind=bool(numbers[2]))


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
        self._before = self._usage(_ANY) if limit else Usage()
        self._counted = Bounds.of(self._before)
        self._most = Bounds(self._before.size + limit, self._before.files + file_limit(limit))
        self._end_at = Bounds(self._most.size + margin(limit), self._most.files + file_limit(margin(limit)))
        self._steps = Bounds(max(limit // _STEP, MIB), max(file_limit(limit) // _STEP, 64))
        self._free_then: dict[Path, Bounds] = {}
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
        looked = counted = time.monotonic()
        not_before, pause_s = 0.0, _LEAST_LOOK_S
        while not self._stop.wait(pause_s):
            rooms, now = self._rooms(), time.monotonic()
            self._look_at_host(rooms)
            if self._limit and not self.reason:
                bound, due = self._bound(rooms), self._next_count()
                is_due = bound.reaches(due) or self._has_shrunk(bound)
                is_old = now >= not_before and now - counted >= _COUNT_EVERY_S
                has_moved = now >= not_before and now - looked >= _LOOK_EVERY_S and rooms != self._counted_at
                if is_due or is_old or (has_moved and self._look().reaches(due)):
                    self._count(due)
                    counted = time.monotonic()
                if is_due or is_old or has_moved:
                    looked = time.monotonic()
                    not_before = looked + (looked - now) / _SHARE_OF_A_CORE
                    bound, due = self._bound(rooms), self._next_count()
                pause_s = min(self._pause_s(bound, due), _until_full(rooms))
            elif not self._limit:
                pause_s = _until_full(rooms)
            if self.reason:
                self._end()
                return

    def _pause_s(self, bound: "Bounds", next_count: "Bounds") -> float:
        """Until what is left, and an eighth of the limit, could have been written at the most."""
        size = (max(0, next_count.size - bound.size) + self._limit // 8) / _BYTES_PER_S
        files = (max(0, next_count.files - bound.files) + file_limit(self._limit) // 8) / _FILES_PER_S
        return min(max(min(size, files), _LEAST_LOOK_S), _LOOK_S)

    def _look_at_host(self, rooms: dict[Path, Room]) -> None:
        """Ends commands once a file system is nearly full, again as it fills on, and the sandbox in the end."""
        for place, room in rooms.items():
            floor, then = self._floors[place], self._free_then.get(place)
            left = Bounds(room.free, room.free_files)
            what = spelled(room.free) if room.free < floor.size else f"room for {room.free_files} files"
            why = f"the host's disk is nearly full: {what} left where {place} is"
            if not floor.exceeds(left):
                self._free_then.pop(place, None)
            elif Bounds(floor.size // 2, floor.files // 2).exceeds(left):
                self.reason = why
            elif then is None or Bounds(then.size - floor.size // 16, then.files - floor.files // 16).exceeds(left):
                self._free_then[place] = left
                self._end_commands(f"No space left ({why})")

    def _bound(self, rooms: dict[Path, Room]) -> "Bounds":
        """What there is at the most, by the file systems' own counters, if nobody else has freed some meanwhile."""
        size, files = _growth(self._counted_at, rooms)
        return Bounds(self._counted.size + size, self._counted.files + files)

    def _next_count(self) -> "Bounds":
        """What would have to be counted: at the limit, or a step after the last count."""
        most, steps, counted = self._most, self._steps, self._counted
        return Bounds(max(most.size, counted.size + steps.size), max(most.files, counted.files + steps.files))

    def _has_shrunk(self, bound: "Bounds") -> bool:
        """Whether what was full may be so no more."""
        counted, steps = self._counted, self._steps
        full = counted.size >= self._most.size or counted.files >= self._most.files
        return full and (bound.size <= counted.size - steps.size or bound.files <= counted.files - steps.files)

    def _count(self, due: "Bounds") -> None:
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

    def _look(self) -> "Bounds":
        """What is there, as far as it takes to know; remembered."""
        rooms = self._rooms()
        usage = self._usage(self._end_at)
        hidden = removed_but_open(self._guard(), self._devices)
        found = Bounds(usage.size + hidden.size, usage.files + hidden.files)
        if usage.blind and not self._before.blind:
            size, files = _growth(self._first, rooms)
            found = Bounds(max(found.size, self._before.size + size), max(found.files, self._before.files + files))
        self._counted, self._counted_at = found, rooms
        return found

    def _usage(self, most: "Bounds") -> Usage:
        """What is in the places, until there is more than `most`."""
        usage = count(self._places, lambda usage: self._stop.is_set() or Bounds.of(usage).exceeds(most))
        if usage.blind and os.geteuid():
            return count_closed(self._places, most, self._stop.is_set) or usage
        return usage


@dataclass(frozen=True)
class Bounds:
    """Bytes, and files."""

    size: int
    files: int

    @classmethod
    def of(cls, usage: Usage) -> "Bounds":
        return cls(usage.size, usage.files)

    def reaches(self, other: "Bounds") -> bool:
        return self.size >= other.size or self.files >= other.files

    def exceeds(self, other: "Bounds") -> bool:
        return self.size > other.size or self.files > other.files


_ANY = Bounds(sys.maxsize, sys.maxsize)


class _Stopped:
    """Inside, none of the processes runs; those they start while they are being stopped are stopped too. What was
    stopped before stays so after.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids, self._found, self._ours = pids, set[int](), set[int]()

    def __enter__(self) -> Self:
        new = [0]
        while new:
            self._found.update(self._pids())
            new = [pid for pid in self._found - self._ours if not is_stopped(pid)]
            for pid in new:  # also one that somebody has continued since
                self._ours.add(pid)
                _signal(pid, signal.SIGSTOP)
        return self

    def until_ended(self) -> None:
        """Waits, not for long, until somebody has ended all of them but the shell and its checkpoint."""
        end = time.monotonic() + _ENDED_S
        while time.monotonic() < end and sum(start_time(pid, zombies=False) is not None for pid in self._found) > 2:
            time.sleep(_TICK_S)

    def __exit__(self, *_: object) -> None:
        for pid in self._ours:
            _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _growth(then: dict[Path, Room], now: dict[Path, Room]) -> tuple[int, int]:
    """Bytes and files by which the file systems have grown, by anybody's writing; less than 0 where they shrank."""
    return (sum(now[place].used - room.used for place, room in then.items()),
            sum(now[place].used_files - room.used_files for place, room in then.items()))  # fmt: skip


def _until_full(rooms: dict[Path, Room]) -> float:
    """Seconds until the next look, in which nobody can fill one of them."""
    fills = [min(room.free / _BYTES_PER_S, room.free_files / _FILES_PER_S) for room in rooms.values()]
    return min(max(min(fills, default=0), _LEAST_LOOK_S), _LOOK_S)


def spelled(size: int) -> str:
    """`2 GiB`, `64 MiB`, `1000 bytes`: whole units only where nothing is lost beyond a tenth."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{round(size / unit, 1):g} {name}"
    return f"{size} bytes"
