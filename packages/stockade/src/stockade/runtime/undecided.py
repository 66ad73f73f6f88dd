"""Which run is meant where none is named: the newest of a folder."""

from pathlib import Path

from stockade.changes import facts, pending
from stockade.core.errors import UsageError
from stockade.core.ports import Reviewer, RunStore
from stockade.paths import run_dir, state_dir
from stockade_sandbox.overlay.journal import journals_on
from stockade_sandbox.overlay.safe_fs import spell


def _is_of(folder: Path, host: str) -> bool:
    return Path(host) in (folder, *folder.parents)


async def newest_undecided(store: RunStore, reviewer: Reviewer, folder: Path) -> str:
    """The newest run of `folder`, or of one that it lies in, with changes to decide on, those taken back included.

    UsageError when there is none.
    """
    for summary in await store.runs():
        base = run_dir(summary.run_id)
        if not base.is_dir() or not any(entry.is_dir() for entry in base.iterdir()):
            continue
        found = facts(await store.events(summary.run_id))
        here = [layer for layer in found.layers if layer.layer is not None and _is_of(folder, layer.host)]
        taken_back = found.undone is not None and any(reviewer.decisions(layer) for layer in here)
        if here and (taken_back or pending(reviewer, here)):
            return summary.run_id
    raise UsageError(f"no run has changes in {folder} that are still to be decided on", "stockade runs list names all")


def newest_applied(folder: Path) -> str:
    """The run whose changes to `folder`, or one that it lies in, were the last to be applied. UsageError: none was."""
    hosts = [spell(str(one)) for one in (folder, *folder.parents)]
    found = journals_on(hosts, state_dir() / "runs")
    applied = [(head.at, base.parent.name) for base, _, head in found if head.goal == "after"]
    if not applied:
        raise UsageError(f"nothing was applied to {folder} that could be undone", "stockade runs list names all runs")
    return max(applied)[1]
