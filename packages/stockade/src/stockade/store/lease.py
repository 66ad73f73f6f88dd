"""Who drives a run, and whether they are still there.

On the machine and in the pid namespace where the driver runs, its process says so: a stopped or sleeping one is still
there, one whose id now belongs to another process is not. From anywhere else only time tells: `LEASE_S` without a sign.
"""

import json
import math
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from stockade.core.errors import StoreFailed
from stockade_sandbox.processes import start_time

LEASE_S = 60.0
BEAT_S = 15.0
_RECOVER = "docs/store.md, Damage, says how to read the rest; stockade runs rm --force removes the run"


@dataclass(frozen=True, slots=True)
class Holder:
    """A process. `began` in clock ticks since boot; `boot` and `pids` name the running kernel and the pid namespace.

    `key` tells the leases of one process apart: one that could not be given back is nobody's.
    """

    host: str
    pid: int
    began: int
    boot: str = ""
    pids: str = ""
    key: str = ""

    @classmethod
    def of_json(cls, text: str) -> "Holder":
        """ValueError when it is none."""
        value = json.loads(text)
        kinds = {field.name: int if field.name in ("pid", "began") else str for field in fields(cls)}
        if not isinstance(value, dict) or not all(type(inner) is kinds.get(name) for name, inner in value.items()):
            raise ValueError("another field, or of another type")
        try:
            return cls(**value)
        except TypeError as error:
            raise ValueError(str(error)) from None

    @property
    def json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

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


@dataclass(frozen=True, slots=True)
class Lease:
    """A row of `leases`. `silent_s`: how long ago its holder last gave a sign."""

    fence: int
    holder: Holder | None
    silent_s: float

    @classmethod
    def of_row(cls, run_id: str, row: Sequence[Any], place: str) -> "Lease":
        """StoreFailed when it is damaged: whether somebody drives the run cannot be told then."""
        fence, holder, last_sign, silent_s = row
        try:
            if isinstance(fence, int) and isinstance(last_sign, float) and math.isfinite(last_sign):
                return cls(fence, None if holder is None else Holder.of_json(str(holder)), silent_s)
        except ValueError:
            pass
        raise StoreFailed(f"run {run_id}: its lease in {place} is damaged", _RECOVER)

    @property
    def driver(self) -> str | None:
        """Who holds it, in words, if they are still there."""
        return self.holder.words if self.holder is not None and self.holder.is_alive(self.silent_s) else None


_KEYS: set[str] = set()


@contextmanager
def holding() -> Iterator[Holder]:
    """Inside, what this gives is alive."""
    key = secrets.token_hex(8)
    _KEYS.add(key)
    try:
        yield replace(this_process(), key=key)
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
