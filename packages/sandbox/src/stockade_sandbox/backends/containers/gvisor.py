"""gVisor: a kernel of its own, in user space, between the bot and the host's. `runsc` runs an OCI bundle of ours
(the OCI runtime specification, config.md and config-linux.md), in which is what the other backends show too, with
gVisor's own /proc, /dev and /sys.

Needs root. The folders are made ready by host_stage.py; the root file system is the host's /usr behind links, or a
directory of yours, each with the mount points in a read-only overlay. runsc's own state lies in /run/stockade/runsc,
where what a killed stockade left is found by name and removed at the next start.

What it cannot do: end one process that takes too much memory; the bound is the sandbox's, and ends it by name. Process
one is the launcher first, as root of gVisor's kernel, then the agent without any right (seal.py). Debian 12's own
release of 2022 answers EINVAL where programs ask statx(2) not to mount, so that `ls` and `stat` fail in it; that of
Debian's backports is the oldest that was tried, and older ones are refused.
"""

import functools
import json
import os
import re
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from stockade_sandbox import registry
from stockade_sandbox.agent.child import start_child
from stockade_sandbox.backends.agent_sandbox import AgentSandbox
from stockade_sandbox.backends.bubblewrap.argv import inside_paths
from stockade_sandbox.backends.bubblewrap.sandbox import sandbox_uid
from stockade_sandbox.backends.containers.argv import (
    ETC,
    SPARE_PROCESSES,
    Bind,
    Launched,
    folder_binds,
    scratch,
    system_binds,
    variables,
)
from stockade_sandbox.backends.containers.container import fill_own
from stockade_sandbox.backends.containers.engines import ask
from stockade_sandbox.backends.containers.host_stage import (
    BASE,
    is_stale,
    make_stage,
    new_name,
    remove_stage,
    stale_stages,
)
from stockade_sandbox.backends.feature_probe import run_operations
from stockade_sandbox.backends.host_info import host_facts
from stockade_sandbox.backends.layers import container_layers, unpack_image
from stockade_sandbox.backends.rootfs import guarantee, scratch_bytes
from stockade_sandbox.egress.inside import MakeServer
from stockade_sandbox.egress.rules import Rules
from stockade_sandbox.errors import PolicyNotEnforceable, SandboxFailed, UsageError
from stockade_sandbox.launcher.launch import CAPABILITIES, OWN, in_gvisor
from stockade_sandbox.limits.cgroups import guarantees
from stockade_sandbox.policy import Policy, is_image
from stockade_sandbox.port import Backend
from stockade_sandbox.results import FolderLayer
from stockade_sandbox.stoppable import Progress, stoppable

__all__ = ["GVisorSandbox", "runsc_argv", "sweep"]

Json = dict[str, Any]
STATE = BASE / "runsc"
_OLDEST = 20240729


def runsc_argv(runsc: str, command: Sequence[str]) -> list[str]:
    """runsc's command line; ptrace is the platform that every release has and every machine can run."""
    options = ["--network=none", "--platform=ptrace", "--oci-seccomp", "--host-uds=none", "--file-access=exclusive"]
    return [runsc, f"--root={STATE}", *options, *command]


@functools.cache
def find_runsc() -> tuple[str, str]:
    """Its path and version. PolicyNotEnforceable when it is not here."""
    found = shutil.which("runsc")
    if found is None:
        raise PolicyNotEnforceable(
            "sandbox", "there is no runsc on PATH", "install gVisor, see gvisor.dev", ("docker",)
        )
    said = ask([found, "--version"]).decode(errors="replace")
    version = re.search(r"(\d{8})", said)
    return found, version[1] if version else "unknown"


def refuse(policy: Policy) -> None:
    """PolicyNotEnforceable or UsageError for what cannot be had here."""
    Rules.of(policy.network)
    if os.geteuid() != 0:
        raise PolicyNotEnforceable(
            "sandbox", "gVisor is started by root only here", "use bubblewrap", ("bubblewrap", "podman")
        )
    if policy.rootfs is not None and not is_image(policy.rootfs) and not Path(policy.rootfs).is_dir():
        hint = "give oci:DIR, docker-archive:FILE or NAME@sha256:HEX; a name is for docker or podman"
        raise UsageError(f"not a root file system directory: {policy.rootfs!r}", hint)
    _, version = find_runsc()
    if version.isdigit() and int(version) < _OLDEST:
        raise PolicyNotEnforceable(
            "sandbox",
            f"runsc {version} is too old, before {_OLDEST}: `ls` and `stat` may fail in it",
            "on Debian 12, `apt-get install -t bookworm-backports runsc`; else see gvisor.dev",
            ("bubblewrap", "docker", "podman"),
        )


