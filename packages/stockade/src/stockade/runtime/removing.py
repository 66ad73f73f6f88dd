"""Removing runs for good: the record, what lies in their folders, and what undo needs.

The record decides: once a run is removed from it, what is left of the run anywhere is nobody's, and whoever comes next
(`runs rm`, `runs prune`, `doctor --clean`) removes it. So a kill at any point leaves nothing that a second try does not
complete.
"""

import os
import secrets
import sys
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import from_thread, to_thread

from stockade import git
from stockade.bestof.terms import MOST, facts_of_candidates
from stockade.changes import RunFacts, complete, facts, kept_layers, pending
from stockade.core.errors import FolderMoved, LayerLost, RunTaken, SandboxFailed, StoreFailed, UsageError
from stockade.core.events import RunEvent
from stockade.core.ports import Reviewer, RunStore
from stockade.core.summary import RunSummary, never_began
from stockade.paths import run_dir, state_dir
from stockade.run_lock import is_locked
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.results import FolderLayer

REMOVED = ".removed-"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run that would be removed. `size`: bytes of its folders; `undo`: what it applied can be undone until then.

    `stays`: why it is not removed; empty when it is.
    """

    run: RunSummary
    size: int = 0
    undo: bool = False
    stays: str = ""


async def candidates(
    store: RunStore, reviewer: Reviewer, *, before: float | None = None, keep: int | None = None
) -> list[Candidate]:
    """The runs that began `before` (UNIX s) and are not among the newest `keep`, newest first; all when both are None.

    Helpers of a run go with it. One whose record is damaged is none: nobody knows when it began. A failed start is no
    run: it does not count among the newest, and goes whenever it was.
    """
    whole = [run for run in await store.runs() if run.problem is None and "." not in run.run_id]
    begun = [run for run in whole if not never_began(run.status, run.turns)]
    stays = {run.run_id for run in begun[: keep or 0]} | {
        run.run_id for run in begun if before and run.started >= before
    }
    old = [run for run in whole if run.run_id not in stays]
    return [await _candidate(store, reviewer, run) for run in old]


async def _candidate(store: RunStore, reviewer: Reviewer, run: RunSummary) -> Candidate:
    if run.driver is not None or is_locked(run.run_id):
        return Candidate(run, stays="it is under way")
    folder = run_dir(run.run_id)
    if not folder.is_dir() and not any(run_dir(f"{run.run_id}.{n}").is_dir() for n in range(1, MOST + 1)):
        return Candidate(run)
    try:
        events = await store.events(run.run_id)
        result, others = facts(events), await facts_of_candidates(store, events)
    except StoreFailed as error:
        return Candidate(run, stays=error.message)
    size = await to_thread.run_sync(_size, folder)
    if await to_thread.run_sync(_is_undecided, (result, *others), reviewer):
        return Candidate(run, size, stays="nobody decided on its changes")
    return Candidate(run, size, undo=result.applied is not None)


async def remove(store: RunStore, reviewer: Reviewer, run_id: str, *, force: bool = False) -> list[str]:
    """A run and its helpers, and the git worktree that was made for it. What lies in their folders goes with the next
    `sweep_removed`. What is left of the worktree, in words for the user.

    UsageError while it is under way, or when nobody decided on its changes. `force`: those are thrown away; so is a run
    whose record is damaged. RunTaken, StoreFailed, FolderMoved, SandboxFailed.
    """
    if is_locked(run_id):
        raise UsageError(
            f"run {run_id} is still under way", f"wait for its end, or stop it; then: stockade runs rm {run_id}"
        )
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(store.driving(run_id))
            events = await store.events(run_id)
        except RunTaken:
            raise
        except StoreFailed as error:
            if not force:
                raise StoreFailed(error.message, f"remove it as it is: stockade runs rm --force {run_id}") from error
            await store.remove(run_id)
            return []
        return await to_thread.run_sync(_remove, store, reviewer, run_id, events, force)


def _remove(store: RunStore, reviewer: Reviewer, run_id: str, events: Sequence[RunEvent], force: bool) -> list[str]:
    """In a thread: nobody applies, undoes or goes on with it meanwhile."""

    def record(event: RunEvent) -> None:
        from_thread.run(store.append, run_id, [event])

    result = facts(complete(reviewer, events, record))
    try:
        with reviewer.holding(result.layers):
            others = from_thread.run(facts_of_candidates, store, events)
            if not force and _is_undecided((result, *others), reviewer):
                raise UsageError(
                    f"nobody decided on the changes of run {run_id}",
                    f"stockade diff|apply|discard {run_id}; or throw them away too: stockade runs rm --force {run_id}",
                )
            left = from_thread.run(partial(drop_worktrees, store, run_id, result.layers, with_commits=True))
            from_thread.run(store.remove, run_id)
            _bury(run_dir(run_id))
            return left
    except FolderMoved as error:
        if not force:
            raise FolderMoved(error.message, f"{error.hint}; or: stockade runs rm --force {run_id}") from error
        from_thread.run(store.remove, run_id)
        _bury(run_dir(run_id))
        return []


async def take_back(store: RunStore, reviewer: Reviewer, run_id: str) -> None:
    """A run that was made and cannot go on: nothing is left of it."""
    await remove(store, reviewer, run_id, force=True)
    await sweep_removed(store)


async def drop_worktrees(
    store: RunStore, run_id: str, layers: Iterable[FolderLayer], *, with_commits: bool
) -> list[str]:
    """Remove the git worktrees that were made for a run, unless another run works there, somebody stands there, or
    something in them is not committed. What stays, in words for the user.

    `with_commits`: also those that were committed in; their branch stays.
    """
    left = list[str]()
    for layer in layers:
        made = await to_thread.run_sync(git.worktree_of_run, Path(layer.host))
        if made is None or (not made.base and not with_commits):
            continue
        others = {one.run_id.partition(".")[0] for one in await store.runs(folder=str(made.place))} - {run_id}
        inside = Path.cwd().is_relative_to(made.place)
        if (
            others
            or inside
            or not await to_thread.run_sync(partial(git.drop_worktree, made, keep_branch=not made.base))
        ):
            why = "another run works there" if others else "you are in it" if inside else "not all in it is committed"
            left.append(f"the worktree {made.place} stays: {why}")
        elif not made.base:
            left.append(f"the worktree {made.place} is removed; its branch {made.branch} stays, for its commits")
    return left


async def sweep_removed(store: RunStore) -> list[Path]:
    """What is left on this machine of runs that were removed from this record, and of large outputs of nobody's.

    The folders that were removed. SandboxFailed when one cannot be.
    """
    gone = await to_thread.run_sync(_sweep, await store.removed())
    await store.sweep()
    return gone


def _sweep(gone: dict[str, float]) -> list[Path]:
    runs = state_dir() / "runs"
    for folder in list(runs.iterdir()) if runs.is_dir() else ():
        if folder.name in gone and not is_locked(folder.name):
            _bury(folder)
    dead = sorted(runs.glob(f"{REMOVED}*"))
    for tombstone in dead:
        try:
            with suppress(FileNotFoundError):  # somebody else removes it too
                remove_tree(tombstone)
        except OSError as error:
            what = f"the run is removed, but not all of its folder: {tombstone}: {error.strerror}"
            raise SandboxFailed(what, "mend that; the next `stockade runs rm` or `prune` removes the rest") from error
    return dead


def _bury(folder: Path) -> None:
    """By one rename: nobody meets half of a run."""
    sys.audit("stockade.step", "run.buried")
    with suppress(FileNotFoundError):
        folder.rename(folder.with_name(f"{REMOVED}{folder.name}-{secrets.token_hex(4)}"))


def _is_undecided(runs: Iterable[RunFacts], reviewer: Reviewer) -> bool:
    """Whether removing them would lose what somebody may want: also where that cannot be told any more."""
    for found in runs:
        if found.discarded is not None or not kept_layers(found.layers):
            continue
        try:
            if pending(reviewer, found.layers):
                return True
        except (FolderMoved, LayerLost, SandboxFailed):
            return True
    return False


def _size(folder: Path) -> int:
    """What it takes on disk, in bytes."""
    size = 0
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(OSError):
                size += os.lstat(f"{path}/{name}").st_blocks * 512
    return size
