"""Whether the process of a run is still there: it holds a lock in the run's folder, which the kernel lets go of."""

import contextlib
import os
from collections.abc import Iterator

from stockade.core.errors import StoreFailed
from stockade.paths import run_dir
from stockade_sandbox.locks import lock as flock
from stockade_sandbox.locks import open_lock, try_lock

_LOCK, _HOLDER = "lock", "sandbox"


@contextlib.contextmanager
def lock(run_id: str) -> Iterator[None]:
    """Inside, `is_locked(run_id)`. What is left of the run's folder goes when it is empty."""
    folder = run_dir(run_id)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = open_lock(folder / _LOCK)
    except OSError as error:
        raise StoreFailed(f"the run's folder {folder} cannot be made: {error.strerror}") from None
    try:
        flock(descriptor)
        yield
    finally:
        (folder / _LOCK).unlink(missing_ok=True)
        os.close(descriptor)
        cleanup(run_id)


def is_locked(run_id: str) -> bool:
    """True while the run is under way on this machine."""
    try:
        descriptor = os.open(run_dir(run_id) / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def status_now(run_id: str, status: str, driver: str | None = None) -> str:
    """`running` of a process that is gone is `interrupted`. `driver`: who holds the lease, here or elsewhere."""
    return "interrupted" if status == "running" and driver is None and not is_locked(run_id) else status


def cleanup(run_id: str) -> None:
    """Remove the run's folder when nothing but a dead lock, and a note of whose sandbox it was, is in it."""
    folder = run_dir(run_id)
    with contextlib.suppress(OSError):
        if not is_locked(run_id) and set(os.listdir(folder)) <= {_LOCK, _HOLDER}:
            for name in (_LOCK, _HOLDER):
                (folder / name).unlink(missing_ok=True)
        folder.rmdir()
