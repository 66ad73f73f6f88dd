"""Docker and Podman: what the user's command line client is, what it speaks to, and asking it small questions."""

import functools
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stockade_sandbox.errors import PolicyNotEnforceable, SandboxFailed

EngineName = Literal["docker", "podman"]
_ASK_TIMEOUT_S = 60.0
_MOST_OPEN_FILES = 1 << 20
_MOST_PROCESSES = 1 << 22
_HINTS = {
    "docker": "start it, or set DOCKER_HOST; `docker version` must answer",
    "podman": "`podman info` must answer",
}


@dataclass(frozen=True)
class Engine:
    """One engine as it is here. `command` is the client with the options that every call needs.

    `root`: the engine's containers are made by the host's root for us, who are root too; without it files keep our
    own uid. `open_files` and `processes` are our hard limits: more cannot be given. `totals`: limits it can hold.
    """

    name: EngineName
    command: tuple[str, ...]
    version: str
    uid: int
    gid: int
    open_files: int
    processes: int
    totals: frozenset[str] = frozenset({"memory", "pids"})
    private_cgroups: bool = True

    @property
    def root(self) -> bool:
        return self.uid == 0


def ask(command: Sequence[str], stdin: bytes = b"", timeout_s: float = _ASK_TIMEOUT_S) -> bytes:
    """Standard output of a client's command. SandboxFailed with the last line it complained with."""
    try:
        done = subprocess.run(list(command), input=stdin, capture_output=True, timeout=timeout_s, check=False)
    except OSError as error:
        raise SandboxFailed(f"{command[0]} cannot be run: {error.strerror}", "is it installed?") from error
    except subprocess.TimeoutExpired as error:
        raise SandboxFailed(f"{command[0]} did not answer within {timeout_s:g} s") from error
    if done.returncode:
        raise SandboxFailed(f"{Path(command[0]).name} failed: {engine_complaint(done.stderr.decode(errors='replace'))}")
    return done.stdout


def engine_complaint(stderr: str) -> str:
    """The line of an engine's standard error that says why, without the frame around it."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    lines = [
        line for line in lines if not line.startswith(("See '", "WARNING", "Run '")) and "level=warning" not in line
    ]
    if not lines:
        return "it did not say why"
    for line in lines:
        for mark in ("Error response from daemon: ", "Error: "):
            if mark in line:
                return line.partition(mark)[2][:400]
    return lines[-1][:400]


def _hard(which: int, most: int) -> int:
    hard = resource.getrlimit(which)[1]
    return most if hard == resource.RLIM_INFINITY else min(hard, most)


def _unavailable(name: EngineName, message: str, hint: str) -> PolicyNotEnforceable:
    return PolicyNotEnforceable("sandbox", message, hint, ("bubblewrap",))


def _client(name: EngineName) -> str:
    found = shutil.which(name)
    if found is None:
        raise _unavailable(name, f"there is no {name} on PATH", f"install it, for example `apt-get install {name}`")
    return found


def _docker_facts(client: str) -> tuple[str, frozenset[str]]:
    said: dict[str, Any] = json.loads(ask([client, "info", "--format", "{{json .}}"]))
    errors = said.get("ServerErrors")
    if errors or "ServerVersion" not in said:
        reason = errors[0] if errors else "no server"
        raise _unavailable("docker", f"docker's daemon does not answer: {reason}", _HINTS["docker"])
    options = " ".join(said.get("SecurityOptions") or [])
    for word in ("rootless", "userns"):
        if f"name={word}" in options:
            raise _unavailable(
                "docker",
                f"docker runs with {word} user ids, where folders would have another owner",
                "--sandbox podman",
            )
    if "name=seccomp" not in options:
        raise _unavailable("docker", "docker here holds no system call filter", "--sandbox bubblewrap")
    totals = {name for name, key in (("memory", "MemoryLimit"), ("pids", "PidsLimit")) if said.get(key)}
    return str(said["ServerVersion"]), frozenset(totals)


def _podman_command(client: str) -> tuple[str, ...]:
    """crun refuses mixed hierarchies of control groups, and systemd's manager needs systemd."""
    command = [client]
    if not Path("/run/systemd/system").is_dir():
        command.append("--cgroup-manager=cgroupfs")
    if Path("/sys/fs/cgroup/memory").is_dir() and (runc := shutil.which("runc")):
        command += ["--runtime", runc]
    return tuple(command)


def _podman_facts(command: Sequence[str]) -> tuple[str, frozenset[str]]:
    """Without root it bounds totals by version 2 control groups only, by those that were delegated."""
    said: dict[str, Any] = json.loads(ask([*command, "info", "--format", "json"]))
    host, totals = said["host"], {"memory", "pids"}
    if host["security"]["rootless"]:
        totals &= set(host.get("cgroupControllers") or []) if host.get("cgroupVersion") == "v2" else set()
    return str(said["version"]["Version"]), frozenset(totals)


def find_engine(name: EngineName) -> Engine:
    """The engine, asked. PolicyNotEnforceable when it is not here, does not answer, or cannot be used safely."""
    return _find(name, os.environ.get("DOCKER_HOST", ""), os.environ.get("CONTAINER_HOST", ""))


@functools.cache
def _find(name: EngineName, _docker_host: str, _container_host: str) -> Engine:
    client = _client(name)
    command: tuple[str, ...] = (client,)
    totals = frozenset({"memory", "pids"})
    try:
        if name == "docker":
            version, totals = _docker_facts(client)
        else:
            command = _podman_command(client)
            version, totals = _podman_facts(command)
    except SandboxFailed as error:
        raise _unavailable(name, error.message, _HINTS[name]) from error
    except (ValueError, KeyError) as error:
        raise _unavailable(name, f"{name}'s answer cannot be read: {error}", _HINTS[name]) from error
    return Engine(
        name=name,
        command=command,
        version=version,
        uid=os.geteuid(),
        gid=os.getegid(),
        open_files=_hard(resource.RLIMIT_NOFILE, _MOST_OPEN_FILES),
        processes=_hard(resource.RLIMIT_NPROC, _MOST_PROCESSES),
        totals=totals,
        private_cgroups=Path("/proc/self/ns/cgroup").exists(),
    )
