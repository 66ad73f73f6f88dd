"""The sandbox of a run by its name: a new one, or one on the layers that a run has."""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path

from anyio import CancelScope, to_thread

from stockade.core.errors import StockadeError, UsageError, did_you_mean
from stockade.core.events import RunEvent, SandboxStarted
from stockade.core.ports import Backend, OnEvent, OnNetwork, OnProgress, Reviewer, Sandbox
from stockade.paths import run_dir, state_dir
from stockade.runtime import registry
from stockade_sandbox.overlay import Review
from stockade_sandbox.overlay.discard import TOMBSTONE, in_runs, remove_tree, sweep_tombstones
from stockade_sandbox.overlay.restore import note_holder
from stockade_sandbox.policy import Policy
from stockade_sandbox.processes import BOX, own_prefix
from stockade_sandbox.results import FolderLayer
from stockade_sandbox.stoppable import stoppable

GROUP: registry.Group = "stockade_sandbox.backends"
AUTO, DEFAULT, REMOTE = "auto", "bubblewrap", "remote"


async def prepare_sandbox(policy: Policy, backend: str, base: Path, on_progress: OnProgress | None = None) -> Sandbox:
    """open_sandbox in a thread: cancelled, it ends between two files that it copies, and leaves none."""
    return await stoppable(lambda progress: open_sandbox(policy, backend, base, progress), on_progress)


def open_sandbox(policy: Policy, backend: str, base: Path, on_progress: OnProgress | None = None) -> Sandbox:
    """A sandbox for `policy`, its layers under `base`. Raises before anything runs when it cannot be held.

    Blocks while a folder is copied.
    """
    return backend_of(backend).prepare(policy, base, on_progress)


def backend_of(name: str) -> Backend:
    """The backend of that name; of NAME=VALUE what it makes of the value. UsageError when there is none."""
    kind, equals, value = (f"{REMOTE}={name}" if "://" in name else DEFAULT if name == AUTO else name).partition("=")
    if kind not in (known := registry.names(GROUP)):
        raise UsageError(
            f"there is no sandbox {name!r}", did_you_mean(kind, known, f"choose {AUTO}, {', '.join(known)}")
        )
    result = registry.load(GROUP, kind)
    if not isinstance(result, Backend) and callable(result):
        result = registry.make(GROUP, kind, value)
    elif equals:
        raise UsageError(f"the sandbox {kind} takes no value", f"write --sandbox {kind}")
    if not isinstance(result, Backend):
        raise registry.wrong(GROUP, kind, f"is {type(result).__name__}, not a Backend")
    return result


def is_tried(name: str) -> bool:
    """Whether `stockade doctor` starts one beside the default: not what seals nothing, or needs a value."""
    if name == DEFAULT:
        return False
    try:
        result = registry.load(GROUP, name)
    except StockadeError:
        return True  # the trial says what is wrong with it
    return result.sealed if isinstance(result, Backend) else not callable(result)


def is_far(name: str, policy: Policy | None = None) -> bool:
    """Whether the folders of a sandbox are another machine's: but overlays, which are sent there and reviewed here. One
    that a program passed as an object is here.
    """
    sent = policy is not None and any(rule.mode == "overlay" for rule in policy.folders)
    return is_known(name) and backend_of(name).far and not sent


def is_sealed(name: str) -> bool:
    """Whether it holds anything. Who passes an object answers for it."""
    return not is_known(name) or backend_of(name).sealed


def is_known(name: str) -> bool:
    """Whether it is a backend's name, and not that of an object which a program passed."""
    return name == AUTO or "://" in name or name.partition("=")[0] in registry.names(GROUP)


def sweep_backends(names: Sequence[str] = ()) -> list[str]:
    """Removes what sandboxes of these backends, by default all, left when a process was killed; a name each."""
    removed: list[str] = []
    for name in names or registry.names(GROUP):
        with suppress(StockadeError):  # what it needs is not here: then it left nothing either
            sweep_one = backend_of(name).sweep
            removed += sweep_one() if sweep_one is not None else ()
    return removed


class WhileUp(Review):
    """Decides on the layers of a sandbox that is up: they are removed when it has ended."""

    def discard(self, layer: object) -> None:
        """Not yet."""


def reviewer(*, caches: bool = False, up: bool = False) -> Reviewer:
    """Of what bots wrote; without `caches` what tools keep for themselves is left out. `up`: the sandbox still is."""
    return (WhileUp if up else Review)(caches=caches)


def sandbox_on(policy: Policy, backend: str, base: Path, layers: Sequence[FolderLayer]) -> Sandbox:
    """The sandbox of that name on layers that are there already."""
    return backend_of(backend).reopen(policy, layers, base)


def noting_its_holder(run_id: str, sandbox: Sandbox, on_event: OnEvent | None) -> OnEvent:
    """Hears the events of a run and notes the sandbox's process, so that what a killed run leaves can be found."""

    def heard(event: RunEvent) -> None:
        if isinstance(event, SandboxStarted):
            note_holder(run_dir(run_id), getattr(sandbox, "host_pid", None))
        if on_event is not None:
            on_event(event)

    return heard


@asynccontextmanager
async def own_sandbox(
    policy: Policy, backend: str = "bubblewrap", on_network: OnNetwork | None = None
) -> AsyncIterator[Sandbox]:
    """A sandbox that is no run's, entered; it leaves nothing."""
    base = state_dir() / "boxes" / f"{own_prefix(BOX)}{secrets.token_hex(4)}"
    try:
        sandbox = await prepare_sandbox(policy, backend, base)
        sandbox.on_network = on_network
        async with sandbox:
            yield sandbox
    finally:
        with CancelScope(shield=True):
            if base.exists():
                await to_thread.run_sync(remove_tree, base)


def sweep(run_id: str) -> None:
    """Remove what is left of layers of a run that were thrown away while the process was killed."""
    with suppress(OSError):  # the next one tries again
        sweep_tombstones(run_dir(run_id))


@cache
def sweep_all(state: Path) -> None:
    """The same for all runs of that state, which other processes left: once in each process."""
    for tombstone in in_runs(state / "runs", f"{TOMBSTONE}*"):
        with suppress(OSError):
            sweep_tombstones(tombstone.parent)


def forget(run_id: str) -> None:
    """Remove what was prepared for a run that will not begin."""
    if run_dir(run_id).exists():
        remove_tree(run_dir(run_id))