def sweep(runsc: str) -> list[str]:
    """Removes sandboxes and mounts of stockades that are gone; returns what was removed. Blocks."""
    if not STATE.is_dir():
        return []
    names = {path.name.split("_")[0].removesuffix(".state") for path in STATE.iterdir()}
    removed = [name for name in names if is_stale(name)]
    for name in removed:
        _delete(runsc, name)
    for stage in stale_stages():
        remove_stage(stage)
        removed.append(str(stage))
    return sorted(removed)


def _delete(runsc: str, name: str) -> None:
    with suppress(SandboxFailed):  # it is not there any more
        ask(runsc_argv(runsc, ["delete", "--force", name]))


def make_root(stage: Path, places: Sequence[Bind], links: dict[str, str], rootfs: str | None) -> Path:
    """The root directory: `links` and a mount point for each place, over the stage's copy of `rootfs` if there is one.

    Mount points are made in a layer of our own, so that nobody's root file system is written to.
    """
    points = stage / "points"
    points.mkdir()
    for name, target in links.items():
        (points / name).symlink_to(target)
    for inside in ("proc", "dev", "sys", "etc", "home"):
        (points / inside).mkdir()
    for bind in places:
        point = points / bind.target.lstrip("/")
        if rootfs and (Path(rootfs) / bind.target.lstrip("/")).exists():
            continue
        if os.path.isdir(bind.source):
            point.mkdir(parents=True, exist_ok=True)
        elif not point.exists():
            point.parent.mkdir(parents=True, exist_ok=True)
            point.touch(mode=0o444)
    if rootfs is None:
        return points
    complaint = run_operations(["overlay", f"{stage}/joined", f"lowerdir={points}:{stage}/root"])
    if complaint:
        raise SandboxFailed(f"the root file system {rootfs} cannot be mounted: {complaint}", "is it a directory?")
    return stage / "joined"


def binds(policy: Policy, layers: Sequence[FolderLayer], launched: Launched) -> list[Bind]:
    """All that is mounted from the host, outer places first."""
    kept, _ = scratch(policy, inside_paths(policy, layers), launched.stage)
    found = system_binds(policy, launched)
    found += [Bind(f"{launched.own}/etc/{name}", f"/etc/{name}") for name in ETC]
    found += [Bind(launched.own, OWN), *kept, *folder_binds(policy, layers, launched)]
    return sorted(found, key=lambda bind: bind.target.count("/"))


def _mount(bind: Bind) -> Json:
    options = ["rbind" if bind.whole else "bind", "rw" if bind.writable else "ro", "nosuid", "nodev"]
    return {"destination": bind.target, "type": "bind", "source": bind.source, "options": options}


def _process(policy: Policy, launched: Launched) -> Json:
    held, none = list(CAPABILITIES), list[str]()
    processes = policy.limits.processes + SPARE_PROCESSES if policy.limits.processes else 0
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": in_gvisor(launched.uid, launched.gid, processes),
        "env": [f"{name}={value}" for name, value in variables(policy).items()],
        "cwd": "/",
        "noNewPrivileges": True,
        "capabilities": {
            **dict.fromkeys(("bounding", "effective", "permitted"), held),
            **dict.fromkeys(("inheritable", "ambient"), none),
        },
    }


def bundle_config(policy: Policy, layers: Sequence[FolderLayer], launched: Launched, root: str) -> Json:
    """config.json of a sandbox whose root file system is the host's directory `root`."""
    resources: Json = {}
    if policy.limits.memory_bytes:
        memory = policy.limits.memory_bytes
        resources["memory"] = {"limit": memory, "swap": memory}
    if policy.limits.cpus:
        resources["cpu"] = {"period": 100_000, "quota": max(round(policy.limits.cpus * 100_000), 1000)}
    return {
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": {"path": root, "readonly": True},
        "process": _process(policy, launched),
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup"},
            *(_mount(bind) for bind in binds(policy, layers, launched)),
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
            "cgroupsPath": f"/{launched.name}",
            "resources": resources,
        },
    }


