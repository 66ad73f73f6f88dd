"""The agent's program, checked, in a sealed memory file: the sandbox never sees a path to it."""

import fcntl
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from stockade.core.errors import SandboxFailed

SHA256 = {"x86_64": "4c2d2a8e790a3ed9e0aeb2cc86963b05df609a4653321c957612f59c0ce9edf4"}
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
FOLDER = Path(__file__).parent


def agent_memfd() -> int:
    """A descriptor of the program, to be executed as /proc/self/fd/N; the caller closes it.

    SandboxFailed when the shipped program is not the one that was built, or none can be had for this machine.
    """
    machine = platform.machine()
    data = _program(machine, SHA256.get(machine))
    descriptor = os.memfd_create("agent", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        os.close(descriptor)
        raise SandboxFailed(f"the agent cannot be loaded into memory: {error.strerror}") from error
    return descriptor


@functools.cache
def _program(machine: str, expected: str | None) -> bytes:
    if expected is None:
        return _built(machine)
    path = FOLDER / f"agent-{machine}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SandboxFailed(f"the agent is missing: {error.strerror}: {path}", "install Stockade again") from error
    if hashlib.sha256(data).hexdigest() != expected:
        raise SandboxFailed(f"the agent was changed: {path}", "install Stockade again, or run `make agent`")
    return data


def _built(machine: str) -> bytes:
    """For a machine no program is shipped for: from the sources, with the compiler that is here."""
    compiler = shutil.which("musl-gcc") or shutil.which("cc")
    if compiler is None:
        raise SandboxFailed(f"no agent is shipped for {machine}", "install a C compiler (cc), it is then built here")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "agent"
        result = subprocess.run(
            ["sh", str(FOLDER / "build.sh"), str(target)],
            env={**os.environ, "CC": compiler}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if result.returncode:
            reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
            raise SandboxFailed(f"the agent cannot be built for {machine}: {reason}", f"compiler: {compiler}")
        return target.read_bytes()
