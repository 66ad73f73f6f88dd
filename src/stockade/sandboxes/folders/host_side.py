"""The host's side of what a bot touched: how it differs from the base, for who decides about a conflict."""

from stockade.core.changes import Change, ChangeKind, FolderLayer
from stockade.core.errors import UsageError
from stockade.sandboxes.folders.base import Base, base_of
from stockade.sandboxes.folders.base_parts import MODE_BITS, Original, digest_at
from stockade.sandboxes.folders.changes import Comparison, check_whole, reading
from stockade.sandboxes.folders.diff import TEXT_BYTES, Side, count_lines, is_binary, name, render
from stockade.sandboxes.folders.hostile import Node, Tree, is_safe, spell, unspell
from stockade.sandboxes.folders.record import open_layer


class HostSide:
    """core.ports.Differ over the layers of this package."""

    def changes(self, layer: FolderLayer) -> tuple[Change, ...]:
        """What the host changed of the paths that the bot touched, by path. Raises what Review.changes does."""
        if layer.strategy == "direct":
            return ()
        with reading(layer), open_layer(layer) as opened:
            check_whole(layer, opened.written)
            comparison = Comparison(opened)
            paths = sorted(comparison.touched(), key=lambda path: path.split("/"))
            ours = [(path, comparison.base.of(path, opened.host, opened.written)) for path in paths]
            found = [_change(path, was, opened.host, comparison.base) for path, was in ours]
            return tuple(change for change in found if change)

    def unified_diff(self, layer: FolderLayer, change: Change) -> str:
        """From the base to the host as it is now, as Review.unified_diff writes it."""
        path = unspell(change.path)
        if not is_safe(path):
            raise UsageError(f"not a path of the folder: {change.path!r}", "take it from the list of changes")
        with reading(layer), open_layer(layer) as opened:
            base = base_of(opened)
            was = base.of(path, opened.host, opened.written)
            return render(change, _before(path, was, base), side_of(opened.host, path, opened.host.node(path)))


def side_of(tree: Tree, path: str, node: Node | None) -> Side | None:
    """An entry as one side of a difference; None where there is none."""
    if node is None:
        return None
    if node.kind == "symlink":
        return Side(node.kind, content=(node.target or "").encode("utf-8", "surrogateescape"))
    if node.kind != "file":
        return Side(node.kind, node.mode)
    return _file_side(path, node.mode, node.size, tree.read(path, TEXT_BYTES) if node.size <= TEXT_BYTES else None)


def _file_side(path: str, mode: int, size: int, data: bytes | None, why: str = "is too large to be shown") -> Side:
    shown = name("", path).replace("/", "", 1)
    if data is None:
        return Side("file", mode, None, f"File {shown} {why} ({size} bytes)")
    if is_binary(data):
        return Side("file", mode, None, f"Binary file {shown} ({size} bytes)")
    return Side("file", mode, data)


def _before(path: str, was: Original, base: Base) -> Side | None:
    if was.state == "absent":
        return None
    if was.state == "unknown":
        shown = name("", path).replace("/", "", 1)
        return Side("file", note=f"File {shown} changed while the bot changed it: what it was is not known")
    if was.kind == "symlink":
        return Side(was.kind, content=unspell(was.target or "").encode("utf-8", "surrogateescape"))
    if was.kind != "file":
        return Side(was.kind, was.mode)
    data = base.data(was)
    if data is None:
        return _file_side(path, was.mode, was.size, None, "changed; of what it was only the hash is kept")
    return _file_side(path, was.mode, was.size, data if len(data) <= TEXT_BYTES else None)


def _change(path: str, was: Original, host: Tree, base: Base) -> Change | None:
    node = host.node(path)
    if was.is_same(host, path, node) or (was.state == "unknown" and node is None):
        return None
    kind = _kind(path, was, node, host)
    entry = node.kind if node else was.kind
    old = (base.data(was) or b"")[: TEXT_BYTES + 1]
    new = host.read(path, TEXT_BYTES + 1) if node and node.kind == "file" else b""
    binary = is_binary(old) or is_binary(new)
    lines = (0, 0) if binary or kind == "mode" or max(len(old), len(new)) > TEXT_BYTES else count_lines(old, new)
    return Change(
        path=spell(path), kind=kind, entry=entry, size=node.size if node else 0, binary=binary,
        mode=(node.mode if node else was.mode) & MODE_BITS, added_lines=lines[0], removed_lines=lines[1],
        target=spell(node.target) if node and node.target is not None else None,
    )  # fmt: skip


def _kind(path: str, was: Original, node: Node | None, host: Tree) -> ChangeKind:
    if node is None:
        return "deleted"
    if was.state == "absent":
        return "added"
    if was.state == "unknown" or was.kind == node.kind == "symlink":
        return "modified"
    if was.kind != node.kind:
        return "type"
    return "mode" if node.kind == "directory" or was.sha256 == digest_at(host, path) else "modified"
