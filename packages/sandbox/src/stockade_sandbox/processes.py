"""Processes of this machine, by what /proc says of them: proc_pid_stat(5), proc_pid_status(5)."""

import ctypes
import errno
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import platformdirs

from stockade_sandbox.errors import UsageError

COPIES, TRIAL, DOCTOR, BOX = "copies", "trial", "stockade-doctor", "box"
"""Kinds of private folders."""
_PIDFD_GETFD = 438
"""The number of the call, on every architecture."""
_FREEZE_S = 10.0
_MOMENTS = 20


def start_time(pid: int, *, zombies: bool = True) -> int | None:
    """Clock ticks since boot at which a process started; None when there is none.

    With its pid it names a process for good. Without `zombies`, one that has ended and was not looked at is none.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20 or (not zombies and fields[0] in (b"Z", b"X")):
        return None
    return int(fields[19])


def descendants(pid: int) -> Iterator[int]:
    """Of a process, itself included. Every process of a pid namespace is one of its guard's."""
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        yield one
        with suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                with suppress(OSError):
                    waiting += [int(word) for word in Path(f"/proc/{one}/task/{task}/children").read_text().split()]


def open_files(pid: int) -> Iterator[tuple[str, str]]:
    """Paths below /proc of each open file of a process and of what proc_pid_fdinfo(5) says of it, good until the next.

    The descriptors of a sandbox's shell are closed to lists, to an ordinary user's too: copies of them are taken, one
    by one, by pidfd_getfd(2). OSError where that is not possible.
    """
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        yield from taken_files(pid)
        return
    for name in names:
        yield f"/proc/{pid}/fd/{name}", f"/proc/{pid}/fdinfo/{name}"


def taken_files(pid: int) -> Iterator[tuple[str, str]]:
    """As `open_files`, by copies of the descriptors."""
    with open(f"/proc/{pid}/status", "rb") as status:
        size = next((int(line.split()[1]) for line in status if line.startswith(b"FDSize:")), 0)
    handle, call = os.pidfd_open(pid), ctypes.CDLL(None, use_errno=True).syscall
    try:
        for number in range(size):
            fd = call(_PIDFD_GETFD, handle, number, 0)
            if fd >= 0:
                try:
                    yield f"/proc/self/fd/{fd}", f"/proc/self/fdinfo/{fd}"
                finally:
                    os.close(fd)
            elif (error := ctypes.get_errno()) != errno.EBADF:
                raise OSError(error, os.strerror(error))
    finally:
        os.close(handle)


def pids_of(pid: int) -> list[int]:
    """A process's number in each of its pid namespaces, ours first; empty when it is gone."""
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as status:
        return next(([int(word) for word in line.split()[1:]] for line in status if line.startswith(b"NSpid:")), [])
    return []


def _state(pid: int) -> str:
    """Its letter of proc_pid_stat(5); X when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return "X"


def is_stopped(pid: int) -> bool:
    """As a job is. One whose guard traces it (launcher/trace.c) looks so for a moment whenever it starts something."""
    for _ in range(_MOMENTS):
        if (state := _state(pid)) != "t":
            return state == "T"
        time.sleep(0.001)
    return True


def _rests(pid: int) -> bool:
    """It is stopped or gone, or waits in vfork(2) for a child that is."""
    state = _state(pid)
    return state in "TtZX" or (state == "D" and any(_rests(child) for child in descendants(pid) if child != pid))


@contextmanager
def frozen(guard: int) -> Iterator[None]:
    """Inside, all below `guard` stands still but the first process of each pid namespace, which is the agent. What was
    stopped before stays so after. TimeoutError when it does not come to rest. Blocks.
    """
    ours, deadline = dict[int, int | None](), time.monotonic() + _FREEZE_S
    try:
        while True:
            below = [pid for pid in descendants(guard) if pid != guard and pids_of(pid)[-1:] != [1]]
            new = [pid for pid in below if pid not in ours and not is_stopped(pid)]
            for pid in new:  # also one that looked stopped before: its guard was slow
                ours[pid] = start_time(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            if not new and all(_rests(pid) for pid in below):
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"not at rest within {_FREEZE_S:g} s")
            time.sleep(0.001)
        yield
    finally:
        for pid, started in ours.items():
            if start_time(pid) == started:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def private_folder(kind: str, base: Path | None = None) -> Path:
    """A new folder below `base` (the folder for temporary files), named after us. For its owner alone."""
    return Path(tempfile.mkdtemp(prefix=own_prefix(kind), dir=base))


def own_prefix(kind: str) -> str:
    """How the names of our folders of a kind begin: once we are gone, whoever finds one knows it."""
    pid = os.getpid()
    return f"{kind}-{pid}-{start_time(pid)}-"


def boxes_dir() -> Path:
    """Where sandboxes from Python have their folders, each named after the process that has it."""
    return own_folder("state") / "boxes"


def own_folder(kind: Literal["state", "config", "data", "cache"], name: str = "stockade") -> Path:
    """`$XDG_STATE_HOME/stockade` and the like. UsageError where nobody says where the user's home is."""
    try:
        found: str = getattr(platformdirs, f"user_{kind}_dir")(name, appauthor=False)
    except RuntimeError:  # newer versions of it say so themselves
        found = "~"
    if found.startswith("~"):  # it would lie in the current folder
        what = f"nobody says where your home is: HOME is not set, and /etc/passwd has no user {os.geteuid()}"
        raise UsageError(what, "export HOME=FOLDER, one of yours")
    return Path(found)
