"""port.Reviewer over the layers of this package."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Unpack

from stockade_sandbox.errors import UsageError
from stockade_sandbox.overlay.apply import apply_changes
from stockade_sandbox.overlay.base import base_of
from stockade_sandbox.overlay.base_parts import number_after
from stockade_sandbox.overlay.changes import find_changes, reading, seal_of
from stockade_sandbox.overlay.diff import mode_change, render
from stockade_sandbox.overlay.discard import discard_layer
from stockade_sandbox.overlay.host_side import side_of
from stockade_sandbox.overlay.merging import find_conflicts
from stockade_sandbox.overlay.record import OpenLayer, open_layer, read_record
from stockade_sandbox.overlay.safe_fs import decode_path, is_safe
from stockade_sandbox.overlay.snapshots import scan, shown_by_copy
from stockade_sandbox.overlay.undo import decisions, holding, recover_layer, redo_layer, undo_layer
from stockade_sandbox.port import Applying, Deciding
from stockade_sandbox.results import Change, Decision, FolderLayer, Moved


class Review:
    """Diff, apply, undo and discard of what a bot wrote. Every content and name in a layer is taken for hostile."""

    def changes(self, layer: FolderLayer) -> tuple[Change, ...]:
        """By path, a folder before what is in it. Names that are not UTF-8 are as `safe_fs.encode_path` has them."""
        return find_changes(layer)

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
        path = decode_path(change.path)
        if not is_safe(path):
            raise UsageError(f"not a path of the folder: {change.path!r}", "take it from the list of changes")
        if layer.strategy == "direct":
            return ""
        with reading(layer), open_layer(layer) as opened:
            if change.kind == "mode" and change.entry == "file":
                return _mode_only(opened, path)
            before = opened.host.node(path) if change.kind != "added" else None
            after = opened.written.node(path) if change.kind != "deleted" else None
            return render(change, side_of(opened.host, path, before), side_of(opened.written, path, after))

    def conflicts(self, layer: FolderLayer, changes: Iterable[Change], *, merge: bool = False) -> dict[str, str]:
        """Those that the host changed too, by path with the reason; `merge`: only those that cannot be merged."""
        return find_conflicts(layer, changes, merge=merge)

    def apply(self, layer: FolderLayer, changes: Iterable[Change], **how: Unpack[Applying]) -> tuple[str, ...]:
        """Write these changes to the host folder. `force`: also over what changed there since the run began;
        `merge`: merged with it.

        `record` gets the event once it is decided. What undo needs is kept beside the layer.
        """
        return apply_changes(layer, changes, **how)

    def undo(self, layer: FolderLayer, **how: Unpack[Deciding]) -> Moved:
        """Take back all that was applied of a layer, which may be gone; `force`: also what was edited since."""
        return undo_layer(layer, **how)

    def redo(self, layer: FolderLayer, **how: Unpack[Deciding]) -> Moved:
        """Apply again what was taken back of a layer that is gone."""
        return redo_layer(layer, **how)

    def holding(self, layers: Iterable[FolderLayer]) -> AbstractContextManager[None]:
        """Nobody applies to their folders meanwhile, and nothing there is cut off. FolderMoved where that is not so."""
        return holding(layers)

    def recover(self, layer: FolderLayer) -> None:
        """Complete what was decided about the folder of a layer and cut off by a kill."""
        recover_layer(layer)

    def decisions(self, layer: FolderLayer) -> list[Decision]:
        """What was last decided, oldest first, as it is on record unless a kill was in between."""
        return decisions(layer)

    def discard(self, layer: FolderLayer) -> None:
        """Remove the layer. The host folder is not touched, except to complete what was cut off."""
        recover_layer(layer)
        discard_layer(layer)

    def skipped(self, layer: FolderLayer) -> tuple[str, ...]:
        """What of the folder the bot was not given (pipes, devices, unreadable files), each with the reason."""
        return () if layer.strategy == "direct" else read_record(layer)[1].skipped


def _mode_only(opened: OpenLayer, path: str) -> str:
    before, after = opened.host.node(path), opened.written.node(path)
    if before is None or after is None:
        return ""
    return mode_change(path, before.mode, after.mode)
