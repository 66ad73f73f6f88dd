"""CPU and memory of other processes, read from the kernel without their help. Linux only."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _CHILDREN_USER, _CHILDREN_SYSTEM = 1, 13, 14
"""Fields of /proc/PID/stat after the name; proc_pid_stat(5)."""


def cpu_clock(pid: int) -> int:
    """The clock id of a process's CPU time, all its threads; clock_getcpuclockid(3) computes the same."""
    return (~pid << 3) | 2


def peak_rss(pid: int) -> int:
    """Bytes. The process's own peak since its exec, which ru_maxrss is not."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def descendants(pid: int) -> set[int]:
    """All living ones of `pid`, itself not included."""
    return set(_family(pid, dict(_stats())))


def living_cpu_s(pid: int) -> float:
    """CPU of all living descendants of `pid` and of the children those have waited for.

    wait4 never tells of these: what a sandbox's first process leaves behind is reaped by the kernel.
    """
    fields, found = dict(_stats()), 0.0
    for child in _family(pid, fields):
        with suppress(OSError):
            found += time.clock_gettime(cpu_clock(child))
            found += (int(fields[child][_CHILDREN_USER]) + int(fields[child][_CHILDREN_SYSTEM])) / _TICKS
    return found


def _family(pid: int, fields: dict[int, list[str]]) -> set[int]:
    family = {pid}
    while more := {child for child, stat in fields.items() if int(stat[_PARENT]) in family} - family:
        family |= more
    return family - {pid}


def _stats() -> Iterator[tuple[int, list[str]]]:
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit():
                yield int(name), Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
