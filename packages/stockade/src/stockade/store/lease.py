"""Who drives a run, and whether they are still there.

On the machine and in the pid namespace where the driver runs, its process says so: a stopped or sleeping one is still
there, one whose id now belongs to another process is not. From anywhere else only time tells: `LEASE_S` without a sign.
"""

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from stockade.core.data import Data
from stockade_sandbox.processes import start_time

LEASE_S = 60.0
BEAT_S = 15.0


class Holder(Data):
    """A process. `began` in clock ticks since boot; `boot` and `pids` name the running kernel and the pid namespace.

    `key` tells the leases of one process apart: one that could not be given back is nobody's.
    """

    host: str
    pid: int
    began: int
    boot: str = ""
    pids: str = ""
    key: str = ""

    @property
    def words(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_alive(self, silent_s: float) -> bool:
        """`silent_s`: how long ago it last gave a sign."""
        mine = this_process()
        if self.boot and (self.boot, self.pids) == (mine.boot, mine.pids):
            if (self.pid, self.began) == (mine.pid, mine.began):
                return self.key in _KEYS
            return start_time(self.pid, zombies=False) == self.began
        return silent_s < LEASE_S


_KEYS: set[str] = set()


@contextmanager
def holding() -> Iterator[Holder]:
    """Inside, what this gives is alive."""
    key = secrets.token_hex(8)
    _KEYS.add(key)
    try:
        yield this_process().model_copy(update={"key": key})
    finally:
        _KEYS.discard(key)


@cache
def _of(pid: int) -> Holder:
    return Holder(
        host=socket.gethostname(), pid=pid, began=start_time(pid, zombies=False) or 0,
        boot=_read("/proc/sys/kernel/random/boot_id"), pids=_link("/proc/self/ns/pid"),
    )  # fmt: skip


def this_process() -> Holder:
    return _of(os.getpid())


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
