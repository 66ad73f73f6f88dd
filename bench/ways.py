"""The ways to run a command that are compared. Each is opened once, then runs one command at a time."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import anyio

from bench.peers import Peer, installed
from bench.processes import cpu_clock, living_cpu_s
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox
from stockade_sandbox.backends.containers.container import ContainerSandbox
from stockade_sandbox.backends.containers.gvisor import GVisorSandbox
from stockade_sandbox.backends.layers import container_layers
from stockade_sandbox.policy import Policy

OurSandbox = BubblewrapSandbox | ContainerSandbox | GVisorSandbox
REX = Peer("swe-rex 1.4.0", ("swe-rex==1.4.0",), "peer_shell.py")
MICROBOTS = Peer("microbots 0.0.21", ("microbots==0.0.21",), "peer_shell.py")


class Way(Protocol):
    name: str

    async def open(self) -> None: ...

    async def run(self, command: str) -> tuple[float, float]:
        """Wall and CPU seconds of one command, without what `others_s` tells of."""
        ...

    def others_s(self) -> float:
        """CPU seconds so far of processes that live on from command to command."""
        ...

    async def close(self) -> None: ...


def tree_s(pid: int | None) -> float:
    """CPU seconds of a process and all that descends from it."""
    if pid is None:
        return 0.0
    found = living_cpu_s(pid)
    with suppress(OSError):
        found += time.clock_gettime(cpu_clock(pid))
    return found


class Fresh:
    """A process for each command; `argv` and then the command."""

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        self.name = name
        self._argv = argv

    async def open(self) -> None: ...

    async def run(self, command: str) -> tuple[float, float]:
        cpu, begun = _spent_s(), time.perf_counter()
        subprocess.run([*self._argv, command], capture_output=True, check=True)  # noqa: ASYNC221 - timed alone
        return time.perf_counter() - begun, _spent_s() - cpu

    def others_s(self) -> float:
        return 0.0

    async def close(self) -> None: ...


def _spent_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class OpenBash:
    """A plain bash that lives on, driven by a pipe: the least a persistent shell can cost."""

    name = "open bash"

    async def open(self) -> None:
        self._process = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: ASYNC220

    async def run(self, command: str) -> tuple[float, float]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        cpu, begun = time.process_time(), time.perf_counter()
        process.stdin.write(f"{command}; echo; echo end\n".encode())
        process.stdin.flush()
        while process.stdout.readline() != b"end\n":
            pass
        return time.perf_counter() - begun, time.process_time() - cpu

    def others_s(self) -> float:
        return tree_s(self._process.pid)

    async def close(self) -> None:
        self._process.communicate()


class Ours:
    """One of our backends, on an empty policy: its own image of this machine, no folder."""

    def __init__(self, backend: str, base: Path) -> None:
        self.name = f"stockade {backend}"
        self._backend = backend
        self._base = base

    def made(self) -> OurSandbox:
        policy = Policy()
        if self._backend == "bubblewrap":
            return BubblewrapSandbox(policy, (), self._base)
        layers = container_layers(policy, self._base)
        if self._backend == "gvisor":
            return GVisorSandbox(policy, layers, self._base)
        return ContainerSandbox(policy, layers, self._base, "podman" if self._backend == "podman" else "docker")

    async def open(self) -> None:
        self.sandbox = self.made()
        await self.sandbox.__aenter__()

    async def run(self, command: str) -> tuple[float, float]:
        cpu, begun = time.process_time(), time.perf_counter()
        done = await self.sandbox.run(command)
        spent = time.perf_counter() - begun, time.process_time() - cpu
        assert done.exit_code == 0, done
        return spent

    def others_s(self) -> float:
        return tree_s(self.sandbox.host_pid)

    async def close(self) -> None:
        await self.sandbox.__aexit__(None, None, None)


class DockerExec(Fresh):
    """`docker exec` for each command, in a container of ours; the daemon's CPU is not seen."""

    def __init__(self, base: Path) -> None:
        super().__init__("docker exec", ())
        self._ours = Ours("docker", base)

    async def open(self) -> None:
        await self._ours.open()
        assert isinstance(self._ours.sandbox, ContainerSandbox)
        self._argv = ("docker", "exec", self._ours.sandbox.name, "bash", "-c")

    async def close(self) -> None:
        await self._ours.close()


class OtherShell:
    """The persistent shell of another project, without a sandbox around it."""

    def __init__(self, peer: Peer) -> None:
        self.name = peer.name
        self._peer = peer

    async def open(self) -> None:
        contender = await anyio.to_thread.run_sync(installed, self._peer)
        argv = [*contender.argv, self._peer.name.split()[0]]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the process
        self._process = subprocess.Popen(  # noqa: ASYNC220 - driven over its pipes, like all others
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PS1": ""},
        )
        self._answer()

    def _answer(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines() or ["nothing"]
            self._errors.close()
            raise RuntimeError(f"{self.name} ended with status {status} and said: {said[-1]}")
        return float(line)

    async def run(self, command: str) -> tuple[float, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer(), 0.0

    def others_s(self) -> float:
        return tree_s(self._process.pid)

    async def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


BWRAP = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
BARE = {"bwrap --unshare-all --ro-bind / / true": ["bwrap", "--unshare-all", "--ro-bind", "/", "/"],
        "the same with /proc and /dev": BWRAP}  # fmt: skip


def field(backends: Sequence[str], base: Path, *, peers: bool) -> list[Way]:
    """The open bash first: all are measured against it."""
    ways: list[Way] = [OpenBash(), Fresh("bash -c", ["bash", "-c"])]
    ways += [Ours(backend, base / backend) for backend in backends]
    ways.append(Fresh("bwrap --unshare-all bash -c", [*BWRAP, "bash", "-c"]))
    if "docker" in backends:
        ways.append(DockerExec(base / "exec"))
    if peers:
        ways += [OtherShell(REX), OtherShell(MICROBOTS)]
    return ways


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
