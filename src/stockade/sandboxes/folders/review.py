"""core.ports.Reviewer over the layers of this package."""

from collections.abc import Iterable

from stockade.core.changes import Change, FolderLayer
from stockade.core.errors import UsageError
from stockade.sandboxes.folders.apply import apply_changes
from stockade.sandboxes.folders.base import base_of
from stockade.sandboxes.folders.base_parts import number_after
from stockade.sandboxes.folders.changes import find_changes, reading, seal_of
from stockade.sandboxes.folders.diff import TEXT_BYTES, Side, is_binary, mode_change, name, render
from stockade.sandboxes.folders.discard import discard_layer
from stockade.sandboxes.folders.hostile import Node, Tree, is_safe, unspell
from stockade.sandboxes.folders.record import OpenLayer, open_layer, read_record
from stockade.sandboxes.folders.snapshots import scan, shown_by_copy


class Review:
    """Diff, apply and discard of what a bot wrote. Every content and name in a layer is taken for hostile."""

    def changes(self, layer: FolderLayer) -> tuple[Change, ...]:
        """By path, a folder before what is in it. Names that are not UTF-8 are spelled as `hostile.spell` says."""
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
        path = unspell(change.path)
        if not is_safe(path):
            raise UsageError(f"not a path of the folder: {change.path!r}", "take it from the list of changes")
        if layer.strategy == "direct":
            return ""
        with reading(layer), open_layer(layer) as opened:
            if change.kind == "mode" and change.entry == "file":
                return _mode_only(opened, path)
            before = opened.host.node(path) if change.kind != "added" else None
            after = opened.written.node(path) if change.kind != "deleted" else None
            return render(change, _side(opened.host, path, before), _side(opened.written, path, after))

    def apply(self, layer: FolderLayer, changes: Iterable[Change], *, force: bool = False) -> tuple[str, ...]:
        """Write these changes to the host folder. `force`: also over what changed there since the run began."""
        return apply_changes(layer, changes, force=force)

    def discard(self, layer: FolderLayer) -> None:
        """Remove the layer. The host folder is not touched."""
        discard_layer(layer)

    def skipped(self, layer: FolderLayer) -> tuple[str, ...]:
        """What of the folder the bot was not given (pipes, devices, unreadable files), each with the reason."""
        return () if layer.strategy == "direct" else read_record(layer)[1].skipped


def _mode_only(opened: OpenLayer, path: str) -> str:
    before, after = opened.host.node(path), opened.written.node(path)
    if before is None or after is None:
        return ""
    return mode_change(path, before.mode, after.mode)


def _side(tree: Tree, path: str, node: Node | None) -> Side | None:
    if node is None:
        return None
    if node.kind == "symlink":
        return Side(node.kind, content=(node.target or "").encode("utf-8", "surrogateescape"))
    if node.kind != "file":
        return Side(node.kind, node.mode)
    shown = name("", path).replace("/", "", 1)
    if node.size > TEXT_BYTES:
        return Side(node.kind, node.mode, None, f"File {shown} is too large to be shown ({node.size} bytes)")
    data = tree.read(path, TEXT_BYTES)
    if is_binary(data):
        return Side(node.kind, node.mode, None, f"Binary file {shown} ({node.size} bytes)")
    return Side(node.kind, node.mode, data)
