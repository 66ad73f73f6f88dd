"""port.Reviewer over the layers of this package, and two more ways to look at them: your side of a conflict, and what
was taken back of a layer that is gone. Every content and name in a layer is taken for hostile.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from stockade_sandbox.errors import UsageError
from stockade_sandbox.overlay.apply import apply_changes
from stockade_sandbox.overlay.base import Base, base_of
from stockade_sandbox.overlay.caches import tagged, without_caches
from stockade_sandbox.overlay.changes import Comparison, check_whole, digest, find_changes, reading, seal_of
from stockade_sandbox.overlay.diff import TEXT_BYTES, Lines, Seen, Side, kind_of, render
from stockade_sandbox.overlay.discard import discard_layer
from stockade_sandbox.overlay.journal import Journal
from stockade_sandbox.overlay.merging import find_conflicts
from stockade_sandbox.overlay.record import OpenLayer, Original, open_layer, read_record
from stockade_sandbox.overlay.renames import File, find_renames
from stockade_sandbox.overlay.safe_fs import LARGE, DirTree, decode_path, digest_at, is_safe
from stockade_sandbox.overlay.snapshots import scan, shown_by_copy
from stockade_sandbox.overlay.store import number_after
from stockade_sandbox.overlay.undo import (
    Kept,
    decisions,
    holding,
    open_journals,
    recover_layer,
    redo_layer,
    taken_back,
    undo_layer,
)
from stockade_sandbox.results import Change, FolderLayer, Renamed

Sides = Callable[[Change], tuple[Side | None, Side | None]]
"""What a change is between, while its folder is open."""


class _Shown(ABC):
    """What can be seen of changes, whatever their two sides are."""

    @abstractmethod
    def _sides(self, layer: FolderLayer) -> AbstractContextManager[Sides]:
        """Of a layer, as long as its folder is open."""

    def left_out(self, layer: FolderLayer) -> Mapping[str, int]:
        """How many changes the last look at a layer left out, by the name of the cache."""
        return {}

    def unified_diff(
        self, layer: FolderLayer, change: Change, renamed: Renamed | None = None, binary: Seen | None = None
    ) -> str:
        """What `git apply` reads. Bytes that are not UTF-8 are surrogates; terminal escapes are still in it.

        A binary file, or one longer than a MiB, is one line that says so; with `binary`, as far as 64 MiB, it is there
        as git encodes it, after that has seen each side. `renamed`: the change is one of `renames`.
        """
        if layer.strategy == "direct":
            return ""
        with self._sides(layer) as sides:
            before, after = sides(change)
            if renamed is not None:
                before = sides(Change(path=renamed.old, kind="deleted"))[0]
            return render(change, before, after, renamed, binary)

    def texts(self, layer: FolderLayer, change: Change) -> tuple[bytes, bytes] | None:
        """Both sides of a file that can be decided on by hunk; None for any other."""
        if layer.strategy == "direct" or change.kind != "modified" or change.entry != "file":
            return None
        with self._sides(layer) as sides:
            before, after = (side.text(change.path) if side else "" for side in sides(change))
            return None if isinstance(before, str) or isinstance(after, str) else (before, after)

    def content(self, layer: FolderLayer, change: Change, *, raw: bool = False) -> bytes | None:
        """A file as the bot made it; None for what is none, is too large or, unless `raw`, no text."""
        if layer.strategy == "direct" or change.kind == "deleted" or change.entry != "file":
            return None
        with self._sides(layer) as sides:
            after = sides(change)[1]
            if raw:
                return after.read(LARGE) if after and after.size <= LARGE else None
            data = after.text(change.path) if after else ""
            return None if isinstance(data, str) else data

    def renames(self, layer: FolderLayer, changes: Iterable[Change]) -> dict[str, Renamed]:
        """Of the new files among these changes, by path, those that are old ones under another name."""
        files = [change for change in changes if change.entry == "file" and change.kind in ("added", "deleted")]
        kinds = {change.kind for change in files if not change.refused}
        if layer.strategy == "direct" or len(kinds) < 2:
            return {}
        with self._sides(layer) as sides:
            pairs = [(change, sides(change)[change.kind == "added"]) for change in files if not change.refused]
            found = [(change.kind, _file_of(change.path, side)) for change, side in pairs if side is not None]
            gone, new = ([one for kind, one in found if kind == wanted] for wanted in ("deleted", "added"))
            return find_renames(gone, new)


def _file_of(path: str, side: Side) -> File:
    def digest() -> str | None:
        data = side.read(LARGE + 1)
        return None if data is None or len(data) > LARGE else hashlib.sha256(data).hexdigest()

    return File(path, side.size, digest, lambda: side.read(TEXT_BYTES) if side.size <= TEXT_BYTES else None)


class Review(_Shown):
    """Diff, apply, undo and discard of what a bot wrote: port.Reviewer says what each does.

    `caches`: what tools keep for themselves is a change like any other; else it is left out, but for a folder that only
    its tag names (CACHEDIR.TAG) where nothing else was changed.
    """

    def __init__(self, *, caches: bool = True) -> None:
        self._caches = caches
        self._left_out: dict[FolderLayer, dict[str, int]] = {}

    def changes(self, layer: FolderLayer) -> tuple[Change, ...]:
        """Every difference that applying the layer would make, by path."""
        found = find_changes(layer)
        if self._caches or layer.strategy == "direct":
            return found
        with reading(layer), open_layer(layer) as opened:
            kept, left = without_caches(found, tagged(found, opened))
        if not kept:  # nothing but what was to be built, where that is in a folder with a tag
            kept, left = without_caches(found, lambda _folder: False)
        self._left_out[layer] = left
        return kept

    def left_out(self, layer: FolderLayer) -> Mapping[str, int]:
        """How many changes the last look at a layer left out, by the name of the cache that they are of."""
        return self._left_out.get(layer, {})

    def digests(self, layer: FolderLayer, changes: Iterable[Change]) -> dict[str, str]:
        """By path, what each change is known by, with the content of both sides."""
        if layer.strategy == "direct":
            return {}
        with reading(layer), open_layer(layer) as opened:
            return {change.path: digest(change, opened) for change in changes}

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

    @contextmanager
    def _sides(self, layer: FolderLayer) -> Iterator[Sides]:
        with reading(layer), open_layer(layer) as opened:
            host, written = opened.host, opened.written

            def sides(change: Change) -> tuple[Side | None, Side | None]:
                path = _path_of(change)
                before = host.node(path) if change.kind != "added" else None
                after = written.node(path) if change.kind != "deleted" else None
                return Side.of(host, path, before), Side.of(written, path, after)

            yield sides

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


class HostSide(_Shown):
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

    @contextmanager
    def _sides(self, layer: FolderLayer) -> Iterator[Sides]:
        with reading(layer), open_layer(layer) as opened:
            base = self._base(opened)

            def sides(change: Change) -> tuple[Side | None, Side | None]:
                path = _path_of(change)
                was = base.of(path, opened.host, opened.written)
                return _base_side(was, base), Side.of(opened.host, path, opened.host.node(path))

            yield sides


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


class TakenBack(_Shown):
    """port.Differ over the journals of layers that are gone: what was taken back, and apply writes again.

    They are read once: for one command.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Kept]] = {}

    def _all(self, layer: FolderLayer, journals: Iterable[Journal]) -> dict[str, Kept]:
        place = str(layer.layer)
        if place not in self._found:
            self._found[place] = taken_back(journals)
        return self._found[place]

    def changes(self, layer: FolderLayer) -> tuple[Change, ...]:
        """By path, from the folder as it is to what was applied last of each."""
        with reading(layer), open_journals(layer) as (host, journals):
            kept, lines = self._all(layer, journals), Lines()
            found = (_change_again(path, one, host, lines) for path, one in kept.items())
            return tuple(change for change in found if change)

    @contextmanager
    def _sides(self, layer: FolderLayer) -> Iterator[Sides]:
        with reading(layer), open_journals(layer) as (host, journals):
            kept = self._all(layer, journals)

            def sides(change: Change) -> tuple[Side | None, Side | None]:
                path = decode_path(change.path)
                return Side.of(host, path, host.node(path)), _kept_side(kept[path])

            yield sides


def _change_again(path: str, kept: Kept, host: DirTree, lines: Lines) -> Change | None:
    entry, node = kept.entry, host.node(path)
    before, after = Side.of(host, path, node), _kept_side(kept)
    kind = kind_of(before, after, lambda: not entry.content or entry.after.sha256 == digest_at(host, path))
    return lines.change(path, kind, before, after)[0] if kind else None


def _kept_side(kept: Kept) -> Side | None:
    look, store = kept.entry.after, kept.journal.store / f"{kept.number}.after"
    if look.kind == "absent":
        return None

    def read(limit: int) -> bytes | None:
        if not store.is_file():
            return None
        with store.open("rb") as file:
            return file.read(limit)

    target = decode_path(look.target) if look.kind == "symlink" else None
    return Side(look.kind, look.mode, look.size, target, read, "is not shown")
