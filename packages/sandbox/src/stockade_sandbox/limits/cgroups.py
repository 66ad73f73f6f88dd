"""Limits held by control groups, where this machine lets us make them: memory, processes and processor time of a
sandbox in total.

cgroup v1: a group below our own in the hierarchies `memory` and `pids`. cgroup v2: a group beside our own (a group with
processes in it may not hand on controllers), where those controllers are handed down and the parent is writable. What
is not held by a control group is bounded for each process by rlimits, which the agent sets.

A group is named after the process that made it and that process's start time: one left behind is known for stale.
"""

import errno
import functools
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stockade_sandbox.errors import PolicyNotEnforceable
from stockade_sandbox.policy import Limits, file_limit, margin
from stockade_sandbox.processes import start_time

_NAME = re.compile(r"stockade-(\d+)-(\d+)-[0-9a-f]+")
_ENDED = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
CONTROLLERS = ("memory", "pids", "cpu")
_PERIOD_US = 100_000
"""Of processor time: in each, as many microseconds of it as `cpus` allows; the least the kernel takes is 1000."""
_REMOVE_TRIES = 1500


class CgroupParent(NamedTuple):
    """A directory in which a group can be made, for these controllers."""

    path: Path
    controllers: tuple[str, ...]
    version: int


class Groups(NamedTuple):
    """The groups of one sandbox: directories to join, and which controllers hold in them."""

    folders: tuple[Path, ...]
    controllers: frozenset[str]


def ended_for_memory(groups: Groups) -> int:
    """How many processes the kernel has ended at the limit of memory."""
    for folder in groups.folders:
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError):
                if found := _ENDED.search((folder / name).read_text()):
                    return int(found[1])
    return 0


@functools.lru_cache(maxsize=1)
def _maker(pid: int) -> str:
    return f"stockade-{pid}-{start_time(pid)}"


def _group_name() -> str:
    return f"{_maker(os.getpid())}-{secrets.token_hex(4)}"


