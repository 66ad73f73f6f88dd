"""Taking back what was applied, and applying it again: a journal read backwards, and forwards (journal.py).

An entry goes back only if it is still what apply left. What was edited since stays, and is named.
"""

import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from stockade_sandbox.errors import FolderMoved
from stockade_sandbox.overlay.apply import explained
from stockade_sandbox.overlay.commits import INDEX, finish_index, index_follows
from stockade_sandbox.overlay.journal import (
    STAGING,
    Entry,
    Head,
    Journal,
    Look,
    Side,
    all_journals,
    forget_undone,
    journals_of,
    journals_on,
    new_journal,
)
from stockade_sandbox.overlay.safe_fs import DirTree, decode_path, encode_path, parent
from stockade_sandbox.overlay.writing import (
    Exchange,
    alone,
    counted,
    decision_of,
    recover,
)
from stockade_sandbox.port import Deciding
from stockade_sandbox.records import replace
from stockade_sandbox.results import Change, Decision, FolderLayer, Moved, shown_path
from stockade_sandbox.stoppable import quietly

_THERE = "it is so already"
_EDITED = "it was edited since"
_LOST = "what was kept of it was written to since, or is gone"
_OTHER = "it was not asked for"
_FULL = "it is a folder with something in it now"


@dataclass
class _Opened:
    layer: FolderLayer
    host: DirTree
    runs: Path
    journals: list[Journal]
    was_cut_off: bool
    """A decision about the folder, which is complete now."""


@contextmanager
def _opened(layer: FolderLayer) -> Iterator[_Opened]:
    """The host folder of a layer, which may be gone itself; alone, and whatever was cut off is complete."""
    with explained(layer.host, journals_of(layer)):
        try:
            host = DirTree(Path(layer.host)).__enter__()
        except OSError as error:
            raise FolderMoved(f"cannot open the folder {layer.host}: {error.strerror}", "move it back") from error
        try:
            journals = journals_of(layer)
            for head in filter(None, (one.head() for one in all_journals(journals))):
                if not head.folder.is_of(host.root_fd):
                    raise FolderMoved(
                        f"{layer.host} is another folder than the one that was written to", "move it back"
                    )
            with alone(host):
                was_cut_off = recover(host, journals.parent.parent, layer)
                yield _Opened(layer, host, journals.parent.parent, all_journals(journals), was_cut_off)
        finally:
            host.__exit__(None, None, None)


def _paths(opened: _Opened) -> list[str]:
    return [decode_path(entry.path) for journal in opened.journals for entry in journal.entries()]


def undo_layer(layer: FolderLayer, only: Collection[str] | None = None, **how: Unpack[Deciding]) -> Moved:
    """Everything that was applied of a layer as it was before, the last first; or what is shown as one of `only`, where
    a file that was only renamed goes with its other name. Also when the layer is gone.

    Only `force` takes back what was edited since; that too is kept, and comes again with `redo_layer`. UsageError and
    SandboxFailed as of apply; nothing is half then.
    """
    if layer.layer is None or not all_journals(journals_of(layer)):
        return Moved()
    with _opened(layer) as opened, index_follows(opened.host, layer.host, _paths(opened)):
        found = _all(opened, reversed(opened.journals), "before", how, only)
        # where the layer is there, it is all that is to be applied again
        forget_undone(journals_of(layer), again=layer.is_lost)
    return found


def redo_layer(
    layer: FolderLayer,
    changes: Iterable[Change] | None = None,
    contents: Mapping[str, bytes] | None = None,
    **how: Unpack[Deciding],
) -> Moved:
    """What was taken back is applied again, in the order in which it was, or some `changes` of it; of files with
    `contents`, these. Errors as of undo.
    """
    if layer.layer is None or not all_journals(journals_of(layer)):
        return Moved()
    with _opened(layer) as opened, index_follows(opened.host, layer.host, _paths(opened)):
        forget_undone(journals_of(layer), again=True)
        opened.journals = all_journals(journals_of(layer))
        if changes is None and not any(head.again for head in _heads(opened.journals)):
            return _all(opened, opened.journals, "after", how)
        chosen = None if changes is None else {decode_path(change.path) for change in changes}
        return _redo_some(opened, chosen, {decode_path(path): data for path, data in (contents or {}).items()}, how)


