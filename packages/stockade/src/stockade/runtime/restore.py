"""The sandbox of a run that goes on: on the layers that it has, each brought back to its last snapshot on record."""

import time
from collections.abc import Sequence
from pathlib import Path

from stockade.core.events import RunEvent, RunStarted
from stockade.core.ports import OnProgress, Sandbox
from stockade.core.tool_plan import IN_PROCESS
from stockade.loop.state import RunState, fold
from stockade.paths import run_dir
from stockade.runtime.bots import bot_of
from stockade.runtime.sandboxes import prepare_sandbox, sandbox_on
from stockade.runtime.spec import REMOTE
from stockade_sandbox.backends.process_sandbox import PRIVATE
from stockade_sandbox.doctor.backend_probe import sweep_others
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.overlay.restore import restore
from stockade_sandbox.overlay.snapshot_store import await_gone
from stockade_sandbox.results import FolderLayer


class Restore:
    """Brings the layers of a run back, each to the snapshot on record, once nothing writes to them any more."""

    def __init__(
        self,
        run_id: str,
        backend: str,
        work: Sequence[tuple[FolderLayer, str | None, Path | None]],
        known: Sequence[FolderLayer],
    ) -> None:
        self._run_id, self._backend, self._work = run_id, backend, work
        self._known = {layer.layer for layer in known}

    def __call__(self) -> None:
        await_gone(run_dir(self._run_id))
        if self._backend in ("docker", "podman", "gvisor"):
            sweep_others()
        for layer, name, source in self._work:
            restore(layer, name, source)
        base = run_dir(self._run_id)
        for place in base.iterdir() if base.is_dir() else ():
            of_the_dead = place.name.startswith(PRIVATE)
            if of_the_dead or (place.name.isdecimal() and str(place.resolve()) not in self._known):
                remove_tree(place)  # made by a process that died before anything was done in it


def _still_there(layers: Sequence[FolderLayer]) -> list[bool]:
    return [not layer.is_lost for layer in layers]


async def sandbox_again(
    started: RunStarted, state: RunState, on_progress: OnProgress | None
) -> tuple[Sandbox, tuple[str | None, ...], Restore]:
    """On the layers that the run has; on new ones where they were applied or thrown away."""
    base, policy, backend = run_dir(started.run_id), started.policy, started.sandbox
    if backend.startswith(REMOTE):  # its folders are not here, and written directly
        return await prepare_sandbox(policy, backend, base, on_progress), (), Restore(started.run_id, backend, (), ())
    files = state.checkpoint.files if state.checkpoint else ()
    names = (*files, *[None] * (len(policy.folders) + len(policy.lent) - len(files)))
    layers = state.layers
    there = _still_there(layers)
    if layers and all(there):
        work = [(layer, name, None) for layer, name in zip(layers, names, strict=True)]
        return sandbox_on(policy, backend, base, layers), names, Restore(started.run_id, backend, work, layers)
    fresh = await prepare_sandbox(policy, backend, base, on_progress)
    sources = [
        Path(layer.layer) if present and layer.layer is not None else None
        for layer, present in zip(layers, there, strict=True)
    ] or [None] * len(fresh.layers)
    moved = [(layer, name, source) for layer, name, source in zip(fresh.layers, names, sources, strict=True) if source]
    return fresh, (None,) * len(names), Restore(started.run_id, backend, moved, (*layers, *fresh.layers))


def bring_back(history: Sequence[RunEvent]) -> bool:
    """Make the folders of a run that the machine went down with what they were at its last turn on record.

    Nobody had synced what the bot wrote: a layer may hold anything then, a snapshot does not. For who decides on the
    changes; `resume` does it anyway. False when there was no need: the run came to an end, or the machine is still up.
    Blocks. Raises what `restore` does.
    """
    started, state = history[0], fold(history)
    up_since = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    if not isinstance(started, RunStarted) or state.finished is not None or state.last_at > up_since:
        return False
    if started.sandbox.startswith(REMOTE):
        return False
    if not started.driver.startswith(IN_PROCESS) and not bot_of(started).loops:
        return False  # no snapshot of its files was ever taken
    files = state.checkpoint.files if state.checkpoint else ()
    names = (*files, *[None] * (len(state.layers) - len(files)))
    work = [
        (layer, name, None)
        for layer, name, there in zip(state.layers, names, _still_there(state.layers), strict=True)
        if there and layer.layer is not None
    ]
    if work:
        Restore(started.run_id, started.sandbox, work, state.layers)()
    return bool(work)


__all__ = ["Restore", "bring_back", "sandbox_again"]
