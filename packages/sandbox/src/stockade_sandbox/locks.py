"""Locks on open files (flock(2)): held until the last opener closes it, and by nobody who is dead."""

import fcntl
import os
import time
from pathlib import Path

_AGAIN_S = 0.02


def open_lock(path: Path) -> int:
    """A file that is there to be locked, made where there is none. OSError for a symlink."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def lock(descriptor: int, *, shared: bool = False) -> None:
    """Wait until this open file is ours alone (`shared`: nobody else's alone), until its last opener closes it."""
    fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Whether it is so now, without waiting for another who holds its lock."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_within(descriptor: int, patience_s: float, *, shared: bool = False) -> bool:
    """Whether it is so before that time is over."""
    until = time.monotonic() + patience_s
    while not try_lock(descriptor, shared=shared):
        if time.monotonic() > until:
            return False
        time.sleep(_AGAIN_S)
    return True


def unlock(descriptor: int) -> None:
    """Before it is closed: a child that another thread forks at this moment has the file open too, and would keep the
    lock until it becomes its program.
    """
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def release(descriptor: int) -> None:
    """Unlock and close it."""
    try:
        unlock(descriptor)
    finally:
        os.close(descriptor)
