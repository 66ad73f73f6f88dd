"""The host's side of what a bot touched: how it differs from the base, for who decides about a conflict."""

from collections.abc import Iterable
from pathlib import Path

from stockade_sandbox.errors import UsageError
from stockade_sandbox.overlay.base import Base, base_of
from stockade_sandbox.overlay.base_parts import MODE_BITS, Original, digest_at
from stockade_sandbox.overlay.changes import Comparison, check_whole, reading
from stockade_sandbox.overlay.diff import TEXT_BYTES, Side, count_lines, is_binary, mode_change, name, render
from stockade_sandbox.overlay.journal import Entry, Journal, Look
from stockade_sandbox.overlay.record import OpenLayer, open_layer
from stockade_sandbox.overlay.safe_fs import DirTree, Node, decode_path, encode_path, is_safe
from stockade_sandbox.overlay.undo import open_journals
from stockade_sandbox.results import Change, ChangeKind, FolderLayer


class HostSide:
    """core.ports.Differ over the layers of this package. Their bases are read once: for one command."""

    def __init__(self) -> None:
        self._bases: dict[Path, Base] = {}

    def _base(self, opened: OpenLayer) -> Base:
        if opened.base not in self._bases:
            self._bases[opened.base] = base_of(opened)
        return self._bases[opened.base]

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
        path = decode_path(change.path)
        if not is_safe(path):
            raise UsageError(f"not a path of the folder: {change.path!r}", "take it from the list of changes")
        with reading(layer), open_layer(layer) as opened:
            base = self._base(opened)
            was = base.of(path, opened.host, opened.written)
            return render(change, _before(path, was, base), side_of(opened.host, path, opened.host.node(path)))


class TakenBack:
    """core.ports.Differ over the journals of layers that are gone: what was taken back, and apply writes again.

    They are read once: for one command.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[str, _At]] = {}

    def _all(self, layer: FolderLayer, journals: Iterable[Journal]) -> "dict[str, _At]":
        place = str(layer.layer)
        if place not in self._found:
            self._found[place] = _taken_back(journals)
        return self._found[place]

    def changes(self, layer: FolderLayer) -> tuple[Change, ...]:
        """By path, from the folder as it is to what was applied last of each."""
        with reading(layer), open_journals(layer) as (host, journals):
            found = self._all(layer, journals)
            kinds = ((path, at, _kind_of(at[2].after, host.node(path))) for path, at in found.items())
            return tuple(_again(path, at, kind, host) for path, at, kind in kinds if kind)

    def unified_diff(self, layer: FolderLayer, change: Change) -> str:
        """As Review.unified_diff writes it."""
        path = decode_path(change.path)
        with reading(layer), open_journals(layer) as (host, journals):
            before, (journal, number, entry) = host.node(path), self._all(layer, journals)[path]
            if change.kind == "mode" and before is not None and change.entry == "file":
                return mode_change(path, before.mode, entry.after.mode)
            return render(change, side_of(host, path, before), _kept_side(path, journal, number, entry.after))


_At = tuple[Journal, int, Entry]


def _taken_back(journals: Iterable[Journal]) -> dict[str, _At]:
    found = {}
    for journal in journals:
        for number, entry in enumerate(journal.entries()):
            if entry.at == "before":
                found[decode_path(entry.path)] = journal, number, entry
    return {path: found[path] for path in sorted(found, key=lambda path: path.split("/"))}


def _kept_bytes(journal: Journal, number: int, look: Look) -> bytes | None:
    """None where it is too large to be shown, or gone."""
    kept = journal.store / f"{number}.after"
    return kept.read_bytes() if look.kind == "file" and look.size <= TEXT_BYTES and kept.is_file() else None


def _kept_side(path: str, journal: Journal, number: int, look: Look) -> Side | None:
    if look.kind == "absent":
        return None
    if look.kind == "symlink":
        return Side("symlink", content=decode_path(look.target).encode("utf-8", "surrogateescape"))
    if look.kind != "file":
        return Side(look.kind, look.mode)
    return _file_side(path, look.mode, look.size, _kept_bytes(journal, number, look), "is not shown")


def _kind_of(after: Look, now: Node | None) -> ChangeKind | None:
    """None where nothing is to be done."""
    if now is None or after.kind == "absent":
        return ("added" if now is None else "deleted") if (now is None) != (after.kind == "absent") else None
    if now.kind != after.kind:
        return "type"
    return "mode" if now.kind == "directory" else "modified"


def _again(path: str, at: _At, kind: ChangeKind, host: DirTree) -> Change:
    journal, number, entry = at
    now, after = host.node(path), entry.after
    if kind == "modified" and not entry.content:
        kind = "mode"
    shown = after.kind if after.kind != "absent" else now.kind if now else "file"
    old = host.read(path, TEXT_BYTES + 1) if now is not None and now.kind == "file" else b""
    new = _kept_bytes(journal, number, after) or b""
    binary = is_binary(old) or is_binary(new)
    counted = kind != "mode" and not binary and max(len(old), after.size) <= TEXT_BYTES
    added, removed = count_lines(old, new) if counted else (0, 0)
    mode = (after.mode if after.kind != "absent" else now.mode if now else 0) & MODE_BITS
    return Change(path=entry.path, kind=kind, entry=shown, size=after.size, mode=mode, binary=binary, added_lines=added,
                  removed_lines=removed, target=after.target or None)  # fmt: skip


def side_of(tree: DirTree, path: str, node: Node | None) -> Side | None:
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
        return Side(was.kind, content=decode_path(was.target or "").encode("utf-8", "surrogateescape"))
    if was.kind != "file":
        return Side(was.kind, was.mode)
    data = base.data(was)
    if data is None:
        return _file_side(path, was.mode, was.size, None, "changed; of what it was only the hash is kept")
    return _file_side(path, was.mode, was.size, data if len(data) <= TEXT_BYTES else None)


def _change(path: str, was: Original, host: DirTree, base: Base) -> Change | None:
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
        path=encode_path(path), kind=kind, entry=entry, size=node.size if node else 0, binary=binary,
        mode=(node.mode if node else was.mode) & MODE_BITS, added_lines=lines[0], removed_lines=lines[1],
        target=encode_path(node.target) if node and node.target is not None else None,
    )  # fmt: skip


def _kind(path: str, was: Original, node: Node | None, host: DirTree) -> ChangeKind:
    if node is None:
        return "deleted"
    if was.state == "absent":
        return "added"
    if was.state == "unknown" or was.kind == node.kind == "symlink":
        return "modified"
    if was.kind != node.kind:
        return "type"
    return "mode" if node.kind == "directory" or was.sha256 == digest_at(host, path) else "modified"
