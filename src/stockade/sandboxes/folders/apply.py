"""Writing chosen changes to the host folder.

First everything is checked, then all new content is written to one staging folder inside the host folder and brought to
disk, and only then are entries removed and renamed into place. So a full disk changes nothing, and a crash at any point
leaves each file old or new; applying again completes it.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from stockade.core.changes import Change, FolderLayer
from stockade.core.errors import SandboxFailed, UsageError
from stockade.sandboxes.folders.changes import Comparison, check_whole, compare_all
from stockade.sandboxes.folders.conflicts import check_conflicts, listed
from stockade.sandboxes.folders.hostile import join, parent, spell, unspell
from stockade.sandboxes.folders.merging import resolved
from stockade.sandboxes.folders.record import JOURNAL_FILE, OpenLayer, open_layer
from stockade.sandboxes.folders.writing import Chosen, Writer, removes

PATIENCE_S = 60.0


def apply_changes(
    layer: FolderLayer, changes: Iterable[Change], *, force: bool = False, merge: bool = False
) -> tuple[str, ...]:
    """Make the host folder as the bot left it, for the given changes only. Returns the paths that were written.

    Raises UsageError, with nothing written, when a change is refused, is not what the layer holds now, needs another
    one that was not chosen; ChangedOnHost when the host has other content than the run met (`force`: the bot's is
    written over it; `merge`: both are merged, and only what cannot be is a conflict); SandboxFailed when the
    disk is full or broken.
    """
    asked = list(changes)
    if layer.strategy == "direct" or not asked:
        return ()
    with _explained(layer), open_layer(layer, writing=True) as opened:
        _wait_alone(layer, opened)
        check_whole(layer, opened.written)
        comparison = Comparison(opened)
        actual = compare_all(comparison)
        chosen = _chosen(asked, actual)
        _check_complete(chosen, actual, opened)
        if not (force or merge):
            check_conflicts(chosen, opened, comparison.base)
        with resolved(chosen, opened, comparison.base, force=force, merge=merge) as (result, source):
            opened.host.forget()
            writer = Writer(source)
            writer.sweep()
            if result:
                writer.write(result)
        if chosen and (merge or len(chosen) < len(actual)):
            comparison.base.remember(opened.written, chosen)
        (opened.base / JOURNAL_FILE).unlink(missing_ok=True)
        return tuple(change.path for change in chosen.values())


def _wait_alone(layer: FolderLayer, opened: OpenLayer) -> None:
    """Until no other run is being applied to this folder: each would sweep away what the other has staged in it."""
    patience = time.monotonic() + PATIENCE_S
    while True:
        try:
            return fcntl.flock(opened.host.root_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > patience:
                raise UsageError(f"another run is being applied to {layer.host}", "apply again after it") from error
            time.sleep(0.02)  # two commands of the same person at once; there is nothing else to wake for


@contextmanager
def _explained(layer: FolderLayer) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"cannot apply to {layer.host}: {error.strerror}"
        name = f" ({os.fsdecode(error.filename)!r})" if isinstance(error.filename, str | bytes) else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SandboxFailed(
                what, "free some space and apply again; each file is still the old or the new one"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise UsageError(what + name, "apply as who may write there") from error
        raise SandboxFailed(what + name, "mend that and apply again") from error


def _chosen(asked: list[Change], actual: Chosen) -> Chosen:
    """What of the asked is still to be done, folders first. What the host already has is passed over."""
    refused = [change for change in asked if change.refused]
    wanted = {unspell(change.path): change for change in asked}
    refused += [actual[path] for path in wanted if path in actual and actual[path].refused and not wanted[path].refused]
    if refused:
        raise UsageError(f"cannot be applied: {refused[0].path!r} is {refused[0].refused}", "leave it out")
    other = [path for path, change in wanted.items() if path in actual and not _same_result(change, actual[path])]
    if other:
        raise UsageError(f"changed since it was looked at: {listed(map(spell, other))}", "look at the changes again")
    return {path: change for path, change in actual.items() if path in wanted}


def _same_result(one: Change, other: Change) -> bool:
    """Whether both leave the same behind. How they come there may differ after an interrupted apply."""
    gone = [change.kind == "deleted" for change in (one, other)]
    if any(gone):
        return all(gone)
    return (one.entry, one.size, one.mode, one.target) == (other.entry, other.size, other.mode, other.target)


def _check_complete(chosen: Chosen, actual: Chosen, opened: OpenLayer) -> None:
    for path, change in chosen.items():
        before = opened.host.node(path)
        if removes(change) and before is not None and before.kind == "directory":
            kept = [join(path, name) for name in opened.host.names(path)]
            kept = [below for below in kept if below not in chosen or chosen[below].kind != "deleted"]
            if kept:
                what = f"{change.path!r} cannot be removed: the host still has {listed(map(spell, kept))} in it"
                raise UsageError(what, "choose their removal too")
        if change.kind != "deleted":
            _check_parents(path, chosen, actual, opened)


def _check_parents(path: str, chosen: Chosen, actual: Chosen, opened: OpenLayer) -> None:
    folder = parent(path)
    while folder:
        made = chosen.get(folder)
        if made is not None and made.entry == "directory" and made.kind in ("added", "type"):
            return
        before = opened.host.node(folder)
        if before is not None and before.kind != "directory":
            raise UsageError(f"{spell(path)!r} cannot be written: {spell(folder)!r} is a {before.kind} on the host",
                             "choose its change too")  # fmt: skip
        if before is not None:
            return
        if folder not in actual or actual[folder].refused:
            raise UsageError(f"{spell(path)!r} cannot be written: the host has no folder {spell(folder)!r} any more",
                             "make it and apply again")  # fmt: skip
        folder = parent(folder)
