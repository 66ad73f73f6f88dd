"""A disk whose power can be cut: what was not yet synced or written back is gone, as on a real one.

An ext4 file system in a file, behind a loop device. The file is the disk: it holds what the file system has sent to it,
and nothing of what only the page cache knows.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cli.conftest import descendants

_HOLD = 'mount -o loop,commit=300 "$1" "$2" && echo mounted && exec sleep infinity'


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[tuple[str, ...]]:
    """Inside, `image` is mounted on `place` for whom is started with what this gives before its argv, and nobody else.

    A new image is made where there is none.
    """
    if not image.exists():
        with image.open("wb") as file:
            file.truncate(32 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    place.mkdir(exist_ok=True)
    holder = subprocess.Popen(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", _HOLD, "sh", str(image), str(place)],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"mounted\n"
        yield ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--")
    finally:
        holder.kill()
        holder.communicate()


def cut(image: Path, process: "subprocess.Popen[bytes]") -> bytes:
    """The disk as it is at this moment; `process` and all below it are stopped for it, and killed."""
    pids = [process.pid, *descendants(process.pid)]
    _send(pids, signal.SIGSTOP)
    left = image.read_bytes()
    while (again := image.read_bytes()) != left:  # the kernel was writing
        left = again
    _send([*pids, *descendants(process.pid)], signal.SIGKILL)
    process.wait()
    return left


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
