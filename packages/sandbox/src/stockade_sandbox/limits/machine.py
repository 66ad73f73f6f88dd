"""Bounds for a sandbox of which nobody said any, by what this machine has."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from stockade_sandbox.limits.cgroups import places
from stockade_sandbox.policy import GIB, Limits

_MOST_DISK = 16 * GIB
_OF_A_PROCESSOR = 64
"""Processes and threads: test runners and compilers start as many workers as there are processors, each of a dozen."""


def usual_limits(written: Path, root: Path = Path("/"), processors: int | None = None) -> dict[str, int]:
    """By their names in `Limits`, never below those: memory, half of the machine's where a control group holds it in
    total; disk, an eighth of what is free where the folder `written` is, or will be, up to 16 GiB; processes.
    """
    least, count = Limits(), processors or len(os.sched_getaffinity(0))
    held = any("memory" in place.controllers for place in places(root / "proc"))
    there = next(place for place in (written, *written.parents) if os.path.exists(place))
    found = {
        "memory_bytes": min(_memory(root), default=0) // 2 if held else 0,
        "disk_bytes": min(shutil.disk_usage(there).free // 8, _MOST_DISK),
        "processes": _OF_A_PROCESSOR * count,
    }
    return {name: max(value, getattr(least, name)) for name, value in found.items()}


def _memory(root: Path) -> Iterator[int]:
    """Of the machine, and what the control groups leave to this process, in bytes."""
    for name in ("proc/meminfo", "sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            found = re.match(r"(?:MemTotal:\s+)?(\d+)( kB)?\s", (root / name).read_text())
        except OSError:
            continue
        if found:
            yield int(found[1]) * (1024 if found[2] else 1)
