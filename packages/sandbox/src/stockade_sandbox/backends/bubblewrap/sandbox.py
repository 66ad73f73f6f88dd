"""The default sandbox: bubblewrap, without a daemon and without root.

The chain is launcher (mounts, ids) -> bubblewrap (namespaces, view, filter) -> agent (pid 1 inside, driven over an
inherited stream). facts.py says which bubblewrap is used and why; staging.py goes from policy to command line.
Started by root, everything from bubblewrap on runs under a uid of its own that owns nothing on the host.
"""

import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from anyio import to_thread

from stockade_sandbox import registry
from stockade_sandbox.backends.agent_sandbox import AgentSandbox
from stockade_sandbox.backends.bubblewrap.argv import (
    Build,
    Launch,
    Owner,
    Writable,
    bubblewrap_argv,
    inside_paths,
)
from stockade_sandbox.backends.bubblewrap.explain import last_line, start_failure
from stockade_sandbox.backends.bubblewrap.process import ProcessTree, start_tree
from stockade_sandbox.backends.feature_probe import can_idmap, can_shield, overlay_check, owner_of
from stockade_sandbox.backends.host_info import HostFacts, fresh_sandbox_uid, host_facts, is_sandbox_uid, sandbox_ids
from stockade_sandbox.backends.layers import make_layers, not_with_an_image, unpack_image
from stockade_sandbox.backends.rootfs import guarantee, scratch_bytes
from stockade_sandbox.egress.rules import Rules
from stockade_sandbox.errors import PolicyNotEnforceable, SandboxFailed, UsageError
from stockade_sandbox.limits.cgroups import (
    Groups,
    ended_for_memory,
    guarantees,
    make_groups,
    places,
    remove_groups,
    sweep,
)
from stockade_sandbox.policy import Policy, is_image
from stockade_sandbox.port import Backend
from stockade_sandbox.processes import descendants, pids_of
from stockade_sandbox.results import FolderLayer, ProgramStart
from stockade_sandbox.stoppable import Progress, stoppable

if TYPE_CHECKING:
    from stockade_sandbox.backends.oci import Image

__all__ = ["BubblewrapSandbox", "bubblewrap_argv", "prepare_layers"]


class _Walk(Protocol):
    """Of overlay.prepare, which is loaded where there are folders."""

    def stop(self) -> None: ...


_NAMESPACES = 3
"""Process namespaces that a process inside has a number in: the host's, the guard's ward's, bubblewrap's."""


def prepare_layers(policy: Policy, base: Path, on_progress: Progress | None = None) -> tuple[FolderLayer, ...]:
    """The layers of the policy's folders, made below `base` for one sandbox. Blocks while a folder is copied.

    `on_progress` may raise to end that. Raises SandboxFailed and UsageError, also for a bad network rule.
    """
    Rules.of(policy.network)
    not_with_an_image(policy)
    if policy.root:
        _root_can_be_had(policy)
    return make_layers(policy, base, fresh_sandbox_uid(), overlay_check(base), on_progress)


def _root_can_be_had(policy: Policy) -> None:
    """PolicyNotEnforceable where what root or its users write would stay behind as nobody's, or there are no ids."""
    ids = sandbox_ids()
    modes = {rule.mode for rule in policy.folders} - {"ro"}
    if "rw" in modes or (ids.outer and (modes or policy.copies)):
        what = "files that root of the sandbox writes there would be nobody's on this machine"
        raise PolicyNotEnforceable("user", what, "give the folders as ro, or as root of this machine as overlay")


def sandbox_uid(layers: Sequence[FolderLayer]) -> int:
    """The kernel's uid for a run: our own for an ordinary user; for root that of the layers, or a new one.

    SandboxFailed when layers belong to different ones.
    """
    fresh = fresh_sandbox_uid()
    if fresh is None:
        return os.geteuid()
    places = [f"{layer.layer}/upper" if layer.strategy == "overlay" else layer.source
              for layer in layers if layer.strategy != "direct"]  # fmt: skip
    found = {owner_of(place).uid for place in places}
    if len(found) > 1 or not all(is_sandbox_uid(uid) for uid in found):
        raise SandboxFailed("the layers of this run do not belong to one sandbox user", "prepare them anew")
    return found.pop() if found else fresh


