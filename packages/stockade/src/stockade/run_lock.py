"""Whether the process of a run is still there: it holds a lock in the run's folder, which the kernel lets go of."""

import contextlib
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stockade.core.errors import RunTaken, StoreFailed
from stockade.paths import run_dir
from stockade_sandbox.locks import lock as flock
from stockade_sandbox.locks import open_lock, release, try_lock
from stockade_sandbox.processes import start_time

_LOCK, _HOLDER = "lock", "sandbox"
LOG, CONTROL, LIVE = "log", "control", "live"
"""Of a detached run: all that it writes, and the socket at which its user attaches; of any other the socket that tells
what its commands write."""
_LOOK_S, _AGAIN_S = 1.0, 0.01
"""A look at a lock has it for a moment."""


@dataclass(frozen=True, slots=True)
class Driver:
    """The process of a run that ends it in order at SIGTERM. `pidfd` is readable when it is gone."""

    pidfd: int
    detached: bool


@contextlib.contextmanager
def lock(run_id: str, *, stoppable: bool = False, detached: bool = False, wait: bool = True) -> Iterator[None]:
    """Inside, `is_locked(run_id)`. What is left of the run's folder goes when it is empty.

    `stoppable`: this process has no other run, and ends it in order at SIGTERM. Without `wait` RunTaken for a run that
    another has for longer than a look at it takes.
    """
    folder = run_dir(run_id)
    try:
        descriptor = _take(folder / _LOCK, math.inf if wait else _LOOK_S)
    except OSError as error:
        raise StoreFailed(f"the run's folder {folder} cannot be made: {error.strerror}") from None
    if descriptor is None:
        raise RunTaken(f"run {run_id} is under way in another process", "wait for its end, or stop it")
    try:
        words = f"{os.getpid()} {start_time(os.getpid())} {detached:d}" if stoppable else ""
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, words.encode())
        except OSError as error:
            raise StoreFailed(f"the run's folder {folder} cannot be written: {error.strerror}") from None
        yield
    finally:
        for name in (_LOCK, LOG, CONTROL, LIVE):
            (folder / name).unlink(missing_ok=True)
        release(descriptor)
        cleanup(run_id)


def _take(path: Path, patience_s: float) -> int | None:
    """The lock file, open and locked; None when another has it all that time."""
    until = time.monotonic() + patience_s
    while True:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = open_lock(path)
        if patience_s == math.inf:
            flock(descriptor)
        elif not try_lock(descriptor):
            os.close(descriptor)
            if time.monotonic() > until:
                return None
            time.sleep(_AGAIN_S)
            continue
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)  # who had it has removed it since


def is_locked(run_id: str) -> bool:
    """True while the run is under way on this machine."""
    try:
        descriptor = os.open(run_dir(run_id) / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        release(descriptor)


def driver_of(run_id: str) -> Driver | None:
    """Who drives it, where that is a process of this machine that can be told to stop; else None."""
    try:
        pid, began, detached = map(int, (run_dir(run_id) / _LOCK).read_text().split())
        pidfd = os.pidfd_open(pid)
    except (OSError, ValueError):
        return None
    if start_time(pid, zombies=False) == began and is_locked(run_id):
        return Driver(pidfd, bool(detached))
    os.close(pidfd)
    return None


def status_now(run_id: str, status: str, driver: str | None = None) -> str:
    """`running` of a process that is gone is `interrupted`. `driver`: who holds the lease, here or elsewhere."""
    return "interrupted" if status == "running" and driver is None and not is_locked(run_id) else status


def cleanup(run_id: str) -> None:
    """Remove the run's folder when nothing but what a process that is gone left of itself is in it."""
    folder, left = run_dir(run_id), (_LOCK, _HOLDER, LOG, CONTROL, LIVE)
    with contextlib.suppress(OSError):
        if not is_locked(run_id) and set(os.listdir(folder)) <= {*left}:
            for name in left:
                (folder / name).unlink(missing_ok=True)
        folder.rmdir()