class GVisorSandbox(AgentSandbox):
    """One gVisor sandbox on prepared layers (layers.container_layers); implements `port.Sandbox`.

    `policy.rootfs` is a root file system directory or None for the host's own /usr.
    """

    backend = "gvisor"
    _is_freezable = False

    def __init__(
        self,
        policy: Policy,
        layers: Sequence[FolderLayer],
        run_dir: Path,
        egress: MakeServer = registry.egress,
    ) -> None:
        super().__init__(policy, layers, run_dir, egress)
        self._runsc: str | None = None
        self._version = ""
        self._stage: Path | None = None
        self.name = new_name()

    @classmethod
    def prepared(cls, policy: Policy, base: Path, on_progress: Progress | None = None) -> "GVisorSandbox":
        """One with its layers made below `base`; what cannot be held is refused before that."""
        refuse(policy)
        if is_image(policy.rootfs):
            unpack_image(policy.rootfs, on_progress)
        return cls(policy, container_layers(policy, base, on_progress), base)

    @property
    def guarantees(self) -> tuple[str, ...]:
        """What holds, one line each; complete after entering."""
        limits = self._policy.limits
        lines = (
            "a kernel of its own (gVisor): the host's is reached only by gVisor's few calls; no capabilities",
            guarantee(self._policy.network),
            "system call filter inside; read-only root",
            *self._of_shell(),
            *guarantees(limits, self._totals, scratch_bytes(limits)),
            "what takes more memory than that ends the sandbox",
        )
        return (*lines, f"made by runsc {self._version}") if self._version else lines

    @property
    def _totals(self) -> frozenset[str]:
        return frozenset({"memory", "pids"})

    async def _start(self) -> None:
        refuse(self._policy)
        if is_image(self._policy.rootfs):
            await self._take_image()
        inside_paths(self._policy, self._layers)
        self._runsc, self._version = find_runsc()
        runsc = self._runsc
        await anyio.to_thread.run_sync(sweep, runsc)
        copies = await stoppable(self._prepare)
        argv = runsc_argv(runsc, ["run", f"--bundle={self._stage}", self.name])
        try:
            await self._connect(lambda stream: start_child(argv, stream, env={"PATH": os.defpath}))
        except SandboxFailed as error:
            if self._child is None:
                raise
            _, said = await self._last_words()
            reason = self._reason(said) if said else error.message
            raise SandboxFailed(f"gVisor could not start the sandbox: {reason}", "see gvisor.dev") from error
        self._pid = await anyio.to_thread.run_sync(self._sentry, runsc)
        await self._watch_disk(copies)

    def _prepare(self, progress: Progress) -> tuple[str, ...]:
        """The stage with the bundle in it; returns the copies."""
        policy, uid = self._policy, sandbox_uid(self._layers)
        copies = self._copy_in(uid, progress)
        self._stage = stage = make_stage(self.name, policy, self._layers, uid, copies)
        own = fill_own(stage, variables(policy), uid, uid)
        STATE.mkdir(mode=0o700, exist_ok=True)
        host = None if policy.rootfs else host_facts()
        launched = Launched(
            name=self.name, own=str(own), image="", uid=uid, gid=uid, stage=str(stage), copies=copies, host=host
        )
        links = {entry.name: entry.target for entry in host.top if entry.target} if host else {}
        root = make_root(stage, binds(policy, self._layers, launched), links, policy.rootfs)
        (stage / "config.json").write_text(json.dumps(bundle_config(policy, self._layers, launched, str(root))))
        return copies

    def _sentry(self, runsc: str) -> int | None:
        state = json.loads(ask(runsc_argv(runsc, ["state", self.name])))
        return int(state["pid"]) or None

    def _reason(self, stderr: str) -> str:
        lines = [line for line in stderr.splitlines() if line.strip()]
        return lines[-1].rpartition("FATAL ERROR: ")[2][:400] if lines else "it did not say why"

    def _kill(self) -> None:
        pid = self.host_pid
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _let_go(self, status: int | None) -> None:
        if status is not None and self._runsc:
            _delete(self._runsc, self.name)
        stage, self._stage = self._stage, None
        if stage:
            remove_stage(stage)


BACKEND = Backend(GVisorSandbox.prepared, GVisorSandbox, lambda: sweep(find_runsc()[0]), own_kernel=True)
