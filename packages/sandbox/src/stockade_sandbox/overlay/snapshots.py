"""Snapshots of what a bot wrote, taken while it goes on: what did not change since the last one costs one look.

A file whose inode, times, size and mode are those of the last look is taken to be the same. ctime cannot be set from
inside; one that is younger than the clock's grain is looked at again next time (as git does with its index). A layer
that holds much is watched, so that there is no look at all where nothing was written.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import anyio
import anyio.to_thread

from stockade_sandbox.errors import FolderMoved, SandboxFailed
from stockade_sandbox.overlay.base import GRAIN_NS, Base, base_of
from stockade_sandbox.overlay.record import Manifest, Original, open_host, open_layer, read_manifest, read_record
from stockade_sandbox.overlay.safe_fs import MAX_DEPTH, DirTree, decode_path, encode_path, join, xattrs_of
from stockade_sandbox.overlay.store import (
    KEPT,
    Delta,
    Kept,
    KeptKind,
    SegmentWriter,
    drop_data,
    number_after,
    number_of,
    read_snapshot,
)
from stockade_sandbox.overlay.watch import Watch
from stockade_sandbox.records import replace
from stockade_sandbox.results import FolderLayer

_REPLACED = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO}
ORIGIN = "overlay.origin"
MARKS = ("trusted.overlay.", "user.")
_MANY = 300
"""A look at fewer takes a moment only."""
_Look = tuple[int, int, int, int, int]
Found = dict[str, os.stat_result]
"""What is in a layer, by path as the file system spells it; the root is the empty path."""


def scan(tree: DirTree, enter: Callable[[str, int], None] | None = None) -> Found:
    """Everything but what lies too deep, a folder before what is in it.

    `enter` is called with each folder and its descriptor before it is read.
    """
    found: Found = {"": os.fstat(tree.root_fd)}
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            fd = tree.folder(folder)
        except FileNotFoundError:
            continue
        if enter:
            enter(folder, fd)
        with os.scandir(fd) as entries:
            for entry in entries:
                path = join(folder, entry.name)
                try:
                    seen = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                found[path] = seen
                if stat.S_ISDIR(seen.st_mode) and path.count("/") < MAX_DEPTH - 1:
                    waiting.append(path)
    return found


def kind_of(seen: os.stat_result) -> KeptKind | None:
    """None for what is not kept."""
    mode = seen.st_mode
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISLNK(mode):
        return "symlink"
    if stat.S_ISCHR(mode) and seen.st_rdev == 0:
        return "whiteout"
    return "fifo" if stat.S_ISFIFO(mode) else None


def marks_of(fd: int) -> dict[str, str]:
    """The extended attributes that belong to the overlay or to the bot.

    Not a file's `origin`: two files that were one (hard links come back as copies) must not claim the same one.
    """
    return {name: value for name, value in xattrs_of(fd, MARKS).items() if not name.endswith(ORIGIN)}


def shown_by_copy(found: Found, originals: Manifest) -> list[str]:
    """The paths of a copy that are not as they were copied, what is gone from it too; a folder first."""
    new = [path for path, now in found.items() if path and not _is_untouched(originals.get(path), now)]
    return sorted([*new, *(originals.keys() - found.keys())], key=lambda path: path.split("/"))


def _is_untouched(before: Original | None, now: os.stat_result) -> bool:
    return before is not None and before.is_untouched(now)


class Snapshots:
    """Of one layer, from the snapshot `name` on. Not thread-safe; blocks.

    `guard` gives the process whose descendants are the sandbox's; where it is None, nothing is watched.
    """

    def __init__(
        self,
        layer: FolderLayer,
        name: str | None = None,
        limit_bytes: int = 0,
        guard: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._layer, self._is_copy = layer, layer.strategy == "copy"
        self._root, self._place = layer.written or Path(), Path(str(layer.layer))
        self._folder = self._place / KEPT
        self._limit = limit_bytes
        self.name = name
        self._entries = read_snapshot(self._folder, name)
        self._before = self._entries
        self._blobs = {entry.sha256: entry for entry in self._entries.values() if entry.kind == "file"}
        self._originals = read_manifest(self._place) if self._is_copy else {}
        self._base = Base(self._place, self._originals if self._is_copy else None, read_record(layer)[1].started_ns)
        self._looked: dict[str, _Look | None] = {}
        self._watch = Watch(layer, guard)
        self._sizes = {number: (self._folder / f"{number}").stat().st_size for number in range(1, number_of(name) + 1)}

    def unchanged(self) -> bool:
        """Whether nothing was written since the last look. False where that cannot be told in a moment."""
        begun = time.time_ns()
        if not self._watch.is_quiet():
            try:
                if len(self._looked) > _MANY:
                    return False
                with DirTree(self._root) as tree:
                    if _looks(scan(tree)) != self._looked:
                        return False
            except OSError:
                return False  # `take` meets it again and says what it is
        self._base.looked(begun)
        return True

    def close(self) -> None:
        """Nothing is kept any more."""
        self._watch.close()

    def take(self) -> str | None:
        """The name of what is there now, durable. SandboxFailed when there is no room or it cannot be read."""
        try:
            with DirTree(self._root) as tree:
                return self._take(tree)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise SandboxFailed("the disk is full: what was written cannot be kept", "free some space") from error
            raise SandboxFailed(f"cannot keep what was written in {self._root}: {error.strerror}") from error

    def _take(self, tree: DirTree) -> str | None:
        begun = time.time_ns()
        with self._watch.looking() if len(self._looked) > _MANY else nullcontext() as enter:
            found = scan(tree, enter)
        looks = _looks(found)
        changed = [path for path, look in looks.items() if self._looked.get(path) != look]
        gone = [path for path in self._looked.keys() - looks.keys() if encode_path(path) in self._entries]
        if not self._looked:  # the first look: what the last snapshot has and nobody saw since is gone too
            gone = [path for path in map(decode_path, self._entries) if path not in found]
        if changed or gone:
            self._write(tree, found, changed, gone, begun)
        self._base.looked(begun)
        self._looked = {
            path: look if found[path].st_ctime_ns < begun - GRAIN_NS else None for path, look in looks.items()
        }
        return self.name

    def _write(self, tree: DirTree, found: Found, changed: list[str], gone: list[str], begun: int) -> None:
        number = number_of(self.name) + 1
        is_empty = set(found) == {""} and not gone and not self._is_copy and not self._entries
        if number == 1 and is_empty and not self._folder.exists():
            return  # it is as it began
        writer = SegmentWriter(self._folder, number)
        try:
            new, dropped = self._differences(tree, found, changed, gone, writer)
            if not new and not dropped:
                return
            self._note(tree, number, new, dropped, begun)
            name = writer.commit(Delta(number=number, entries=tuple(new), dropped=tuple(dropped)))
        finally:
            writer.abandon()
        entries = {**self._entries, **{entry.path: entry for entry in new}}
        for path in dropped:
            entries.pop(path, None)
        self._before, self._entries, self.name = self._entries, entries, name
        for entry in new:
            if entry.kind == "file":
                self._blobs[entry.sha256] = entry
                if entry.segment == number:
                    self._sizes[number] = self._sizes.get(number, 0) + entry.length
        self._trim()

    def _note(self, tree: DirTree, number: int, new: list[Kept], dropped: list[str], begun: int) -> None:
        """What the host had there. A folder that was moved away meanwhile is named when its changes are looked at."""
        try:
            with open_host(self._layer) as host:
                shown, gone = [decode_path(entry.path) for entry in new], list(map(decode_path, dropped))
                self._base.capture(number, host, tree, shown, gone, begun)
        except FolderMoved:
            return

    def _differences(
        self, tree: DirTree, found: Found, changed: list[str], gone: list[str], writer: SegmentWriter
    ) -> tuple[list[Kept], list[str]]:
        new, dropped = [], []
        for path in changed:
            entry = self._entry(tree, path, found[path], writer)
            spelled = encode_path(path)
            if entry is None:
                if spelled in self._entries:
                    dropped.append(spelled)
            elif entry != self._entries.get(spelled):
                new.append(entry)
        gone = [*gone, *(path for path in self._originals.keys() - found.keys() if not self._is_known_gone(path))]
        for path in dict.fromkeys(gone):
            if path in self._originals:
                new.append(Kept(path=encode_path(path), kind="gone"))
            elif encode_path(path) in self._entries:
                dropped.append(encode_path(path))
        return new, dropped

    def _is_known_gone(self, path: str) -> bool:
        entry = self._entries.get(encode_path(path))
        return entry is not None and entry.kind == "gone"

    def _entry(self, tree: DirTree, path: str, seen: os.stat_result, writer: SegmentWriter) -> Kept | None:
        """None for what is as it was copied, and for what went while this looked."""
        before = self._originals.get(path)
        kind = kind_of(seen)
        if kind is None or _is_untouched(before, seen) or (self._is_copy and not path):
            return None
        basic = Kept(path=encode_path(path), kind=kind, mode=stat.S_IMODE(seen.st_mode), mtime_ns=seen.st_mtime_ns)
        try:
            if kind == "directory":
                return replace(basic, marks=marks_of(tree.folder(path)))
            if kind == "symlink":
                at, name = tree.place(path)
                target = os.readlink(name, dir_fd=at)
                return replace(basic, target=encode_path(target))
            if kind != "file":
                return replace(basic, mtime_ns=0)
            with tree.file(path) as fd:
                return writer.add(replace(basic, marks=marks_of(fd)), fd, self._blobs)
        except OSError as error:
            if error.errno not in _REPLACED:
                raise
            return None

    def _trim(self) -> None:
        """Past the limit, the oldest data goes that neither this snapshot nor the one before needs."""
        total = sum(self._sizes.values())
        if not self._limit or total <= self._limit:
            return
        needed = {entry.segment for entries in (self._entries, self._before) for entry in entries.values()}
        for number in sorted(self._sizes.keys() - needed):
            if total <= self._limit:
                return
            drop_data(self._folder, number)
            total -= self._sizes.pop(number)
            self._blobs = {name: blob for name, blob in self._blobs.items() if blob.segment != number}


def _looks(found: Found) -> dict[str, _Look | None]:
    """Of what can be kept: no sockets, no devices."""
    return {
        path: (seen.st_ino, seen.st_ctime_ns, seen.st_mtime_ns, seen.st_size, seen.st_mode)
        for path, seen in found.items()
        if kind_of(seen)
    }


class Bases(Snapshots):
    """Only the base is noted, of an overlay: for a sandbox that is never brought back to what it was. Others may note
    theirs of the same layer.
    """

    def _write(self, tree: DirTree, found: Found, changed: list[str], gone: list[str], begun: int) -> None:
        try:
            with open_layer(self._layer) as opened:
                since_ns, self._base = self._base.since_ns, base_of(opened)
                self._base.since_ns = max(since_ns, self._base.since_ns)
                self._base.capture(number_after(opened.base), opened.host, tree, changed, gone, begun)
        except FolderMoved:
            return


class LayerSnapshots:
    """Implements port.SnapshotStore. `names` are the snapshots that the layers are restored to; None is none yet.

    Data beyond `limit_bytes` a layer is forgotten, oldest first, but never that of the last two snapshots.
    `guard` as for Snapshots.
    """

    def __init__(
        self,
        layers: Sequence[FolderLayer],
        names: Sequence[str | None] = (),
        limit_bytes: int = 0,
        guard: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._turn = anyio.Lock()
        given = [*names, *[None] * (len(layers) - len(names))]
        self.layers: list[Snapshots | None] = [
            None if layer.strategy == "direct" else Snapshots(layer, name, limit_bytes, guard)
            for layer, name in zip(layers, given, strict=True)
        ]

    async def keep(self) -> tuple[str | None, ...]:
        async with self._turn:
            return tuple([await self._one(layer) if layer else None for layer in self.layers])

    def close(self) -> None:
        for layer in self.layers:
            if layer:
                layer.close()

    async def _one(self, layer: Snapshots) -> str | None:
        """What takes a moment only, and needs no sync, is done here: a thread costs more."""
        if layer.unchanged():
            return layer.name
        with anyio.CancelScope(shield=True):  # a thread is not to be left behind with the layer
            await anyio.to_thread.run_sync(layer.take)
        return layer.name


def base_snapshots(layers: Sequence[FolderLayer]) -> LayerSnapshots:
    """Only notes what the host has where the layers show something: a copy knows that from its beginning."""
    snapshots = LayerSnapshots(())
    snapshots.layers = [Bases(layer) for layer in layers if layer.strategy == "overlay"]
    return snapshots
