"""The sandbox's two C programs, agent and launcher, for both architectures: checked, and in sealed memory files.

What runs is the bytes that were hashed, and the sandbox sees no path to them. `make agent` builds them; a test builds
each again and wants the same bytes.
"""

import fcntl
import functools
import hashlib
import os
import platform
from pathlib import Path

from stockade_sandbox.errors import SandboxFailed

SHA256 = {
    "agent/agent-x86_64": "27367feaa1ce1246f79d175d3f6250618dce498a3c15a6146a46a3d40b65f65d",
    "agent/agent-aarch64": "767ef96986711051c01fc040dcb73a76a5e490da7ba33c3e9fda1a7cc654612c",
    "launcher/launch-x86_64": "6d6e6bf73fecdbc258c9083d4ddf6e1c4a44cca15db9417730a41dbb8aa26bfb",
    "launcher/launch-aarch64": "1d2caa2a613442756ed758b71bf757d8947fb64c97d7d96c736ef8062b359bc8",
}
FOLDER = Path(__file__).parents[1]
"""The keys of SHA256 are paths below it."""


def program_bytes(program: str, machine: str | None = None) -> bytes:
    """`agent/agent` or `launcher/launch` for `machine` (default: this one).

    SandboxFailed when none is shipped for it, or the file is not the one that was built.
    """
    name = f"{program}-{machine or platform.machine()}"
    return _verified(name, SHA256.get(name))


@functools.cache
def _verified(name: str, expected: str | None) -> bytes:
    if expected is None:
        raise SandboxFailed(f"no {name} is shipped", f"sandboxes run on {' and '.join(_machines())}")
    try:
        data = (FOLDER / name).read_bytes()
    except OSError as error:
        raise SandboxFailed(f"{FOLDER / name} cannot be read: {error.strerror}", "install Stockade again") from error
    if hashlib.sha256(data).hexdigest() != expected:
        raise SandboxFailed(f"{FOLDER / name} was changed", "install Stockade again, or run `make agent`")
    return data


def _machines() -> list[str]:
    return sorted({name.rpartition("-")[2] for name in SHA256})


def agent_memfd(machine: str | None = None) -> int:
    """The agent, to be executed as /proc/self/fd/N; the caller closes it. SandboxFailed as `program_bytes`."""
    try:
        return sealed_memfd("agent", program_bytes("agent/agent", machine), executable=True)
    except OSError as error:
        raise SandboxFailed(f"the agent cannot be loaded into memory: {error.strerror}") from error


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
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    except OSError:
        os.close(fd)
        raise
    return fd
