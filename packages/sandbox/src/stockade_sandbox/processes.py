"""Processes of this machine, by what /proc says of them: proc_pid_stat(5), proc_pid_status(5)."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import platformdirs

COPIES, TRIAL, DOCTOR, BOX = "copies", "trial", "stockade-doctor", "box"
"""Kinds of private folders."""


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


def pids_of(pid: int) -> list[int]:
    """A process's number in each of its pid namespaces, ours first; empty when it is gone."""
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as status:
        return next(([int(word) for word in line.split()[1:]] for line in status if line.startswith(b"NSpid:")), [])
    return []


def private_folder(kind: str, base: Path | None = None) -> Path:
    """A new folder below `base` (the folder for temporary files), named after us. For its owner alone."""
    return Path(tempfile.mkdtemp(prefix=own_prefix(kind), dir=base))


def own_prefix(kind: str) -> str:
    """How the names of our folders of a kind begin: once we are gone, whoever finds one knows it."""
    pid = os.getpid()
    return f"{kind}-{pid}-{start_time(pid)}-"


def boxes_dir() -> Path:
    """Where sandboxes from Python have their folders, each named after the process that has it."""
    return Path(platformdirs.user_state_dir("stockade", appauthor=False)) / "boxes"
