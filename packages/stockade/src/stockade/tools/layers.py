"""A tool made ready for a run: what it changes in the policy, and its installation, once, in a sandbox of its own.

Later runs find that as a layer. Its name is a hash of all that decides what is in it. It is made beside its place and
moved there when it is whole; who wants the same one meanwhile waits. How a layer is made and mounted is the maker's
business.
"""

import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread

from stockade.core.errors import SandboxFailed, UsageError
from stockade.tools.program import failed, host_files, ran, write_file
from stockade.tools.tool_files import CommandTool
from stockade_sandbox.backends.building import SystemLayers
from stockade_sandbox.backends.rootfs import STANDARD_ENVIRONMENT
from stockade_sandbox.locks import try_lock
from stockade_sandbox.policy import Network, Policy
from stockade_sandbox.results import NetworkRequest

INSTALL_S = 1800.0
UNUSED_S = 30 * 86_400.0
"""A layer that no run has asked for in this time makes room when another is made."""
_VERSION = 2
_DONE = "whole"
_LOOK_S = 0.2
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of this machine's user, in `folder`."""

    folder: Path
    maker: SystemLayers
    on_progress: OnProgress | None = None

    async def layer(self, tool: CommandTool, below: Sequence[str]) -> str:
        """The folder of the tool's layer, made when it is not there.

        CommandFailed names the command that failed and has the end of what it said.
        """
        key = await anyio.to_thread.run_sync(self._key, tool, tuple(below))
        place = self.folder / key
        try:
            if not (place / _DONE).is_file():
                async with self._alone(key, tool):
                    if not (place / _DONE).is_file():
                        await self._make(tool, below, place)
        except OSError as error:
            words = f"{tool.name} cannot be installed in {self.folder}: {error.strerror}"
            raise SandboxFailed(words, "see who may write there, and how much room is left") from error
        os.utime(place / _DONE)
        return str(place)

    def _key(self, tool: CommandTool, below: tuple[str, ...]) -> str:
        files = [(one.inside, one.mode, hashlib.sha256(data).hexdigest())
                 for one, data in host_files(tool, installed=True)]  # fmt: skip
        base = Path(below[-1]).name if below else self.maker.base()
        parts = [_VERSION, os.geteuid() == 0, base, tool.install, sorted(tool.environment.items()), files]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]

    @asynccontextmanager
    async def _alone(self, key: str, tool: CommandTool) -> AsyncIterator[None]:
        """One that makes this layer at a time. The lock ends with the process that holds it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / f".{key}.lock").open("w") as lock:
            while not try_lock(lock.fileno()):
                self._say(f"waiting for another run that installs {tool.name}")
                await anyio.sleep(_LOOK_S)
            yield

    def _say(self, words: str) -> None:
        if self.on_progress is not None:
            self.on_progress(words, 0, 0)

    async def _make(self, tool: CommandTool, below: Sequence[str], place: Path) -> None:
        building, run_dir = place.with_name(f".{place.name}.building"), place.with_name(f".{place.name}.run")
        remove = self.maker.remove
        try:
            await anyio.to_thread.run_sync(self._sweep)
            for left in (building, run_dir, place):
                await anyio.to_thread.run_sync(remove, left)
            await anyio.to_thread.run_sync(self.maker.begin, building, tuple(below), tool.hosts)
            await self._install(tool, below, building, run_dir)
            await anyio.to_thread.run_sync(self.maker.finish, building)
            (building / _DONE).touch()
            await anyio.to_thread.run_sync(os.sync)  # once an install: after a crash a layer that is there is whole
            building.rename(place)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(remove, building)
                await anyio.to_thread.run_sync(remove, run_dir)

    def _sweep(self) -> None:
        """Removes what killed installs left, and what was not used for UNUSED_S.

        Whoever still installs holds the lock of what they make.
        """
        left = [(path, path.with_suffix(".lock")) for path in self.folder.glob(".*.building")]
        left += [(path.with_name(path.name.replace(".building", ".run")), lock) for path, lock in left]
        long_ago = time.time() - UNUSED_S
        for done in self.folder.glob(f"[!.]*/{_DONE}"):
            if done.stat().st_mtime < long_ago:
                left.append((done.parent, self.folder / f".{done.parent.name}.lock"))
        for path, held in left:
            with held.open("w") as lock:
                if try_lock(lock.fileno()):
                    self.maker.remove(path)

    async def _install(self, tool: CommandTool, below: Sequence[str], building: Path, run_dir: Path) -> None:
        refused: dict[str, str] = {}

        def asked(request: NetworkRequest) -> None:
            if request.verdict == "refused":
                refused[request.host] = request.reason

        environment = {"DEBIAN_FRONTEND": "noninteractive", **tool.environment}
        box = self.maker.sandbox(building, below, tool.hosts, environment, run_dir)
        box.on_network = asked
        async with box:
            for file, data in host_files(tool, installed=True):
                await write_file(box, tool.name, file, data)
            before = None
            if tool.install and (index := self.maker.index(tool.hosts)) is not None:
                self._say(f"installing {tool.name}: {index}")
                before = await ran(box, index, INSTALL_S)
            for what, commands in (("installing", tool.install), ("verifying", tool.verify)):
                for command in commands:
                    self._say(f"{what} {tool.name}: {command}")
                    result = await ran(box, command, INSTALL_S)
                    if result.exit_code:
                        raise failed(tool, what, command, result, before, tuple(refused.values()))


async def prepare_tool(
    tool: CommandTool, policy: Policy, layers: Layers, *, environ: Mapping[str, str] = os.environ
) -> Policy:
    """The policy with all that the tool needs; installs what is not installed. UsageError when it cannot be had,
    naming the command that failed.
    """
    check_variables(tool, environ)
    passed = {name: environ[name] for name in tool.pass_environment}
    system, network = policy.system, policy.network
    if tool.needs_layer:
        system = (*system, await layers.layer(tool, system))
    if tool.runtime_hosts and network.mode != "open":
        network = Network(mode="allow", hosts=tuple(dict.fromkeys((*network.hosts, *tool.runtime_hosts))))
    # what is set already counts: by the user, or by a tool before this one
    environment = {**tool.environment, **passed, **policy.environment}
    if tool.path:
        environment["PATH"] = ":".join((*tool.path, environment.get("PATH", STANDARD_ENVIRONMENT["PATH"])))
    return replace(policy, environment=environment, system=system, network=network)


def check_layers(policy: Policy) -> None:
    """Of a run on record, whose policy has all that its tools need. UsageError when a layer is gone."""
    for layer in policy.system:
        if not Path(layer).is_dir():
            raise UsageError(f"a tool of this run is not installed any more: {layer}", "start a new run with --tool")


def check_variables(tool: CommandTool, environ: Mapping[str, str]) -> None:
    missing = [name for name in tool.pass_environment if not environ.get(name)]
    if missing:
        raise UsageError(f"the tool {tool.name} needs variables that are not set here: {', '.join(missing)}")
