"""The sandbox of a run by its name: a new one, or one on the layers that a run has."""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import to_thread

from stockade.assemble.tools import OnProgress
from stockade.core.changes import FolderLayer
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, SandboxStarted
from stockade.core.policy import Policy
from stockade.core.ports import Differ, Keeper, OnEvent, Reviewer, Sandbox
from stockade.options import REMOTE
from stockade.places import run_dir, state_dir


async def prepare_sandbox(policy: Policy, backend: str, base: Path, on_progress: OnProgress | None = None) -> Sandbox:
    """open_sandbox in a thread: cancelled, it ends between two files that it copies, and leaves none."""
    from stockade.sandboxes.stoppable import stoppable

    return await stoppable(lambda progress: open_sandbox(policy, backend, base, progress), on_progress)


def open_sandbox(policy: Policy, backend: str, base: Path, on_progress: OnProgress | None = None) -> Sandbox:
    """A sandbox for `policy`, its layers under `base`. Raises before anything runs when it cannot be held.

    Blocks while a folder is copied.
    """
    if backend in ("auto", "bubblewrap"):
        return _bubblewrap(policy, base, on_progress)
    if backend in ("docker", "podman"):
        from stockade.sandboxes.container import ContainerSandbox

        return ContainerSandbox.prepared(policy, base, "docker" if backend == "docker" else "podman", on_progress)
    if backend == "gvisor":
        from stockade.sandboxes.gvisor import GVisorSandbox

        return GVisorSandbox.prepared(policy, base, on_progress)
    if backend == "unconfined":
        from stockade.sandboxes.unconfined import UnconfinedSandbox

        return UnconfinedSandbox.prepared(policy, base, on_progress)
    if backend.startswith(REMOTE):
        from stockade.assemble.remote import remote_sandbox

        return remote_sandbox(policy, backend.removeprefix(REMOTE))
    raise UsageError(
        f"there is no sandbox {backend!r}", "choose bubblewrap, docker, podman, gvisor, unconfined or remote=HOST:PORT"
    )


def _bubblewrap(policy: Policy, base: Path, on_progress: OnProgress | None) -> Sandbox:
    from stockade.sandboxes.bubblewrap import BubblewrapSandbox, prepare_layers

    if policy.rootfs and not Path(policy.rootfs).is_dir():
        raise UsageError(
            f"--image {policy.rootfs}: bubblewrap takes a root file system directory",
            "images are for docker and podman",
        )
    return BubblewrapSandbox(policy, prepare_layers(policy, base, on_progress), base)


def reviewer() -> Reviewer:
    from stockade.sandboxes.folders import Review

    return Review()


def host_side() -> Differ:
    """How the host's files differ from what they were when a bot first changed them."""
    from stockade.sandboxes.folders import HostSide

    return HostSide()


def base_keeper(sandbox: Sandbox) -> Keeper:
    """Notes what the host has where the bot has written, in a sandbox without a run."""
    from stockade.sandboxes.keeping import base_keeper as keeper

    return keeper(sandbox.layers)


def taken_back() -> Differ:
    """What was applied of layers that are gone, and undone."""
    from stockade.sandboxes.folders import TakenBack

    return TakenBack()


def sandbox_on(policy: Policy, backend: str, base: Path, layers: Sequence[FolderLayer]) -> Sandbox:
    """The sandbox of that name on layers that are there already."""
    if backend == "bubblewrap":
        from stockade.sandboxes.bubblewrap import BubblewrapSandbox

        return BubblewrapSandbox(policy, layers, base)
    if backend in ("docker", "podman"):
        from stockade.sandboxes.container import ContainerSandbox

        return ContainerSandbox(policy, layers, base, "docker" if backend == "docker" else "podman")
    if backend == "gvisor":
        from stockade.sandboxes.gvisor import GVisorSandbox

        return GVisorSandbox(policy, layers, base)
    if backend == "unconfined":
        from stockade.sandboxes.unconfined import UnconfinedSandbox

        return UnconfinedSandbox(policy, layers, base)
    raise UsageError(f"there is no sandbox {backend!r} any more", "start a new run")


def noting_its_holder(run_id: str, sandbox: Sandbox, on_event: OnEvent | None) -> OnEvent:
    """Hears the events of a run and notes the sandbox's process, so that what a killed run leaves can be found."""
    from stockade.sandboxes.keeping import note_holder

    def heard(event: RunEvent) -> None:
        if isinstance(event, SandboxStarted):
            note_holder(run_dir(run_id), getattr(sandbox, "host_pid", None))
        if on_event is not None:
            on_event(event)

    return heard


@asynccontextmanager
async def own_sandbox(policy: Policy, backend: str = "bubblewrap") -> AsyncIterator[Sandbox]:
    """A sandbox that is no run's, entered; it leaves nothing."""
    from stockade.sandboxes.folders.discard import remove_tree

    base = state_dir() / "boxes" / secrets.token_hex(8)
    try:
        async with await prepare_sandbox(policy, backend, base) as sandbox:
            yield sandbox
    finally:
        if base.exists():
            await to_thread.run_sync(remove_tree, base)


def remove_folder(folder: Path) -> None:
    """With all that a bot may have left in it. UsageError when that is not possible."""
    from stockade.sandboxes.folders.discard import remove_tree

    try:
        remove_tree(folder)
    except OSError as error:
        raise UsageError(f"{folder} cannot be removed: {error.strerror}") from None
