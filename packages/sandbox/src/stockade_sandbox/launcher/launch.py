"""The launcher on the host side: its operation list, and what its errors mean. launch.c says what each one does."""

from collections.abc import Sequence

from stockade_sandbox.agent.binary import program_bytes, sealed_memfd

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


def launcher_bytes() -> bytes:
    """The launcher of this machine, verified. SandboxFailed when there is none, or it was changed."""
    return program_bytes("launcher/launch")


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
"""gVisor's own control group, mounted by gvisor.py until the launcher hides it."""
CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
"""What the operations for gVisor need."""


def in_a_container() -> list[str]:
    return [PROGRAM, *_AGENT]


def in_gvisor(uid: int, gid: int, processes: int) -> list[str]:
    """`processes` 0: without bound."""
    bound = ["write", PIDS, str(processes)] if processes else []
    hidden = [word for path in ("/sys", "/dev/net", "/proc/1") for word in ("tmpfs", path, _EMPTY)]
    return [PROGRAM, *bound, *hidden, "remove", "/dev/fuse", "bound", "ids", str(uid), str(gid), *_AGENT]
