"""The files of a folder as its bot sees them, changed or not, to look at: the host's, with the layer's over them.

Links are never followed. What the user threw away is the host's again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stockade_sandbox.overlay.changes import is_opaque, is_whiteout, reading
from stockade_sandbox.overlay.record import open_layer
from stockade_sandbox.overlay.safe_fs import DirTree, Node, OverlayMarks, decode_path, encode_path, join
from stockade_sandbox.results import EntryKind, FolderLayer


@dataclass(frozen=True, slots=True)
class Entry:
    """`name` as results.shown_path spells it. `size` in bytes, of files; `target` of symlinks."""

    name: str
    kind: EntryKind
    size: int = 0
    target: str | None = None


def list_folder(layer: FolderLayer, folder: str = "") -> list[Entry] | None:
    """By name, folders first. `folder` relative to it, as the file system spells it; None where it is no folder.
    SandboxFailed where it cannot be read.
    """
    with reading(layer), _seen(layer) as view:
        found = view.names(folder)
        if found is None:
            return None
        nodes = ((name, view.node(join(folder, name))) for name in found)
        entries = [_entry(name, node) for name, node in nodes if node is not None]
        return sorted(entries, key=lambda one: (one.kind != "directory", one.name))


def read_file(layer: FolderLayer, path: str, limit: int) -> bytes | None:
    """A regular file of at most `limit` bytes; None for anything else. SandboxFailed where it cannot be read."""
    with reading(layer), _seen(layer) as view:
        node = view.node(path)
        if node is None or node.kind != "file" or node.size > limit:
            return None
        tree = view.tree_of(path)
        data = tree.read(path, limit + 1)
        return data if len(data) <= limit else None


def _entry(name: str, node: Node) -> Entry:
    return Entry(encode_path(name), node.kind, node.size, None if node.target is None else encode_path(node.target))


@contextmanager
def _seen(layer: FolderLayer) -> Iterator["_View"]:
    if layer.strategy == "direct" or layer.layer is None or layer.is_lost:  # applied or thrown away: the host's alone
        with DirTree(Path(layer.host)) as host:
            yield _View(host)
    else:
        with open_layer(layer) as opened:
            yield _View(opened.host, opened.written, frozenset(map(decode_path, layer.without)), whole=opened.is_copy)


class _View:
    """The host's tree with the layer's over it, which is `whole` where it is a copy. `without`: paths that are the
    host's whatever the layer has there.
    """

    def __init__(
        self, host: DirTree, layer: DirTree | None = None, without: frozenset[str] = frozenset(), *, whole: bool = False
    ) -> None:
        self._host, self._layer, self._without, self._whole = host, layer, without, whole
        self._marks = OverlayMarks(layer) if layer is not None else None

    def _sides(self, path: str) -> tuple[Node | None, bool]:
        """What the layer has at a path, and whether the host shows through there."""
        ours, through, parts = None, not self._whole, path.split("/") if path else []
        if self._layer is None or self._marks is None:
            return None, True
        for length in range(1, len(parts) + 1):
            at = "/".join(parts[:length])
            if at in self._without:
                ours, through = None, True
                continue
            if (ours := self._layer.node(at)) is None:
                continue
            marks = self._marks.of(at, ours) if not self._whole else {}
            if not self._whole and is_whiteout(ours, marks):
                ours, through = None, False
            elif ours.kind != "directory":
                if length < len(parts):
                    ours = None
                through = False
            else:
                through = through and not is_opaque(marks) and self._is_folder(at)
        return ours, through

    def _is_folder(self, path: str) -> bool:
        node = self._host.node(path)
        return node is not None and node.kind == "directory"

    def node(self, path: str) -> Node | None:
        ours, through = self._sides(path)
        return ours if ours is not None else self._host.node(path) if through else None

    def tree_of(self, path: str) -> DirTree:
        """Where the content of a file is."""
        ours, _ = self._sides(path)
        return self._layer if ours is not None and self._layer is not None else self._host

    def names(self, folder: str) -> list[str] | None:
        """None where it is no folder."""
        if folder and ((node := self.node(folder)) is None or node.kind != "directory"):
            return None
        ours, through = self._sides(folder)
        found = {path.rpartition("/")[2] for path in self._without if path.rpartition("/")[0] == folder}
        found |= set(self._host.names(folder)) if through else set()
        if self._layer is not None and (ours is not None or not folder):
            found |= set(self._layer.names(folder))
        return sorted(found)