def layer_owners(layers: Sequence[FolderLayer], host: HostFacts, uid: int) -> tuple[Owner | None, ...]:
    """Whose files each layer's host folder holds, where they must be mapped to `uid`.

    A read-only folder on a file system that cannot do it is mounted as it is: what others may read can be read.
    """
    owners: list[Owner | None] = []
    for layer in layers:
        owner = owner_of(layer.host) if host.root and layer.strategy != "copy" else None
        if owner and (owner.uid == uid or (layer.mode == "ro" and can_idmap(Path(layer.host)))):
            owner = None
        owners.append(owner)
    return tuple(owners)


def shields(
    layers: Sequence[FolderLayer], owners: Sequence[Owner | None], uid: int
) -> tuple[tuple[bool, ...], tuple[str, ...]]:
    """Which layers are shown through an overlay, as all that are only read should be; what to say of the others."""
    shown, lines = list[bool](), list[str]()
    for layer, owner in zip(layers, owners, strict=True):
        is_wanted = layer.mode == "ro" and Path(layer.host).is_dir()
        why = can_shield(Path(layer.host), uid, owner) if is_wanted else None
        shown.append(is_wanted and why is None)
        if why:
            lines.append(f"{layer.inside}: sockets and named pipes in it can be reached, as it is no overlay: {why}")
    return tuple(shown), tuple(lines)


def unmapped(layers: Sequence[FolderLayer], owners: Sequence[Owner | None], uid: int) -> tuple[str, ...]:
    """What to say of read-only folders that root gives on file systems that cannot map owners."""
    return tuple(
        f"{layer.inside}: owners cannot be mapped on its file system, so only what all may read can be read"
        for layer, owner in zip(layers, owners, strict=True)
        if layer.mode == "ro" and owner is None and owner_of(layer.host).uid != uid
    )


