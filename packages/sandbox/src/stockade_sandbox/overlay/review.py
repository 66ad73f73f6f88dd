"""port.Reviewer over the layers of this package, and two more ways to look at them: your side of a conflict, and what
was taken back of a layer that is gone. Every content and name in a layer is taken for hostile.
"""

from collections.abc import Iterable
from pathlib import Path

from stockade_sandbox.errors import UsageError
from stockade_sandbox.overlay.apply import apply_changes
from stockade_sandbox.overlay.base import Base, base_of
from stockade_sandbox.overlay.changes import Comparison, check_whole, find_changes, reading, seal_of
from stockade_sandbox.overlay.diff import Lines, Side, kind_of, render
from stockade_sandbox.overlay.discard import discard_layer
from stockade_sandbox.overlay.journal import Entry, Journal
from stockade_sandbox.overlay.merging import find_conflicts
from stockade_sandbox.overlay.record import OpenLayer, Original, open_layer, read_record
from stockade_sandbox.overlay.safe_fs import DirTree, decode_path, digest_at, is_safe
from stockade_sandbox.overlay.snapshots import scan, shown_by_copy
from stockade_sandbox.overlay.store import number_after
from stockade_sandbox.overlay.undo import decisions, holding, open_journals, recover_layer, redo_layer, undo_layer
from stockade_sandbox.results import Change, FolderLayer


class Review:
    """Diff, apply, undo and discard of what a bot wrote: port.Reviewer says what each does."""

    changes = staticmethod(find_changes)
    conflicts = staticmethod(find_conflicts)
    apply = staticmethod(apply_changes)
    undo = staticmethod(undo_layer)
    redo = staticmethod(redo_layer)
    holding = staticmethod(holding)
    recover = staticmethod(recover_layer)
    decisions = staticmethod(decisions)

    def seal(self, layer: FolderLayer) -> str | None:
        """What it holds now, to be known again by. What the host had there is noted, as far as it was not before."""
        if layer.strategy == "direct":
            return None
        with reading(layer), open_layer(layer) as opened:
            found, base = scan(opened.written), base_of(opened)
            shown = [path for path in found if base.is_new(path)]
            if opened.is_copy:
                shown = shown_by_copy(found, opened.manifest())
            base.capture(number_after(opened.base), opened.host, opened.written, shown)
            return seal_of(opened.written, found)

    def unified_diff(self, layer: FolderLayer, change: Change) -> str:
        """What `git apply` reads. Bytes that are not UTF-8 are surrogates; terminal escapes are still in it.

        A binary file, or one longer than a MiB, is one line that says so.
        """
        path = _path_of(change)
        if layer.strategy == "direct":
            return ""
        with reading(layer), open_layer(layer) as opened:
            before = opened.host.node(path) if change.kind != "added" else None
            after = opened.written.node(path) if change.kind != "deleted" else None
            return render(change, Side.of(opened.host, path, before), Side.of(opened.written, path, after))

    def discard(self, layer: FolderLayer) -> None:
        """Remove the layer. The host folder is not touched, except to complete what was cut off."""
        recover_layer(layer)
        discard_layer(layer)

    def skipped(self, layer: FolderLayer) -> tuple[str, ...]:
        """What of the folder the bot was not given (pipes, devices, unreadable files), each with the reason."""
        return () if layer.strategy == "direct" else read_record(layer)[1].skipped


def _path_of(change: Change) -> str:
    path = decode_path(change.path)
    if not is_safe(path):
        raise UsageError(f"not a path of the folder: {change.path!r}", "take it from the list of changes")
    return path


