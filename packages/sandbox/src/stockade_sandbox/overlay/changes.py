"""What a bot changed: the layer walked, and each path it touched compared with the host as it is now."""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from stockade_sandbox.errors import LayerLost, SandboxFailed
from stockade_sandbox.overlay.base import Base, base_of
from stockade_sandbox.overlay.commits import git_prefix, part_of, says, stays_inside
from stockade_sandbox.overlay.diff import TEXT_BYTES, Lines, Side, kind_of
from stockade_sandbox.overlay.flags import Flag, flag, never, refusal
from stockade_sandbox.overlay.git_config import named_by_git
from stockade_sandbox.overlay.record import Manifest, OpenLayer, open_layer
from stockade_sandbox.overlay.safe_fs import (
    MAX_DEPTH,
    DirTree,
    Node,
    OverlayMarks,
    decode_path,
    digest_at,
    join,
    same_data,
)
from stockade_sandbox.overlay.snapshots import Found, scan, shown_by_copy
from stockade_sandbox.results import Change, ChangeKind, EntryKind, FolderLayer

COMPARE_BYTES = 1 << 30
_MASKED = "holds [redacted: ...], what the bot was shown in place of a hidden value"
_YES = b"y".hex()
_TOO_DEEP = f"more than {MAX_DEPTH} folders deep"

Touched = dict[str, Node | None]
"""Paths the bot may have changed, with what is there now; None is nothing."""


class _UpperLayer:
    """Reads an overlay's upper layer: what stands for a deletion, a replaced folder, a file without its content."""

    def __init__(self, upper: DirTree, host: DirTree) -> None:
        self._upper, self._host, self._marks = upper, host, OverlayMarks(upper)
        self._touched: Touched = {}

    def touched(self) -> Touched:
        self._visit("", over=True, opaque=False)
        return self._touched

    def _visit(self, folder: str, *, over: bool, opaque: bool) -> None:
        """`over`: the host has this folder too. `opaque`: nothing of the host shows through here or below."""
        names = self._upper.names(folder)
        for name in names:
            path = join(folder, name)
            node = self._upper.node(path)
            if node is None:
                continue
            marks = self._marks.of(path, node)
            below = self._host.node(path) if over else None
            if is_whiteout(node, marks):
                self._gone(path, below)
                continue
            node = _with_trouble(path, node, marks)
            self._touched[path] = node
            if node.kind != "directory":
                self._gone_below(path, below)
            elif not node.trouble:
                is_folder = below is not None and below.kind == "directory"
                hides = opaque or is_opaque(marks)
                self._visit(path, over=is_folder, opaque=hides)
        if over and opaque:
            for name in sorted(set(self._host.names(folder)) - set(names)):
                path = join(folder, name)
                self._gone(path, self._host.node(path))

    def _gone(self, path: str, below: Node | None) -> None:
        if below is not None:
            self._touched[path] = None
            self._gone_below(path, below)

    def _gone_below(self, path: str, below: Node | None) -> None:
        if below is not None and below.kind == "directory" and path.count("/") < MAX_DEPTH:
            for name in self._host.names(path):
                child = join(path, name)
                self._gone(child, self._host.node(child))


def is_opaque(marks: dict[str, str]) -> bool:
    """Whether nothing of the host shows through a folder."""
    return marks.get("opaque") == _YES


def is_whiteout(node: Node, marks: dict[str, str]) -> bool:
    """Whether an entry stands for a deletion."""
    if stat.S_ISCHR(node.stat.st_mode):
        return node.stat.st_rdev == 0
    return node.kind == "file" and node.size == 0 and "whiteout" in marks


def _with_trouble(path: str, node: Node, marks: dict[str, str]) -> Node:
    if node.kind == "directory" and path.count("/") >= MAX_DEPTH - 1:
        return Node(node.stat, None, _TOO_DEEP)
    for mark in ("redirect", "metacopy"):
        if mark in marks:
            return Node(node.stat, node.target, f"the overlay kept its content elsewhere ({mark})")
    return node


def touched_in_copy(copy: DirTree, manifest: Manifest) -> Touched:
    """What is in a copy, or gone from it, since it was made."""
    nodes = ((path, copy.node(path)) for path in shown_by_copy(scan(copy), manifest))
    return {path: _with_trouble(path, node, {}) if node else None for path, node in nodes if node or path in manifest}