def recover_folder(folder: Path, runs: Path) -> bool:
    """Complete what was cut off in a folder that nothing is known of; quick where there is no sign of anything.

    `runs` has a folder for each run. Whether anything had been decided.
    """
    try:
        names = os.listdir(folder)
    except PermissionError:
        return False
    if not any(name.startswith(STAGING) for name in names):
        return False
    with explained(str(folder), runs), DirTree(folder) as host, alone(host):
        return recover(host, runs)


@contextmanager
def holding(layers: Iterable[FolderLayer]) -> Iterator[None]:
    """Nobody applies to the folders of these layers meanwhile, and nothing there is cut off.

    FolderMoved when something is, of a folder that is not there; one that is gone otherwise is passed over.
    """
    with ExitStack() as stack:
        for _, layer in sorted({layer.host: layer for layer in layers if layer.layer is not None}.items()):
            try:
                stack.enter_context(_opened(layer))
            except FolderMoved:
                heads = [one.head() for one in all_journals(journals_of(layer))]
                if any(head is not None and head.step == "decided" for head in heads):
                    raise
        yield


@contextmanager
def open_journals(layer: FolderLayer) -> Iterator[tuple[DirTree, list[Journal]]]:
    """The host folder of a layer that may be gone, and what was decided about it, oldest first."""
    with _opened(layer) as opened:
        yield opened.host, opened.journals


def recover_layer(layer: FolderLayer) -> bool:
    """The same for the folder of a layer, where that is still there."""
    if layer.strategy != "direct" and layer.layer is not None and Path(layer.host).is_dir():
        with suppress(FolderMoved), _opened(layer) as opened:
            finish_index(Path(layer.layer, INDEX))
            return opened.was_cut_off
    return False


def decisions(layer: FolderLayer) -> list[Decision]:
    """The last one of each journal, oldest first, as it is on record unless a kill was in between."""
    journals = all_journals(journals_of(layer)) if layer.layer is not None else []
    found = ((one.head(), one) for one in journals)
    events = [decision_of(head, journal.entries()) for head, journal in found if head is not None]
    return sorted(events, key=lambda event: event.at)


def _all(
    opened: _Opened, journals: Iterable[Journal], goal: Side, how: Deciding, only: Collection[str] | None = None
) -> Moved:
    found = Moved()
    for journal in journals:
        head, entries = journal.head(), journal.entries()
        if head is None:
            continue
        stay = set[str]() if only is None else _others(opened.host, head, entries, only)
        if any(entry.at != goal and entry.path not in stay for entry in entries):
            _exchange(opened, journal, entries, goal, how, stay)
            found.paths += [shown_path(head.inside, entry.path) for entry in entries if not entry.left]
            left = {one.path: one.left for one in entries if one.left and one.at != goal and one.path not in stay}
            found.left |= {
                shown_path(head.inside, path): why
                for path, why in _named(opened, head, left).items()
            }  # fmt: skip
    return found


def _others(host: DirTree, head: Head, entries: list[Entry], only: Collection[str]) -> set[str]:
    """What an undo of `only` leaves: not the other name of a file, nor the folder that one comes back into."""
    by_path = {entry.path: entry for entry in entries}
    wanted = {path for path in by_path if shown_path(head.inside, path) in only}
    for new in [by_path[path] for path in wanted]:
        for old in entries:
            if _are_one(new, old) or _are_one(old, new):
                wanted.add(old.path)
    for path in list(wanted):
        while path := parent(path):
            entry = by_path.get(encode_path(path))
            if entry is not None and entry.before.kind == "directory" and host.node(path) is None:
                wanted.add(entry.path)
    return by_path.keys() - wanted


def _are_one(new: Entry, old: Entry) -> bool:
    """A file that has another name now."""
    kinds = (new.before.kind, old.after.kind) == ("absent", "absent")
    return kinds and new.after.sha256 is not None and new.after.sha256 == old.before.sha256


