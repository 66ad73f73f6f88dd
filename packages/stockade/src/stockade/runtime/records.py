"""The names of runs, the clock that they are dated by, and which run is meant where none is named."""

import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stockade.changes import facts, pending, taken_back
from stockade.core.errors import FolderMoved, UsageError
from stockade.core.events import RunStarted
from stockade.core.ports import Reviewer, RunStore
from stockade.paths import run_dir, state_dir
from stockade.store.opening import open_store, read_store
from stockade_sandbox.overlay import TakenBack
from stockade_sandbox.overlay.journal import Head, Journal, journals_on
from stockade_sandbox.overlay.safe_fs import encode_path
from stockade_sandbox.overlay.undo import holds

_OTHERWISE = "name the run (`last` is the newest of any folder, stockade runs list has all), or go to its folder"


class SystemClock:
    """Implements core.ports.Clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def new_run_id() -> str:
    """Sorts by time, short enough to type a prefix of: `20261122-020648-k3f9xw`."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + "".join(secrets.choice(alphabet) for _ in range(6))


def _is_of(folder: Path, host: str) -> bool:
    return Path(host) in (folder, *folder.parents)


async def newest_undecided(store: RunStore, reviewer: Reviewer, folder: Path) -> str:
    """The newest run of `folder`, or of one that it lies in, with changes to decide on, those taken back included; or
    the one whose apply or undo there was cut off, which goes first.

    UsageError when there is none.
    """
    cut_off = [run for _, head, run in _decided_on(folder) if head.step == "decided"]
    if cut_off:
        return max(cut_off)
    for summary in await store.runs():
        base = run_dir(summary.run_id)
        if not base.is_dir() or not any(entry.is_dir() for entry in base.iterdir()):
            continue
        events = await store.events(summary.run_id)
        found = facts(events)
        if found.started is not None and found.started.boss:
            continue  # a candidate: who wants another than the one that was taken names it
        layers = found.layers
        here = [layer for layer in layers if layer.layer is not None and _is_of(folder, layer.host)]
        if here and pending(reviewer, here):
            return summary.run_id
        with suppress(FolderMoved):
            if here and taken_back(TakenBack(), events):
                return summary.run_id
    raise UsageError(f"no run has changes in {folder} that are still to be decided on", _OTHERWISE)


async def newest_here(store: RunStore, folder: Path) -> str:
    """The newest run whose working folder this is; a helper's is its boss's. UsageError when there is none."""
    for summary in await store.runs(folder=str(folder)):
        if summary.problem is None:
            started = (await store.events(summary.run_id, limit=1))[0]
            if isinstance(started, RunStarted) and not started.boss and _works_in(started, folder):
                return summary.run_id
    raise UsageError(f"there is no run of {folder} to go on with", "stockade runs list names all; runs resume RUN")


def _works_in(started: RunStarted, folder: Path) -> bool:
    return started.policy.folder is not None and Path(started.policy.folder.host) == folder


def newest_applied(folder: Path) -> str:
    """The run whose changes to `folder`, or one that it lies in, were the last to be applied. UsageError: none was."""
    applied = [(head.at, run) for journal, head, run in _decided_on(folder) if holds(journal, head)]
    if not applied:
        raise UsageError(f"nothing was applied to {folder} that could be undone", _OTHERWISE)
    return max(applied)[1]


def _decided_on(folder: Path) -> Iterator[tuple[Journal, Head, str]]:
    """What was decided about `folder` or one that it lies in, and of which run."""
    hosts = [encode_path(str(one)) for one in (folder, *folder.parents)]
    for base, journal, head in journals_on(hosts, state_dir() / "runs"):
        yield journal, head, base.parent.name


__all__ = ["SystemClock", "new_run_id", "newest_applied", "newest_here", "newest_undecided", "open_store",
           "read_store"]  # fmt: skip
