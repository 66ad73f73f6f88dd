"""Writing chosen changes to the host folder, with what undo needs.

First everything is checked, then all new content is staged and all that it replaces is kept, then the decision is made
durable, and only then are entries removed and renamed into place (writing.py).
"""

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from stockade_sandbox.errors import ReviewOutdated, SandboxFailed, UsageError
from stockade_sandbox.overlay.changes import Comparison, check_whole, compare_all, digest
from stockade_sandbox.overlay.commits import INDEX, check_and_fetch, finish_index, index_follows
from stockade_sandbox.overlay.contents import Contents
from stockade_sandbox.overlay.journal import Entry, Look, forget_undone, journals_of, new_journal
from stockade_sandbox.overlay.merging import Merged, check_conflicts, listed, picked, resolved
from stockade_sandbox.overlay.record import OpenLayer, open_layer
from stockade_sandbox.overlay.safe_fs import decode_path, encode_path, join, parent
from stockade_sandbox.overlay.store import number_after
from stockade_sandbox.overlay.writing import (
    Chosen,
    Exchange,
    Record,
    alone,
    counted,
    recover,
    removes,
)
from stockade_sandbox.records import replace
from stockade_sandbox.results import Change, FolderLayer
from stockade_sandbox.stoppable import Progress, quietly


def apply_changes(
    layer: FolderLayer,
    changes: Iterable[Change],
    *,
    force: bool = False,
    merge: bool = False,
    contents: Mapping[str, bytes] | None = None,
    reviewed: Mapping[str, str] | None = None,
    record: Record | None = None,
    progress: Progress = quietly,
) -> tuple[str, ...]:
    """Make the host folder as the bot left it, for the given changes only. Returns the paths that were written.

    Raises UsageError, with nothing written, when a change is refused, is not what the layer holds now, needs another
    one that was not chosen; ChangedOnHost when the host has other content than the run met (`force`: the bot's is
    written over it; `merge`: both are merged, and only what cannot be is a conflict); SandboxFailed when the
    disk is full or broken; ReviewOutdated when a change has another digest than `reviewed` says. `contents`: of files
    that are applied in part, what is written. Also when it fails in the middle the folder is as it was.
    """
    if contents and merge:
        raise UsageError("a file is either merged or applied in part", "merge first, then choose hunks")
    asked = list(changes)
    if layer.strategy == "direct" or not asked:
        return ()
    with explained(layer.host, journals_of(layer)), open_layer(layer, writing=True) as opened, alone(opened.host):
        recover(opened.host, opened.base.parent.parent, layer)
        finish_index(opened.base / INDEX)
        check_whole(layer, opened.written)
        comparison = Comparison(opened, counting=False)
        actual = compare_all(comparison)
        chosen = _chosen(asked, actual)
        _check_complete(chosen, actual, opened)
        if reviewed is not None:
            _check_reviewed(chosen, reviewed, opened)
        if not (force or merge):
            check_conflicts(chosen, opened, comparison.base)
        check_and_fetch(opened, chosen, force=force)
        if chosen and not opened.is_copy:  # once it is written over, nobody knows any more what it was
            new = [path for path in chosen if comparison.base.is_new(path)]
            comparison.base.capture(number_after(opened.base), opened.host, opened.written, new)
        with picked(chosen, opened, contents or {}) as (chosen, opened):
            if chosen and (merge or contents or len(chosen) < len(actual)):
                comparison.base.keep(opened.written, chosen)
            with resolved(chosen, opened, comparison.base, force=force, merge=merge) as (result, source):
                if result:
                    with index_follows(opened.host, layer.host, result, opened.base / INDEX):
                        _write(source, result, record, progress)
        return tuple(change.path for change in chosen.values())


def _write(opened: OpenLayer, chosen: Chosen, record: Record | None, progress: Progress) -> None:
    host, journals = opened.host, journals_of(opened.layer)
    forget_undone(journals)
    host.forget()
    with Exchange(host, new_journal(journals), len(chosen), progress) as exchange:
        try:
            exchange.loosen(chosen)
            made = _with_folders(chosen, opened)
            entries = [
                _entry(number, path, change, exchange.contents, opened)
                for number, (path, change) in counted("preparing", made.items(), progress)
            ]
            exchange.staged()
        except BaseException:
            exchange.abandon()
            raise
        try:
            exchange.carry_out(opened.layer, opened.record.started_ns, "after", entries, record)
        except BaseException:
            forget_undone(journals)
            raise


