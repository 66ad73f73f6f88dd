"""CPU of a process and of all it starts, by a control group."""

import os
import subprocess
from pathlib import Path

from bench.cpu_group import counted


def test_what_is_started_is_counted_and_we_are_moved_back() -> None:
    before = Path("/proc/self/cgroup").read_text()
    with counted() as cpu_s:
        begun = cpu_s()
        subprocess.run(["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done"], check=True)
        spent = cpu_s() - begun
    assert Path("/proc/self/cgroup").read_text() == before
    assert (spent > 0) == os.access("/sys/fs/cgroup/cpuacct/cgroup.procs", os.W_OK)