class HostSide:
    """port.Differ from the base to the host as it is: what you changed of what the bot touched.

    Bases are read once: for one command.
    """

    def __init__(self) -> None:
        self._bases: dict[Path, Base] = {}

    def _base(self, opened: OpenLayer) -> Base:
        if opened.base not in self._bases:
            self._bases[opened.base] = base_of(opened)
        return self._bases[opened.base]

    def changes(self, layer: FolderLayer) -> tuple[Change, ...]:
        """By path. Raises what Review.changes does."""
        if layer.strategy == "direct":
            return ()
        with reading(layer), open_layer(layer) as opened:
            check_whole(layer, opened.written)
            comparison, lines = Comparison(opened), Lines()
            paths = sorted(comparison.touched(), key=lambda path: path.split("/"))
            found = (_hosts_change(path, opened, comparison.base, lines) for path in paths)
            return tuple(change for change in found if change)

    def unified_diff(self, layer: FolderLayer, change: Change) -> str:
        """As Review.unified_diff writes it."""
        path = _path_of(change)
        with reading(layer), open_layer(layer) as opened:
            base = self._base(opened)
            was = base.of(path, opened.host, opened.written)
            return render(change, _base_side(was, base), Side.of(opened.host, path, opened.host.node(path)))


def _hosts_change(path: str, opened: OpenLayer, base: Base, lines: Lines) -> Change | None:
    was, node = base.of(path, opened.host, opened.written), opened.host.node(path)
    if was.is_same(opened.host, path, node) or (was.state == "unknown" and node is None):
        return None
    before, after = _base_side(was, base), Side.of(opened.host, path, node)
    kind = kind_of(before, after, lambda: was.sha256 == digest_at(opened.host, path))
    kind = "modified" if was.state == "unknown" else kind
    return lines.change(path, kind, before, after)[0] if kind else None


def _base_side(was: Original, base: Base) -> Side | None:
    if was.state == "absent":
        return None
    if was.state == "unknown":
        return Side("file", unseen="changed while the bot changed it: what it was is not known")
    target = None if was.target is None else decode_path(was.target)
    if (data := base.data(was)) is None:
        return Side(was.kind, was.mode, was.size, target, unseen="changed; of what it was only the hash is kept")
    return Side(was.kind, was.mode, was.size, target, lambda limit: data[:limit])


_Kept = tuple[Journal, int, Entry]


class TakenBack:
    """port.Differ over the journals of layers that are gone: what was taken back, and apply writes again.

    They are read once: for one command.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[str, _Kept]] = {}

    def _all(self, layer: FolderLayer, journals: Iterable[Journal]) -> dict[str, _Kept]:
        """What was applied last of each path."""
        place = str(layer.layer)
        if place not in self._found:
            every = ((journal, number, one) for journal in journals for number, one in enumerate(journal.entries()))
            self._found[place] = {decode_path(kept[2].path): kept for kept in every if kept[2].at == "before"}
        return self._found[place]

    def changes(self, layer: FolderLayer) -> tuple[Change, ...]:
        """By path, from the folder as it is to what was applied last of each."""
        with reading(layer), open_journals(layer) as (host, journals):
            kept, lines = self._all(layer, journals), Lines()
            paths = sorted(kept, key=lambda path: path.split("/"))
            found = (_change_again(path, kept[path], host, lines) for path in paths)
            return tuple(change for change in found if change)

    def unified_diff(self, layer: FolderLayer, change: Change) -> str:
        """As Review.unified_diff writes it."""
        path = decode_path(change.path)
        with reading(layer), open_journals(layer) as (host, journals):
            return render(change, Side.of(host, path, host.node(path)), _kept_side(self._all(layer, journals)[path]))


def _change_again(path: str, kept: _Kept, host: DirTree, lines: Lines) -> Change | None:
    entry, node = kept[2], host.node(path)
    before, after = Side.of(host, path, node), _kept_side(kept)
    kind = kind_of(before, after, lambda: not entry.content or entry.after.sha256 == digest_at(host, path))
    return lines.change(path, kind, before, after)[0] if kind else None


def _kept_side(kept: _Kept) -> Side | None:
    journal, number, entry = kept
    look, store = entry.after, journal.store / f"{number}.after"
    if look.kind == "absent":
        return None

    def read(limit: int) -> bytes | None:
        if not store.is_file():
            return None
        with store.open("rb") as file:
            return file.read(limit)

    target = decode_path(look.target) if look.kind == "symlink" else None
    return Side(look.kind, look.mode, look.size, target, read, "is not shown")