def _exchange(
    opened: _Opened, journal: Journal, entries: list[Entry], goal: Side, how: Deciding, stay: Collection[str] = ()
) -> None:
    force, progress = how.get("force", False), how.get("progress", quietly)
    with Exchange(opened.host, journal, len(entries), progress) as exchange:
        try:
            for number, entry in counted("preparing", entries, progress):
                entry.left = _OTHER if entry.path in stay else _prepare(exchange, number, entry, goal, force=force)
            _keep_full_folders(opened.host, entries, goal)
            moving = [entry for entry in entries if not entry.left]
            exchange.loosen(decode_path(entry.path) for entry in moving)
            exchange.staged()
        except BaseException:
            exchange.abandon(journal.entries())
            raise
        head = journal.head()
        assert head is not None
        if moving:
            exchange.carry_out(opened.layer, head.layer_ns, goal, entries, how.get("record"), again=head.again)
        else:
            journal.write(head, entries)
            exchange.abandon(entries)


def _prepare(exchange: Exchange, number: int, entry: Entry, goal: Side, *, force: bool) -> str:
    """Why an entry stays; empty when what is there is kept and what comes is staged."""
    if entry.at == goal:
        return _THERE
    path, contents = decode_path(entry.path), exchange.contents
    old, new, node = entry.side(entry.at), entry.side(goal), exchange.host.node(path)
    if not contents.is_still(old, path, node, surely=True):
        if contents.is_still(new, path, node, surely=True):
            entry.at = goal
            return _THERE
        if not force:
            return _EDITED
    elif not entry.content and old.kind == "directory" and node is not None and node.mode & 0o1777 != old.mode & 0o1777:
        return _EDITED if not force else ""
    if not entry.content:
        return "" if node is not None and node.kind == new.kind else _EDITED
    if not contents.has(number, goal, new):
        return _LOST
    kept = contents.keep(number, path, node, entry.at)
    if entry.at == "after":
        entry.after = kept
    else:
        entry.before = kept
    if new.kind not in ("absent", "directory"):
        contents.bring(number, goal, new)
    return ""


def holds(journal: Journal, head: Head) -> bool:
    """Whether it was applied last, or only some of it was asked back since."""
    return head.goal == "after" or any(one.at == "after" and one.left == _OTHER for one in journal.entries())


@dataclass
class Kept:
    """What was taken back of a path: whose entry it is, by which number. `now`: what the host has instead."""

    journal: Journal
    number: int
    entry: Entry
    now: Look


def taken_back(journals: Iterable[Journal]) -> dict[str, Kept]:
    """What was applied last of each path and is not so now, a folder before what is in it."""
    now, found = dict[str, Look](), dict[str, Kept]()
    for journal in journals:
        is_part = any(head.again for head in _heads([journal]))
        for number, entry in enumerate(journal.entries()):
            path = decode_path(entry.path)
            now[path] = entry.after if entry.at == "after" else now.get(path, entry.before)
            if entry.at == "before" and not is_part:
                found[path] = Kept(journal, number, entry, now[path])
            elif path in found:
                found[path].now = now[path]
    return {path: found[path] for path in sorted(found, key=lambda path: path.split("/")) if _differs(found[path])}


def _heads(journals: Iterable[Journal]) -> list[Head]:
    return list(filter(None, (journal.head() for journal in journals)))


def _differs(kept: Kept) -> bool:
    one, other = kept.now, kept.entry.after
    return (one.kind, one.mode, one.sha256, one.target) != (other.kind, other.mode, other.sha256, other.target)


