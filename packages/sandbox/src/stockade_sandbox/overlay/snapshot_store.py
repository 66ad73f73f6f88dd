"""Snapshots of all layers of one run; and whose sandbox it was, so that none still writes when a layer is restored."""

import json
import os
import select
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread

from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.overlay.snapshots import Bases, Snapshots
from stockade_sandbox.processes import start_time
from stockade_sandbox.results import FolderLayer

HOLDER = "sandbox"
_END_S = 10.0


class LayerSnapshots:
    """Implements port.SnapshotStore. `names` are the snapshots that the layers are restored to; None is none yet.

    Data beyond `limit_bytes` a layer is forgotten, oldest first, but never that of the last two snapshots.
    `guard` as for Snapshots.
    """

    def __init__(
        self,
        layers: Sequence[FolderLayer],
        names: Sequence[str | None] = (),
        limit_bytes: int = 0,
        guard: Callable[[], int | None] = lambda: None,
    ) -> None:
        given = [*names, *[None] * (len(layers) - len(names))]
        self.layers: list[Snapshots | None] = [
            None if layer.strategy == "direct" else Snapshots(layer, name, limit_bytes, guard)
            for layer, name in zip(layers, given, strict=True)
        ]

    async def keep(self) -> tuple[str | None, ...]:
        return tuple([await self._one(layer) if layer else None for layer in self.layers])

    def close(self) -> None:
        for layer in self.layers:
            if layer:
                layer.close()

    async def _one(self, layer: Snapshots) -> str | None:
        """What takes a moment only, and needs no sync, is done here: a thread costs more."""
        if layer.unchanged():
            return layer.name
        with anyio.CancelScope(shield=True):  # a thread is not to be left behind with the layer
            await anyio.to_thread.run_sync(layer.take)
        return layer.name


def base_snapshots(layers: Sequence[FolderLayer]) -> LayerSnapshots:
    """Only notes what the host has where the layers show something: a copy knows that from its beginning."""
    snapshots = LayerSnapshots(())
    snapshots.layers = [Bases(layer) for layer in layers if layer.strategy == "overlay"]
    return snapshots


def note_holder(run_dir: Path, pid: int | None) -> None:
    """Which process the sandbox of this run hangs on, for `await_gone` of another process."""
    if pid is not None and run_dir.is_dir():
        (run_dir / HOLDER).write_text(json.dumps({"pid": pid, "start": start_time(pid)}))


def forget_holder(run_dir: Path) -> None:
    (run_dir / HOLDER).unlink(missing_ok=True)


def await_gone(run_dir: Path) -> None:
    """Returns when the sandbox of a killed run has ended, and all that was in it; ends it when it has not. Blocks.

    SandboxFailed when it does not go: nothing may be restored under its hands.
    """
    try:
        noted = json.loads((run_dir / HOLDER).read_text())
        pid, start = int(noted["pid"]), int(noted["start"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return
    with suppress(ProcessLookupError, OverflowError):
        fd = os.pidfd_open(pid)
        try:
            if start_time(pid) == start and not _ended(fd, 0.2):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                if not _ended(fd, _END_S):
                    raise SandboxFailed(f"the sandbox of this run is still there (process {pid})", "end it by hand")
        finally:
            os.close(fd)
    forget_holder(run_dir)


def _ended(pidfd: int, patience_s: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(patience_s * 1000))
