"""The launcher on the host side: its verified binary as a memfd, its operation list, and what its errors mean.

launch.c says what each operation does. The binary is run from the bytes that were hashed, so nothing can be swapped in
between; it is built by build.sh, and a test builds it again and wants the same bytes.
"""

import fcntl
import functools
import hashlib
import os
import platform
from collections.abc import Sequence
from importlib.resources import files

from stockade.core.errors import SandboxFailed

LAUNCHER_SHA256 = {"x86_64": "6fd741dccd77f70f6b615c892ce1390dba1ca81fe8ba7cc8b83c451d70092325"}
"""Of `launch-MACHINE`."""

FIRST_FD = 3
"""The operation `fds` gives its descriptors the numbers from here on."""

NOSUID, NODEV, RDONLY = 2, 4, 1
"""MOUNT_ATTR_ bits of mount_setattr(2)."""


class Operations:
    """An operation list under construction: `ops.add("tmpfs", path, options)`."""

    def __init__(self) -> None:
        self.argv: list[str] = []

    def add(self, name: str, *arguments: str | int) -> None:
        self.argv += [name, *(str(argument) for argument in arguments)]


def sealed_memfd(name: str, data: bytes, *, executable: bool = False) -> int:
    """A memfd with `data` that nobody can change any more, at its start; the caller closes it."""
    mfd_exec, mfd_noexec_seal = 0x10, 0x8  # Linux 6.3; older kernels refuse unknown flags
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        fd = os.memfd_create(name, flags | (mfd_exec if executable else mfd_noexec_seal))
    except OSError:
        fd = os.memfd_create(name, flags)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    except OSError:
        os.close(fd)
        raise
    return fd


def launcher_bytes() -> bytes:
    """The launcher, verified and from then on kept. SandboxFailed when it is not the binary we made."""
    machine = platform.machine()
    return _verified(machine, LAUNCHER_SHA256.get(machine))


@functools.cache
def _verified(machine: str, expected: str | None) -> bytes:
    if expected is None:
        raise SandboxFailed(
            f"no sandbox launcher is shipped for the architecture {machine}",
            "build it with stockade/sandboxes/launcher/build.sh and add its sha256 to launch.py",
        )
    try:
        data = (files(__package__) / f"launch-{machine}").read_bytes()
    except OSError as error:
        raise SandboxFailed(
            f"the sandbox launcher cannot be read: {error.strerror}", "install stockade again"
        ) from error
    if hashlib.sha256(data).hexdigest() != expected:
        raise SandboxFailed(
            f"the sandbox launcher launch-{machine} is not the one that was shipped", "install stockade again"
        )
    return data


def launcher_memfd() -> int:
    """The launcher in a sealed memfd, ready to be run."""
    return sealed_memfd("launch", launcher_bytes(), executable=True)


def identity_but(on_disk: int, shown: int) -> str:
    """An id map, as idmap wants it: `on_disk` appears as `shown`, every other id below 2^32-1 as itself.

    `shown` on disk has no image left and appears as nobody's.
    """
    if on_disk == shown:
        return f"0 0 {2**32 - 1}\n"
    low, high = sorted((on_disk, shown))
    spans = [(0, low), (low + 1, high), (high + 1, 2**32 - 1)]
    lines = [f"{on_disk} {shown} 1"] + [f"{start} {start} {end - start}" for start, end in spans if end > start]
    return "".join(f"{line}\n" for line in lines)


def complaint(stderr: str) -> tuple[str, str] | None:
    """(operation, reason) of the launcher's own failure line, when there is one."""
    for line in stderr.splitlines():
        if line.startswith("launch: "):
            operation, _, reason = line.removeprefix("launch: ").partition(" ")
            return operation, reason
    return None


def command_line(operations: Sequence[str], program: Sequence[str]) -> list[str]:
    """The launcher's arguments after its name."""
    return [*operations, "exec", *program]


# Inside, before the agent starts, in sandboxes that others make: an engine's own profile knows only the system calls
# that its libseccomp has names for; the filter that bubblewrap loads is numbers, and is loaded here too. gVisor shows
# process one to all and gives it no bound on processes: its process one is root of gVisor's kernel, never of the
# host's, until all this is done.
OWN = "/.stockade"
"""Where the agent, this program and its filter are seen inside, read-only."""
PROGRAM = f"{OWN}/launch"
FILTER = f"{OWN}/filter"
_AGENT = ("keep", "filter", FILTER, "exec", f"{OWN}/agent", "0")
_EMPTY = "size=4k,mode=0555"
PIDS = "/sys/fs/cgroup/pids/pids.max"
"""gVisor's own control group, mounted by oci.py until the launcher hides it."""
CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
"""What the operations for gVisor need."""


def in_a_container() -> list[str]:
    return [PROGRAM, *_AGENT]


def in_gvisor(uid: int, gid: int, processes: int) -> list[str]:
    """`processes` 0: without bound."""
    bound = ["write", PIDS, str(processes)] if processes else []
    hidden = [word for path in ("/sys", "/dev/net", "/proc/1") for word in ("tmpfs", path, _EMPTY)]
    return [PROGRAM, *bound, *hidden, "remove", "/dev/fuse", "bound", "ids", str(uid), str(gid), *_AGENT]
