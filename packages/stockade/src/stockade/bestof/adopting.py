"""What a candidate did becomes the run's own: its events behind the run's, its files in the run's layers.

The files are there to be shared before the record says so, and restored after: cut off in between, the run is brought
to its last checkpoint when it goes on, as after any kill.
"""

from collections.abc import Sequence
from pathlib import Path

import anyio
from anyio import to_thread

from stockade.core.events import (
    CandidateChosen,
    ChangesApplied,
    ChangesDiscarded,
    ChangesUndone,
    Checkpoint,
    ModelStarted,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    SandboxStarted,
)
from stockade.core.messages import Usage
from stockade.loop.run_context import RunContext
from stockade.loop.state import fold
from stockade_sandbox.overlay.restore import restore, share_snapshots
from stockade_sandbox.overlay.snapshots import LayerSnapshots
from stockade_sandbox.results import FolderLayer

_OWN = (RunStarted, RunResumed, RunFinished, SandboxStarted, ModelStarted, ChangesApplied, ChangesDiscarded,
        ChangesUndone)  # fmt: skip
"""What a run has for itself."""
Names = tuple[str | None, ...]


async def adopt(ctx: RunContext, run_id: str, usage: Usage, turns: int) -> None:
    """`usage` and `turns` are those of the candidate: its events tell them from here on. Raises what `restore` does."""
    history = await ctx.parts.store.events(run_id)
    state, mine = fold(history), ctx.parts.sandbox.layers
    names = await _last(state.layers, state.checkpoint.files if state.checkpoint else ())
    exports = state.checkpoint.exports if state.checkpoint else None
    with anyio.CancelScope(shield=True):  # on record and in the folders, or neither
        await to_thread.run_sync(_share, state.layers, mine, names)
        taken: list[RunEvent] = [event for event in history if not isinstance(event, _OWN)]
        chosen = CandidateChosen(at=ctx.now(), run_id=run_id, usage=usage, turns=turns)
        files = Checkpoint(at=ctx.now(), turn=state.turns, files=names, exports=exports)
        await ctx.add(chosen, *taken, *([files] if any(names) else []))
        await to_thread.run_sync(_restore, mine, names)


async def _last(layers: Sequence[FolderLayer], names: Names) -> Names:
    """Snapshots of what is there now that its sandbox is gone."""
    snapshots = LayerSnapshots(layers, names)
    try:
        return await snapshots.keep()
    finally:
        snapshots.close()


def _share(source: Sequence[FolderLayer], layers: Sequence[FolderLayer], names: Names) -> None:
    for old, new, name in zip(source, layers, names, strict=True):
        if name is not None:
            share_snapshots(old, new, name)


def _restore(layers: Sequence[FolderLayer], names: Names) -> None:
    for layer, name in zip(layers, names, strict=True):
        if name is not None and Path(str(layer.layer)).exists():
            restore(layer, name)
