"""What an attack does in a backend other than the default, where it is not simply held, and why: the one place.

Strict: an entry that is not so any more fails the tests. Bubblewrap has none. SECURITY.md says it in words.
"""

from typing import Literal, NamedTuple

How = Literal["through", "ends", "unmade"]
"""It gets through; holding it ends the sandbox, by name; or the backend keeps it from being made at all."""


class Known(NamedTuple):
    backend: str
    attempt: str
    how: How
    reason: str


_NO_MASK = (
    "docker's client has no option to hide files of /proc (its API has), and runc mounts nothing over them; "
    "they tell of the machine and can only be read"
)
_WHOLE = "gVisor bounds memory for the sandbox as a whole, which ends when it takes more"
_NO_NODES = "gVisor makes no such file in a folder of the host"
_READS = "gVisor runs no program that it may not read, and knows no other way to close the shell's descriptors and maps"

KNOWN = (
    Known("docker", "kernel command line", "through", _NO_MASK),
    Known("docker", "kernel symbols", "through", f"names, without addresses: {_NO_MASK}"),
    Known("docker", "kernel configuration", "through", _NO_MASK),
    Known("docker", "memory map of the machine", "through", f"kinds, without addresses: {_NO_MASK}"),
    Known("docker", "disks of the machine", "through", _NO_MASK),
    Known("gvisor", "300 processes", "ends", _WHOLE),
    Known("gvisor", "600 MB of memory", "ends", _WHOLE),
    Known("gvisor", "400 MB of memory in four processes", "ends", _WHOLE),
    Known("gvisor", "memory that is shared", "ends", _WHOLE),
    Known("gvisor", "a named pipe", "unmade", _NO_NODES),
    Known("gvisor", "a socket", "unmade", _NO_NODES),
    Known("gvisor", "descriptors of the shell", "through", _READS),
    Known("gvisor", "descriptors of a thread of the shell", "through", _READS),
    Known("gvisor", "writing to a descriptor of the shell", "through", _READS),
    Known("gvisor", "writing to a descriptor of a fork of the shell", "through", _READS),
    Known("gvisor", "descriptors of the shell by their numbers", "through", _READS),
    Known("gvisor", "environment of the shell", "through", _READS),
    Known("gvisor", "map of the shell", "through", _READS),
)


def known(backend: str, attempt: str) -> Known | None:
    return next((one for one in KNOWN if (one.backend, one.attempt) == (backend, attempt)), None)
