"""Small sandboxes of our own in which hostile files are taken apart: a fresh one for each, gone after it.

A parser of PDF or HTML that a file takes over is where a bot is anyway: behind all namespaces and the system call
filter, with bounded memory, processes and time, and with less than a bot has: no folder of the user's, no file of the
run, no network unless it is asked for, nothing written that stays. What it can still do is lie about that one file.
Starting and ending one takes 28 ms (bench/reading.py).
"""

import site
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stockade_sandbox import registry
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox
from stockade_sandbox.backends.host_info import fresh_sandbox_uid, host_facts
from stockade_sandbox.egress.inside import MakeServer
from stockade_sandbox.errors import PolicyNotEnforceable, SandboxFailed, UsageError
from stockade_sandbox.policy import MIB, WORKSPACE, Limits, Network, Policy
from stockade_sandbox.port import OnNetwork, Sandbox
from stockade_sandbox.results import FolderLayer

READING = Limits(
    memory_bytes=768 * MIB, processes=32, open_files=256, file_bytes=64 * MIB, disk_bytes=64 * MIB,
    command_timeout_s=60.0,
)  # fmt: skip
_SYSTEM = ("/usr", "/usr/local")
"""Where an interpreter is seen inside as it is."""
_INSIDE = "/reading"


@dataclass(frozen=True)
class ReadingRoom:
    """Makes them, with this Python and the libraries beside it, both read-only. `base` is private to a run."""

    base: Path
    limits: Limits = READING
    egress: MakeServer = registry.egress

    @cached_property
    def _prefix(self) -> Path:
        return Path(sys.base_prefix).resolve()

    @cached_property
    def _libraries(self) -> tuple[Path, ...]:
        """Outside the interpreter's own folder."""
        places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        if site.ENABLE_USER_SITE:
            places.append(site.getusersitepackages())
        found = [path for path in map(Path, places) if path.is_dir()]
        return tuple(dict.fromkeys(path.resolve() for path in found if not path.resolve().is_relative_to(self._prefix)))

    @cached_property
    def python(self) -> str:
        """The interpreter, as it is called inside. UsageError when it cannot be found."""
        name = f"bin/python{sys.version_info.major}.{sys.version_info.minor}"
        if not (self._prefix / name).exists():
            raise UsageError(f"this Python has no {name} below {self._prefix}", "install Stockade with another Python")
        return f"{self._prefix if str(self._prefix) in _SYSTEM else f'{_INSIDE}/python'}/{name}"

    @cached_property
    def packages(self) -> tuple[str, ...]:
        """Folders of libraries inside, for `sys.path`."""
        return tuple(f"{_INSIDE}/packages-{number}" for number in range(len(self._libraries)))

    def check(self) -> None:
        """UsageError when none can be made on this machine. May block for a moment, the first time."""
        try:
            fresh_sandbox_uid()
            host_facts()
        except (PolicyNotEnforceable, SandboxFailed) as error:
            raise UsageError(
                f"notes, documents and pages are read in bubblewrap, which cannot be used here: {error.message}",
                error.hint,
            ) from error
        assert self.python

    def open(
        self,
        network: Network | None = None,
        on_network: OnNetwork | None = None,
        folders: Sequence[FolderLayer] = (),
    ) -> Sandbox:
        """One, not entered yet; it also sees `folders`. Entering raises PolicyNotEnforceable or SandboxFailed."""
        mounts = list(zip(self._libraries, self.packages, strict=True))
        environment: dict[str, str] = {}
        if str(self._prefix) not in _SYSTEM:
            mounts.append((self._prefix, f"{_INSIDE}/python"))
            environment = {"LD_LIBRARY_PATH": f"{_INSIDE}/python/lib"}  # libpython, where it is no part of the program
        layers = [FolderLayer(host=str(host), inside=inside, mode="ro", strategy="direct") for host, inside in mounts]
        policy = Policy(network=network or Network(), limits=self.limits, environment=environment)
        assert policy.workdir == WORKSPACE
        sandbox = BubblewrapSandbox(policy, [*folders, *layers], self.base, self.egress)
        sandbox.on_network = on_network
        return sandbox