def _with_folders(chosen: Chosen, opened: OpenLayer) -> Chosen:
    """The chosen changes and the folders around them that the host does not have, which are made too."""
    every = dict(chosen)
    for path, change in chosen.items():
        folder = parent(path) if change.kind != "deleted" else ""
        while folder and folder not in every and opened.host.node(folder) is None:
            made = opened.written.node(folder)
            mode = made.mode & 0o1777 if made else 0o755
            every[folder] = Change(path=encode_path(folder), kind="added", entry="directory", mode=mode)
            folder = parent(folder)
    if len(every) == len(chosen):
        return every
    return {path: every[path] for path in sorted(every, key=lambda path: path.split("/"))}


def _entry(number: int, path: str, change: Change, contents: Contents, opened: OpenLayer) -> Entry:
    """What is kept and staged for one change."""
    before = opened.host.node(path)
    if change.kind == "mode" and (change.entry == "directory" or (before is not None and before.stat.st_nlink == 1)):
        old = contents.look(path, before)
        return Entry(change.path, old, replace(old, mode=change.mode & 0o1777), content=False)
    old = contents.keep(number, path, before, "before")
    if change.kind == "deleted":
        return Entry(change.path, old, Look())
    if change.entry == "directory":
        return Entry(change.path, old, Look("directory", change.mode & 0o1777))
    after = contents.stage(number, path, change, before, opened.written)
    return Entry(
        change.path, old, after, bots=opened.written.bots(path) if isinstance(opened.written, Merged) else None
    )


@contextmanager
def explained(folder: str, kept: Path) -> Iterator[None]:
    """Around what writes to the folder, and to `kept` what it takes to go back."""
    try:
        yield
    except OSError as error:
        what = f"cannot write to {folder}: {error.strerror}"
        name = f" ({os.fsdecode(error.filename)!r})" if isinstance(error.filename, str | bytes) else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SandboxFailed(
                what, f"free some space there, or where {kept} is, and try again; the folder is as it was"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise UsageError(what + name, "apply as who may write there") from error
        raise SandboxFailed(what + name, "mend that and try again") from error


def _chosen(asked: list[Change], actual: Chosen) -> Chosen:
    """What of the asked is still to be done, folders first. What the host already has is passed over."""
    refused = [change for change in asked if change.refused]
    wanted = {decode_path(change.path): change for change in asked}
    refused += [actual[path] for path in wanted if path in actual and actual[path].refused and not wanted[path].refused]
    if refused:
        raise UsageError(f"cannot be applied: {refused[0].path!r} is {refused[0].refused}", "leave it out")
    other = [path for path, change in wanted.items() if path in actual and not _same_result(change, actual[path])]
    if other:
        raise UsageError(
            f"changed since it was looked at: {listed(map(encode_path, other))}", "look at the changes again"
        )
    return {path: change for path, change in actual.items() if path in wanted}


def _check_reviewed(chosen: Chosen, reviewed: Mapping[str, str], opened: OpenLayer) -> None:
    """ReviewOutdated, naming them, when some are not what was looked at."""
    other = [change.path for change in chosen.values() if reviewed.get(change.path) != digest(change, opened)]
    if other:
        raise ReviewOutdated(f"changed since it was looked at: {listed(other)}", "look at the changes again")


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
                what = f"{change.path!r} cannot be removed: the host still has {listed(map(encode_path, kept))} in it"
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
            what = f"{encode_path(path)!r} cannot be written: {encode_path(folder)!r} is a {before.kind} on the host"
            raise UsageError(what, "choose its change too")
        if before is not None:
            return
        if folder not in actual or actual[folder].refused:
            what = f"{encode_path(path)!r} cannot be written: the host has no folder {encode_path(folder)!r} any more"
            raise UsageError(what, "make it and apply again")
        folder = parent(folder)
