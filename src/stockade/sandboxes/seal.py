"""What happens inside before the agent starts, in sandboxes that others make: operations of the launcher.

An engine's own profile knows only the system calls that its libseccomp has names for; the filter that bubblewrap loads
is numbers, and is loaded here too. gVisor shows process one to all and gives it no bound on processes: its process one
is root of gVisor's kernel, never of the host's, until all this is done.
"""

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