@dataclass
class Comparison:
    """Host and layer side by side, and what the host had before.

    `counting`: with numbers of lines, and a look into what is written.
    """

    opened: OpenLayer
    counting: bool = True
    base: Base = field(init=False)
    named: dict[str, str] = field(init=False)
    git: str | None = field(init=False)
    without: frozenset[str] = field(init=False)
    lines: Lines = field(default_factory=Lines)

    def __post_init__(self) -> None:
        self.base = base_of(self.opened)
        self.named = named_by_git(self.opened.host.root)
        self.git = git_prefix(self.opened.host)
        self.without = frozenset(map(decode_path, self.opened.layer.without))

    def touched(self) -> Touched:
        opened = self.opened
        if opened.is_copy:
            return touched_in_copy(opened.written, opened.manifest())
        return _UpperLayer(opened.written, opened.host).touched()

    def change(self, path: str, after: Node | None) -> Change | None:
        """The difference between the host as it is now and what the bot left, or None."""
        host, written = self.opened.host, self.opened.written
        if path in self.without or (self.git is not None and part_of(self.git, path) == "own"):
            return None
        before = host.node(path)
        sides = Side.of(host, path, before), Side.of(written, path, after)
        kind = kind_of(*sides, lambda: self._is_same(path, before, after))
        if kind is None and after and after.trouble:
            kind = "mode" if after.kind == "directory" else "modified"
        if kind is None or self._is_of_the_host(path, before, after):
            return None
        return self._judged(path, kind, *sides, after)

    def _judged(
        self, path: str, kind: ChangeKind, before: Side | None, side: Side | None, after: Node | None
    ) -> Change:
        found, masked = self.lines.change(path, kind if self.counting else "mode", before, side)
        refused = refusal(path, after) if after else None
        if any(path == mount or path.startswith(mount + "/") for mount in self.opened.mounts):
            refused = "another file system is mounted there on the host"
        elif path.count("/") >= MAX_DEPTH:
            refused = _TOO_DEEP
        mode, written = before.mode if before else None, self.opened.written
        gits = f".git/{path}" if self.git == "" else path
        if commits := self._commits(path, found.entry, after):
            flagged, refused = commits[0], refused or commits[1]
        else:
            flagged = flag(
                gits,
                entry=found.entry,
                mode=found.mode,
                mode_before=mode,
                deleted=after is None,
                texts=lambda: _texts(before, side),
            )
            refused = refused or never(gits, found.entry)
            refused = refused or (None if self.git is None else stays_inside(self.git, path, written))
        obeyed = self._obeyed(path, after) if after is not None else None
        if not (flagged and flagged.held) and (why := obeyed or (_MASKED if masked else None)):
            flagged = Flag(why)
        return replace(
            found,
            kind=kind,
            refused=refused,
            flagged=flagged.why if flagged else None,
            held=bool(flagged and flagged.held),
        )

    def _commits(self, path: str, entry: EntryKind, after: Node | None) -> tuple[Flag | None, str | None] | None:
        """Of branches, tags and HEAD, and folders of these, which apply checks (commits.py): the flag, and why it is
        refused.
        """
        if self.git is None or after is None or part_of(self.git, path) is None:
            return None
        if entry == "directory":
            return None, None
        was, now = says(self.opened.host, path), says(self.opened.written, path)
        if now is None:
            return None, "not what git writes for a branch, a tag or HEAD"
        return Flag(f"the bot's commits: {was[:12] if was else 'new'} -> {now[:60]}", held=False), None

    def _obeyed(self, path: str, after: Node) -> str | None:
        """Why git obeys what it is, what it lies in or, where it is no folder, what it takes the place of."""
        for name, why in self.named.items():
            inside, outside = f"{path}/".startswith(f"{name}/"), name.startswith(f"{path}/")
            if inside or (outside and after.kind != "directory"):
                return why
        return None

    def _is_of_the_host(self, path: str, before: Node | None, after: Node | None) -> bool:
        """Whether only the host has changed: what the bot left is what it began with."""
        was = self.base.get(path)
        if was is None or (after is not None and after.trouble) or was.is_same(self.opened.host, path, before):
            return False
        return was.is_same(self.opened.written, path, after)

    def _is_same(self, path: str, before: Node | None, after: Node | None) -> bool:
        """Of two files of one size, or two of what is none."""
        assert before is not None
        assert after is not None
        if after.kind == "special":
            formats = (stat.S_IFMT(node.stat.st_mode) for node in (before, after))
            return len(set(formats)) == 1 and before.stat.st_rdev == after.stat.st_rdev
        try:
            with self.opened.host.file(path) as ours, self.opened.written.file(path) as theirs:
                return same_data(ours, theirs, COMPARE_BYTES)
        except PermissionError:
            return False