def _redo_some(opened: _Opened, chosen: Iterable[str] | None, contents: Mapping[str, bytes], how: Deciding) -> Moved:
    """By a journal of its own: those that it is taken from stay as they are, for the rest."""
    every, layer, entries, left = taken_back(opened.journals), opened.layer, list[Entry](), dict[str, str]()
    wanted = every.keys() if chosen is None else _with_folders(chosen, every, opened.host)
    head, progress = _heads(opened.journals)[-1], how.get("progress", quietly)
    with Exchange(opened.host, new_journal(journals_of(layer)), len(wanted), progress) as exchange:
        try:
            for path, kept in every.items():
                if path in wanted:
                    made = _prepare_again(exchange, len(entries), path, kept, contents, force=how.get("force", False))
                    if isinstance(made, Entry):
                        entries.append(made)
                    else:
                        left[kept.entry.path] = made
            _keep_full_folders(opened.host, entries, "after")
            moving = [entry for entry in entries if not entry.left]
            exchange.loosen(decode_path(entry.path) for entry in moving)
            exchange.staged()
        except BaseException:
            exchange.abandon()
            raise
        if moving:
            exchange.carry_out(layer, head.layer_ns, "after", entries, how.get("record"), again=True)
        else:
            exchange.abandon()
    left |= {entry.path: entry.left for entry in entries if entry.left}
    named = _named(opened, head, left).items()
    return Moved(
        [shown_path(layer.inside, entry.path) for entry in entries if not entry.left],
        {shown_path(layer.inside, path): why for path, why in named},
    )


def _with_folders(chosen: Iterable[str], every: Mapping[str, Kept], host: DirTree) -> set[str]:
    """The chosen paths and the folders around them that the host does not have."""
    wanted = set(chosen)
    for path in list(wanted):
        while path := parent(path):
            if path in every and every[path].entry.after.kind == "directory" and host.node(path) is None:
                wanted.add(path)
    return wanted


def _prepare_again(
    exchange: Exchange, number: int, path: str, kept: Kept, picked: Mapping[str, bytes], *, force: bool
) -> Entry | str:
    """What is kept and staged to have a path again as it was applied, or with picked content; or why it stays."""
    contents, entry, after = exchange.contents, kept.entry, kept.entry.after
    node = exchange.host.node(path)
    if not force and not contents.is_still(kept.now, path, node, surely=True):
        return _THERE if contents.is_still(after, path, node, surely=True) else _EDITED
    if not entry.content:
        if node is None or node.kind != after.kind or not (force or node.mode & 0o1777 == kept.now.mode & 0o1777):
            return _EDITED
        old = contents.look(path, node)
        return Entry(entry.path, old, replace(old, mode=after.mode), content=False)
    if path in picked and node is not None and node.kind == "file":
        old = contents.keep(number, path, node, "before")
        with tempfile.TemporaryFile() as file:
            file.write(picked[path])
            file.seek(0)
            return Entry(entry.path, old, contents.stage_file(number, path, file.fileno(), node.mode, node))
    if after.kind not in ("absent", "directory"):
        store = os.open(kept.journal.store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            others = contents.of(store)
            if not others.has(kept.number, "after", after):
                return _LOST
            others.stage_copy(f"{kept.number}.after", f"{number}.after")
        finally:
            os.close(store)
    return Entry(entry.path, contents.keep(number, path, node, "before"), after)


def _keep_full_folders(host: DirTree, entries: list[Entry], goal: Side) -> None:
    """A folder that is to go stays when anything is to stay in it."""
    going = {decode_path(entry.path) for entry in entries if not entry.left and entry.side(goal).kind == "absent"}
    for entry in reversed(entries):
        path = decode_path(entry.path)
        node = host.node(path) if not entry.left and entry.side(goal).kind != "directory" else None
        if node is None or node.kind != "directory":
            continue
        if any(f"{path}/{name}" not in going for name in host.names(path)):
            entry.left = _FULL
            going.discard(path)


def _named(opened: _Opened, head: Head, left: dict[str, str]) -> dict[str, str]:
    """Of what was edited since: by which run, where one was applied over it."""
    if _EDITED not in left.values():
        return left
    newer: dict[str, str] = {}
    for base, journal, their in journals_on([encode_path(opened.layer.host)], opened.runs):
        if base != Path(str(opened.layer.layer)) and their.at > head.at:
            paths = {entry.path for entry in journal.entries() if entry.at == "after"}
            newer |= dict.fromkeys(paths & left.keys(), base.parent.name)
    return {
        path: f"run {newer[path]} was applied over it: undo that one first" if why == _EDITED and path in newer else why
        for path, why in left.items()
    }
