"""Docker and Podman: one adapter. The agent is process one of the container, on the client's input and output.

One container a sandbox, one persistent shell in it; the client (`docker run --interactive`) stays as the stream's
carrier, and its end is the container's. A stockade that is killed closes the stream: the agent ends at that, the
container with it, and the engine removes it. What a killed engine or machine leaves is found by name and removed at
the next start. container_argv.py has the command line, images.py the image, host_stage.py the folders.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from stockade_sandbox import registry
from stockade_sandbox.agent.child import start_child
from stockade_sandbox.agent.session import agent_memfd
from stockade_sandbox.backends.agent_sandbox import AgentSandbox
from stockade_sandbox.backends.bubblewrap.argv import inside_paths
from stockade_sandbox.backends.bubblewrap.sandbox import sandbox_uid
from stockade_sandbox.backends.containers.argv import (
    Launched,
    container_argv,
    environment_file,
    variables,
)
from stockade_sandbox.backends.containers.engines import Engine, EngineName, ask, engine_complaint, find_engine
from stockade_sandbox.backends.containers.host_stage import is_stale, make_stage, new_name, remove_stage, stale_stages
from stockade_sandbox.backends.containers.images import Image, find_image
from stockade_sandbox.backends.layers import container_layers
from stockade_sandbox.backends.rootfs import PROGRAMS, etc_files, guarantee, scratch_bytes
from stockade_sandbox.backends.seccomp import filter_bytes
from stockade_sandbox.egress.inside import MakeServer
from stockade_sandbox.egress.rules import Rules
from stockade_sandbox.errors import PolicyNotEnforceable, SandboxFailed, StockadeError, UsageError
from stockade_sandbox.launcher.launch import launcher_bytes
from stockade_sandbox.limits.cgroups import guarantees
from stockade_sandbox.policy import Policy, is_image_file
from stockade_sandbox.port import Backend
from stockade_sandbox.results import FolderLayer
from stockade_sandbox.stoppable import Progress, stoppable

__all__ = ["ContainerSandbox", "fill_own", "sweep"]

_REMOVE_TRIES = 100


def fill_own(folder: Path, variables: dict[str, str], uid: int, gid: int) -> Path:
    """The agent, the environment and the synthetic /etc in `folder`/own, which is seen inside; returns that."""
    own = folder / "own"
    (own / "etc").mkdir(parents=True, exist_ok=True)
    own.chmod(0o755)
    (own / "etc").chmod(0o755)
    agent = agent_memfd()
    try:
        (own / "agent").write_bytes(os.pread(agent, os.fstat(agent).st_size, 0))
    finally:
        os.close(agent)
    (own / "agent").chmod(0o555)
    (own / "launch").write_bytes(launcher_bytes())
    (own / "launch").chmod(0o555)
    (own / "filter").write_bytes(filter_bytes())
    (own / "filter").chmod(0o444)
    (own / "bin").mkdir()
    (own / "bin").chmod(0o755)
    for name, target in PROGRAMS.items():
        (own / "bin" / name).symlink_to(target)
    for name, text in etc_files(uid, gid).items():
        (own / "etc" / name).write_text(text)
        (own / "etc" / name).chmod(0o444)
    secret = own / "environment"
    secret.touch(mode=0o600)
    secret.write_bytes(environment_file(variables))
    if os.geteuid() == 0:
        os.chown(secret, uid, gid)
    secret.chmod(0o400)
    return own


def _names(engine: Engine) -> set[str]:
    listing = ["ps", "--all", "--filter", "label=stockade", "--format", "{{.Names}}"]
    return set(ask([*engine.command, *listing]).decode().split())


def sweep(engine: Engine) -> list[str]:
    """Removes containers and mounts of stockades that are gone; returns what was removed. Blocks."""
    stale = sorted(name for name in _names(engine) if is_stale(name))
    if stale:
        with suppress(SandboxFailed):  # another start may be sweeping too; what stays is seen by the next
            ask([*engine.command, "rm", "--force", "--volumes", *stale])
        left = _names(engine)
        stale = [name for name in stale if name not in left]
    if engine.root:
        for stage in stale_stages():
            remove_stage(stage)
            stale.append(str(stage))
    return stale


class ContainerSandbox(AgentSandbox):
    """One container on prepared layers (layers.container_layers); implements `port.Sandbox`.

    `policy.rootfs` is an image's name, a root file system directory, or None for the host's own /usr. `runtime` is one
    of the engine's OCI runtimes, for example `runsc`.
    """

    def __init__(
        self,
        policy: Policy,
        layers: Sequence[FolderLayer],
        run_dir: Path,
        engine: EngineName = "docker",
        runtime: str | None = None,
        egress: MakeServer = registry.egress,
    ) -> None:
        super().__init__(policy, layers, run_dir, egress)
        self._wanted: EngineName = engine
        self._runtime = runtime
        self._engine: Engine | None = None
        self._stage: Path | None = None
        self.name = new_name()

    @classmethod
    def prepared(
        cls, policy: Policy, base: Path, engine: EngineName, on_progress: Progress | None = None
    ) -> "ContainerSandbox":
        """One with its layers made below `base`; what cannot be held is refused before that."""
        Rules.of(policy.network)
        find_engine(engine)
        return cls(policy, container_layers(policy, base, on_progress), base, engine)

    @property
    def backend(self) -> str:
        return self._wanted

    @property
    def guarantees(self) -> tuple[str, ...]:
        """What holds, one line each; complete after entering."""
        engine = self._engine
        lines = (
            "own mount, process, network, IPC, host name namespaces; no capabilities; no new privileges",
            guarantee(self._policy.network),
            "system call filter; read-only root; nothing published; no engine socket",
            *self._of_shell(),
            *guarantees(self._policy.limits, self._totals, scratch_bytes(self._policy.limits)),
        )
        return (*lines, f"made by {engine.name} {engine.version}") if engine else lines

    @property
    def _totals(self) -> frozenset[str]:
        return self._engine.totals if self._engine else frozenset({"memory", "pids"})

    async def _start(self) -> None:
        inside_paths(self._policy, self._layers)
        if is_image_file(self._policy.rootfs):
            await self._take_image()
        self._engine = engine = await anyio.to_thread.run_sync(find_engine, self._wanted)
        await anyio.to_thread.run_sync(sweep, engine)
        image = await anyio.to_thread.run_sync(find_image, engine, self._policy.rootfs)
        launched = await stoppable(lambda progress: self._prepare(engine, image, progress))
        argv = container_argv(self._policy, self._layers, engine, launched)
        try:
            await self._connect(lambda stream: start_child(argv, stream, env=dict(os.environ)))
        except SandboxFailed as error:
            raise await self._why_not(error) from error
        self._pid = await anyio.to_thread.run_sync(self._process_one, engine)
        await self._watch_disk(launched.copies)

    def _prepare(self, engine: Engine, image: Image, progress: Progress) -> Launched:
        """Everything on the host that the container mounts."""
        policy = self._policy
        uid = sandbox_uid(self._layers) if engine.root else engine.uid
        gid = uid if engine.root else engine.gid
        folder = self._private_folder()
        copies = self._copy_in(uid if engine.root else None, progress)
        if engine.root:
            no_root = replace(policy, rootfs=None)
            self._stage = make_stage(self.name, no_root, self._layers, uid, copies)
        place = self._stage or folder
        own = fill_own(place, variables(policy), uid, gid)
        return Launched(
            name=self.name,
            own=str(own),
            image=image.reference,
            uid=uid,
            gid=gid,
            stage=str(self._stage) if self._stage else None,
            copies=copies,
            host=image.host,
            runtime=self._runtime,
        )

    def _process_one(self, engine: Engine) -> int | None:
        said = ask([*engine.command, "inspect", "--format", "{{.State.Pid}}", self.name]).decode().strip()
        return int(said) if said.isdigit() and int(said) and Path("/proc", said).exists() else None

    async def _why_not(self, error: SandboxFailed) -> StockadeError:
        """The engine's own reason, where it gave one."""
        if self._child is None:
            return error
        status, said = await self._last_words()
        if status is None and not said:
            return error
        reason = engine_complaint(said)
        if "/bin/bash" in reason and self._policy.rootfs:
            return UsageError(f"the image {self._policy.rootfs!r} has no /bin/bash", "choose one that has bash")
        if self._runtime and "runtime" in reason.lower():
            return PolicyNotEnforceable("sandbox", f"{self._wanted} has no runtime {self._runtime!r}: {reason}")
        hint = "give yourself ids in /etc/subuid and /etc/subgid, see subuid(5)" if "/etc/subuid" in reason else None
        return SandboxFailed(f"{self._wanted} could not start the sandbox: {reason}", hint)

    def _reason(self, stderr: str) -> str:
        return engine_complaint(stderr)

    def _kill(self) -> None:
        if self._engine:
            with suppress(SandboxFailed):  # it has just ended by itself
                ask([*self._engine.command, "kill", self.name])

    def _let_go(self, status: int | None) -> None:
        if status:
            self._remove()
        stage, self._stage = self._stage, None
        if stage:
            remove_stage(stage)

    def _remove(self) -> None:
        """After an end that was not the agent's own: the engine may be removing the container, or not know that."""
        engine = self._engine
        assert engine is not None
        listing = [*engine.command, "ps", "--all", "--quiet", "--filter", f"name={self.name}"]
        for _ in range(_REMOVE_TRIES):
            if not ask(listing).strip():
                return
            with suppress(SandboxFailed):  # it went away by itself, or is just going
                ask([*engine.command, "rm", "--force", "--volumes", self.name])
            time.sleep(0.02)  # engines offer no event for a removal they have already begun
        raise SandboxFailed(f"the container {self.name} could not be removed", f"`{self._wanted} rm -f {self.name}`")


def _backend(engine: EngineName) -> Backend:
    return Backend(
        lambda policy, base, on_progress: ContainerSandbox.prepared(policy, base, engine, on_progress),
        lambda policy, layers, base: ContainerSandbox(policy, layers, base, engine),
        lambda: sweep(find_engine(engine)),
        bounds_memory=lambda: "memory" in find_engine(engine).totals,
    )


DOCKER, PODMAN = _backend("docker"), _backend("podman")