class BubblewrapSandbox(AgentSandbox):
    """One sandbox on prepared layers; implements `port.Sandbox`. The caller owns layers and `run_dir`.

    Started by root, the uid inside is that of the layers' `upper` or `copy`, else a new one.
    """

    backend = "bubblewrap"
    tells_programs = False
    """Implements port.TellsPrograms."""
    _build: Build | None = None
    _chain: ProcessTree | None = None
    _host: HostFacts | None = None
    _groups = Groups((), frozenset())
    _exceptions: tuple[str, ...] = ()
    _walk: _Walk | None = None

    @classmethod
    def prepared(cls, policy: Policy, base: Path, on_progress: Progress | None = None) -> "BubblewrapSandbox":
        """One with its layers made below `base`; what cannot be held is refused before that."""
        if is_image(policy.rootfs):
            if policy.root:
                what = "a sandbox of an image has one user, the image's own"
                raise PolicyNotEnforceable("user", what, "leave out user=: who is root in the image is root there")
            unpack_image(policy.rootfs, on_progress)
        elif policy.rootfs is not None and not os.path.isdir(policy.rootfs):
            what = f"--image {policy.rootfs}: bubblewrap takes a root file system directory, or an image in a file"
            raise UsageError(
                what, "give oci:DIR, docker-archive:FILE or NAME@sha256:HEX; names are for docker and podman"
            )
        return cls(policy, prepare_layers(policy, base, on_progress), base)

    @property
    def host_pid(self) -> int | None:
        """Of bubblewrap, as the host sees it; None while there is none."""
        return self._chain.child_pid() if self._chain else None

    @property
    def guarantees(self) -> tuple[str, ...]:
        """What holds, one line each; complete after entering."""
        rights = "; no capabilities"
        if self._policy.root:
            rights = "; no capabilities but over its own users' files and processes, of what is started as its root"
        lines = (
            f"own user, mount, process, network, IPC, host name and control group namespaces{rights}",
            guarantee(self._policy.network),
            "system call filter",
            *self._of_shell(),
            *guarantees(self._policy.limits, self._totals, scratch_bytes(self._policy.limits)),
            *self._exceptions,
        )
        return (*lines, f"made by {self._host.bwrap.source}") if self._host else lines

    @property
    def _totals(self) -> frozenset[str]:
        return self._groups.controllers

    async def _start(self) -> None:
        image = await self._take_image() if is_image(self._policy.rootfs) else None
        self._host = host = host_facts(self._policy.rootfs)
        uid = self._build.uid if self._build else sandbox_uid(self._layers)
        owners = layer_owners(self._layers, host, uid)
        shown, unshielded = shields(self._layers, owners, uid)
        self._exceptions = (*unshielded, *(unmapped(self._layers, owners, uid) if host.root else ()))
        owner = uid if host.root else None
        copies = await stoppable(lambda progress: self._copy_in(owner, progress)) if self._policy.copies else ()
        writable = await to_thread.run_sync(self._image_layer, image, owner) if image else None
        more = [one.folder for one in (self._build, writable) if one]
        await self._disk_watch((*copies, *more))
        where = places()
        sweep(where)
        self._groups = make_groups(self._policy.limits, where)
        groups = tuple(str(folder) for folder in self._groups.folders)
        launch = Launch(os.getpid(), uid, owners=owners, shields=shown, caches=self._caches(shown), copies=copies,
                        cgroups=groups, build=self._build, writable=writable)  # fmt: skip
        if self._policy.root:
            launch = launch._replace(ids=(ids := sandbox_ids()))
            if ids.outer:  # all from there on is done by somebody whose id is 0, and whose rights end at those ids
                host, launch = host._replace(uid=0, gid=0), launch._replace(uid=1)
        try:
            await self._connect(lambda stream: self._launch(host, stream, launch))
        except SandboxFailed as error:
            if self._child is None:
                raise
            status, said = await self._last_words()
            if said or status:
                raise start_failure(said, status) from error
            raise
        self._open().ended_for_memory = partial(ended_for_memory, self._groups)
        overlays = [layer for layer in self._layers if layer.strategy == "overlay"]
        if overlays and not host.root:
            self._walk = registry.load("overlay.prepare:OwnersWalk")(overlays, self._open().notes.append)

    def started_programs(self) -> tuple[Sequence[ProgramStart], int]:
        """As port.TellsPrograms has it."""
        return self._chain.trace.news() if self._chain and self._chain.trace else ((), 0)

    def _image_layer(self, image: "Image", uid: int | None) -> Writable:
        folder = (self._private or self._private_folder()) / "image"
        folder.mkdir()
        given = {"HOME": image.home, "USER": image.name, **self._policy.environment}
        self._policy = replace(self._policy, environment=given)
        begin = registry.load("backends.bubblewrap.image:begin_layer")
        paths, networked = inside_paths(self._policy, self._layers), self._policy.network.mode != "none"
        made: Writable = begin(image, self._cwd, paths, folder, uid, networked=networked)
        return made

    def _caches(self, shields: Sequence[bool]) -> tuple[int, ...]:
        """Layers that can be written to in memory; elsewhere they are only read."""
        inside = {rule.inside for rule in self._policy.lent if rule.mode == "overlay"}
        return tuple(number for number, layer in enumerate(self._layers) if layer.inside in inside and shields[number])

    def _launch(self, host: HostFacts, stream: socket.socket, launch: Launch) -> ProcessTree:
        self._chain = start_tree(self._policy, self._layers, host, stream, launch, traced=self.tells_programs)
        if self._watch:
            self._watch.start()
        return self._chain

    def _guard(self) -> int | None:
        return self._chain.pid if self._chain else None

    def _stoppable(self) -> Iterable[int]:
        """All but the guard, bubblewrap and the agent, which is process one of the inner of two namespaces."""
        for pid in descendants(self._chain.pid) if self._chain else ():
            if len(numbers := pids_of(pid)) == _NAMESPACES and numbers[-1] != 1:
                yield pid

    def _kill(self) -> None:
        if chain := self._chain:
            chain.kill()

    def _let_go(self, status: int | None) -> None:
        if self._walk:
            self._walk.stop()
        self._chain = None
        groups, self._groups = self._groups, Groups((), frozenset())
        if left := remove_groups(groups):
            raise SandboxFailed(f"a control group could not be removed: {left[0]}", "`stockade doctor --clean`")

    def _reason(self, stderr: str) -> str:
        return last_line(stderr)


BACKEND = Backend(BubblewrapSandbox.prepared, BubblewrapSandbox, shows_programs=True)