def _mounts(proc: Path) -> Iterator[tuple[str, str, str, list[str]]]:
    """(root, mount point, type, super options) of every control group mount; see proc(5), mountinfo."""
    for line in (proc / "self/mountinfo").read_text(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, rest = after.partition(" ")
        if kind in ("cgroup", "cgroup2"):
            fields = before.split()
            yield fields[3], fields[4], kind, rest.split()[-1].split(",")


def _own_groups(text: str) -> dict[str, str]:
    """Our path in each hierarchy, by controller; "" is v2's. `text` is of /proc/self/cgroup."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))
    return paths


def _below(mount_root: str, mount_point: str, path: str) -> Path:
    inner = path.removeprefix(mount_root) if mount_root != "/" and path.startswith(mount_root) else path
    return Path(mount_point + inner)


def places(proc: Path = Path("/proc")) -> list[CgroupParent]:
    """Where groups can be made here; empty when nowhere. Looked for again when we are in another group than before."""
    try:
        with open(f"{proc}/self/cgroup") as file:
            return list(_places(proc, file.read()))
    except OSError:
        return []


@functools.lru_cache(maxsize=4)
def _places(proc: Path, own_text: str) -> tuple[CgroupParent, ...]:
    own, mounts = _own_groups(own_text), list(_mounts(proc))
    found = []
    for mount_root, mount_point, kind, options in mounts:
        if kind == "cgroup":
            for controller in set(CONTROLLERS) & set(options) & set(own):
                path = _below(mount_root, mount_point, own[controller])
                if os.access(path, os.W_OK):
                    found.append(CgroupParent(path, (controller,), 1))
        elif "" in own:
            path = _below(mount_root, mount_point, own[""])
            parent = path if own[""] in ("/", mount_root) else path.parent
            handed = _words(parent / "cgroup.subtree_control")
            held = tuple(name for name in CONTROLLERS if name in handed)
            if held and os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK):
                found.append(CgroupParent(parent, held, 2))
    return tuple(sorted(found, key=lambda place: str(place.path)))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def settings(place: CgroupParent, limits: Limits) -> list[tuple[str, str]]:
    """(file, value) to write in a group; files that a kernel does not have are marked with a leading `?`."""
    wanted: list[tuple[str, str]] = []
    memory = str(limits.memory_bytes)
    if "memory" in place.controllers and limits.memory_bytes:
        if place.version == 1:
            wanted += [("memory.limit_in_bytes", memory), ("?memory.memsw.limit_in_bytes", memory)]
        else:
            wanted += [("memory.max", memory), ("?memory.swap.max", "0"), ("?memory.oom.group", "0")]
    if "cpu" in place.controllers and limits.cpus:
        quota = max(round(limits.cpus * _PERIOD_US), 1000)
        v1 = [("cpu.cfs_period_us", str(_PERIOD_US)), ("cpu.cfs_quota_us", str(quota))]
        wanted += v1 if place.version == 1 else [("cpu.max", f"{quota} {_PERIOD_US}")]
    if "pids" in place.controllers and limits.processes:
        wanted.append(("pids.max", str(limits.processes)))
    return wanted


def make_groups(limits: Limits, where: list[CgroupParent] | None = None) -> Groups:
    """Groups with the limits set. A place that refuses is left out: what holds is in `controllers`.

    PolicyNotEnforceable when processor time is limited and cannot be.
    """
    folders, held = [], set()
    name = _group_name()
    for place in places() if where is None else where:
        wanted = settings(place, limits)
        if not wanted:
            continue
        folder = place.path / name
        try:
            os.mkdir(folder)
        except OSError:
            continue
        try:
            for file, value in wanted:
                _set(f"{folder}/{file.removeprefix('?')}", value, optional=file.startswith("?"))
        except OSError:
            with suppress(OSError):
                folder.rmdir()
            continue
        folders.append(folder)
        held |= set(place.controllers)
    groups = Groups(tuple(folders), frozenset(held))
    if limits.cpus and "cpu" not in held:
        remove_groups(groups)
        hint = "run under systemd with Delegate=yes, or as root; docker and podman have control groups of their own"
        raise PolicyNotEnforceable("cpus", "no control group for processor time can be made here", hint)
    return groups


def _set(path: str, value: str, *, optional: bool) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | (0 if optional else os.O_CREAT), 0o644)
    except FileNotFoundError:
        if not optional:
            raise
        return
    try:
        os.write(file, value.encode())
    finally:
        os.close(file)


def remove_groups(groups: Groups) -> list[Path]:
    """Removes them once their processes are gone; returns those that could not be removed within 15 s. Blocks."""
    left = list(groups.folders)
    for _ in range(_REMOVE_TRIES):
        left = [folder for folder in left if not _removed(folder)]
        if not left:
            break
        time.sleep(0.01)  # the kernel offers no event for "the last zombie of this group is reaped" in v1
    return left


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise
    return True


def sweep(where: list[CgroupParent] | None = None, started: Callable[[int], int | None] = start_time) -> list[Path]:
    """Removes groups whose makers are gone; returns what was removed."""
    removed = []
    for folder in stale(where, started):
        with suppress(OSError):  # somebody else's, or a process of it is still ending
            folder.rmdir()
            removed.append(folder)
    return removed


def stale(where: list[CgroupParent] | None = None, started: Callable[[int], int | None] = start_time) -> Iterator[Path]:
    """Groups whose makers are gone."""
    started = functools.cache(started)  # one process may have made hundreds
    for place in places() if where is None else where:
        for name in _names(place.path):
            found = _NAME.fullmatch(name)
            if found and started(int(found[1])) != int(found[2]):
                yield place.path / name


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def guarantees(limits: Limits, held: frozenset[str], scratch: int) -> tuple[str, ...]:
    """What is bounded, and as a total or for each process only: one line each, for people."""
    lines = []
    if limits.memory_bytes:
        scope = "in total" if "memory" in held else "for each process, not as a total (no memory control group here)"
        lines.append(f"memory: {limits.memory_bytes} bytes {scope}")
    if limits.cpus:
        lines.append(f"processor time: {limits.cpus:g} processors in total")
    if limits.processes:
        lines.append(f"processes: {limits.processes} in total")
    if scratch:
        lines.append(f"scratch (/tmp, /var/tmp, /run, /dev/shm, home): {scratch} bytes in total")
    if limits.file_bytes:
        lines.append(f"a file: {limits.file_bytes} bytes")
    if limits.disk_bytes:
        files = file_limit(limits.disk_bytes)
        more = margin(limits.disk_bytes)
        lines.append(
            f"written folders: {limits.disk_bytes} bytes and {files} files, watched: at most {more} bytes more"
        )
    lines.append("the host's disk: what runs ends before it is full, watched, not kernel-held")
    return tuple(lines)
