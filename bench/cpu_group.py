"""CPU of this process and all that it starts, reaped by us or not: a control group of version 1 counts it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_HOME = Path("/sys/fs/cgroup/cpuacct")


@contextmanager
def counted() -> Iterator[Callable[[], float]]:
    """A function that gives seconds so far; always 0 where no such group can be made. What lives on is moved back."""
    if not os.access(_HOME / "cgroup.procs", os.W_OK):
        yield lambda: 0.0
        return
    group = _HOME / f"stockade-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield lambda: int((group / "cpuacct.usage").read_text()) / 1e9
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            (_HOME / "cgroup.procs").write_text(pid)
        group.rmdir()