def _texts(before: Side | None, after: Side | None) -> tuple[bytes, bytes] | None:
    """Of two files that are not large; where there was none, it is empty."""
    sides = [side for side in (before, after) if side is not None]
    if after is None or any(side.kind != "file" or side.size > TEXT_BYTES for side in sides):
        return None
    try:
        old, new = before.read(TEXT_BYTES) if before else b"", after.read(TEXT_BYTES)
    except PermissionError:
        return None
    return None if old is None or new is None else (old, new)


_NOT_WHOLE = "bring it back from its snapshots: stockade runs resume RUN; or throw it away: stockade runs discard RUN"


def check_whole(layer: FolderLayer, written: DirTree) -> None:
    """LayerLost when the layer does not hold what it was sealed with."""
    if layer.seal is not None and (now := seal_of(written)) != layer.seal:
        held, holds = layer.seal.partition(":")[0], now.partition(":")[0]
        what = "it was written to since" if held == holds else f"of its {held} entries at the end {holds} are there"
        raise LayerLost(f"the layer of {layer.host} is not whole: {what} ({layer.layer})", _NOT_WHOLE)


def seal_of(written: DirTree, found: Found | None = None) -> str:
    """Number of entries and the hash of what each is: path, kind, mode, size, and when it was written.

    `found`: what a scan of it has just given.
    """
    found, digest = found or scan(written), hashlib.sha256()
    for path in sorted(found):
        node = found[path]
        times = 0 if stat.S_ISDIR(node.st_mode) else node.st_mtime_ns
        if path:
            what = f"{node.st_mode}:{node.st_size if times else 0}:{times}"
            digest.update(f"{path}\0{what}\0".encode(errors="surrogateescape"))
    return f"{len(found) - 1}:{digest.hexdigest()[:32]}"


@contextmanager
def reading(layer: FolderLayer) -> Iterator[None]:
    """Foreign errors of a review become SandboxFailed."""
    try:
        yield
    except OSError as error:
        where = f" ({os.fsdecode(error.filename)!r})" if isinstance(error.filename, str | bytes) else ""
        raise SandboxFailed(f"cannot review {layer.host}: {error.strerror}{where}") from error


def find_changes(layer: FolderLayer) -> tuple[Change, ...]:
    """Every difference that applying the layer would make, by path. LayerLost when it is gone, or not whole."""
    if layer.strategy == "direct":
        return ()
    with reading(layer), open_layer(layer) as opened:
        check_whole(layer, opened.written)
        return tuple(compare_all(Comparison(opened)).values())


def digest(change: Change, opened: OpenLayer) -> str:
    """Of a change and the content of both its sides: what was looked at is known again by it."""
    path, sides = decode_path(change.path), []
    for tree in (opened.host, opened.written):
        node = tree.node(path)
        holds = digest_at(tree, path) if node is not None and node.kind == "file" else node and node.target
        sides.append((node and (node.kind, node.mode), holds))
    what = (change.path, change.kind, change.entry, change.mode, change.target, sides)
    return hashlib.sha256(repr(what).encode(errors="surrogateescape")).hexdigest()


def compare_all(comparison: Comparison) -> dict[str, Change]:
    """Changes by path as the file system spells it, in order: a folder before what is in it."""
    touched = comparison.touched()
    found = {}
    for path in sorted(touched, key=lambda path: path.split("/")):
        if change := comparison.change(path, touched[path]):
            found[path] = change
    return found
