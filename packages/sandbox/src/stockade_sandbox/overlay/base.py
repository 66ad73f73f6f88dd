"""The base: what the host had at each path when the layer first showed it, by content.

By it conflicts are told (by bytes, kind, mode and target, never by time), and host and bot are merged.

With a copy it is the manifest, which has each file's hash from when it was copied; the bytes are taken from the host
when the bot first changes the copy, if they are still those. An overlay shows the host's file as it is until the bot
writes to it; so the host is read at the look after that. What changed there in between (its ctime is not older than the
bot's own file, nor than the look before) is not known any more: that is said and never guessed, and a conflict unless
both sides are equal. This compares stamps of the host's file system with ours: over a network from a machine whose
clock is behind, a change within that time passes for an older one.
"""

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from stockade_sandbox.overlay.journal import all_journals, journals_of
from stockade_sandbox.overlay.record import Manifest, OpenLayer, Original
from stockade_sandbox.overlay.safe_fs import (
    CHUNK,
    LARGE,
    MAX_DEPTH,
    DirTree,
    Node,
    OverlayMarks,
    decode_path,
    digest_at,
    digest_of,
    encode_path,
    join,
    parent,
)
from stockade_sandbox.overlay.store import Delta, SegmentWriter, base_writer, read_base, read_data
from stockade_sandbox.records import replace
from stockade_sandbox.results import Change

DELETED_BYTES = 64 << 20
"""Of what a bot removed this much is kept in all, the rest by hash: nobody merges with nothing."""
GRAIN_NS = 50_000_000
"""A ctime younger than this may stay the same over another write."""


class Base:
    """Of one layer. `copied`: the manifest where the layer is a copy. `since_ns`: nothing was in the layer then.

    Not thread-safe; blocks.
    """

    def __init__(self, place: Path, copied: Manifest | None, since_ns: int) -> None:
        self._place, self._copied, self.since_ns = place, copied, since_ns
        self._entries: dict[str, Original] = {}
        self._data: dict[str, Original] = {}
        self._covered: set[str] = set()
        self._left = DELETED_BYTES
        for delta in read_base(place):
            self._take_in(delta.originals)
            self._data.update((one.sha256, one) for one in (*delta.originals, *delta.applied) if one.data)
        self._applied = dict(_applied(place, since_ns))

    def get(self, path: str) -> Original | None:
        """None: the layer did not show it yet when it was last looked at."""
        if found := self._applied.get(path) or self._entries.get(path):
            return found
        return self._of_copy(path) if self._copied is not None else None

    def of(self, path: str, host: DirTree, written: DirTree) -> Original:
        """Where nothing is on record, what can be said of it now."""
        return self.get(path) or self._now(path, host, written)

    def data(self, entry: Original) -> bytes | None:
        """A file's bytes; None where they are not kept. SandboxFailed when they are damaged."""
        if entry.state != "known" or entry.kind != "file":
            return None
        known = self._data.get(entry.sha256)
        return read_data(self._place, known) if known else None if entry.size else b""

    def is_new(self, path: str) -> bool:
        """Whether nothing was noted of it."""
        return path not in self._entries

    def capture(
        self,
        number: int,
        host: DirTree,
        written: DirTree,
        shown: Iterable[str],
        gone: Iterable[str] = (),
        now_ns: int = 0,
    ) -> None:
        """Note what the host has at the paths that the layer shows, a folder first; forget what is `gone` from it.

        With snapshot `number`, durable when this returns. `now_ns`: when the look at the layer began. OSError: no room.
        """
        writer = base_writer(self._place, number)
        try:
            new = [entry for path in shown for entry in self._new(path, host, written, writer)]
            for path in gone:
                if (known := self._entries.get(path)) is not None and known.state != "known":
                    new.append(Original(path=encode_path(path), state="dropped"))
                    self._take_in(new[-1:])
            if new:
                writer.commit(Delta(number=number, originals=tuple(new)))
        finally:
            writer.abandon()
        self.looked(now_ns)

    def looked(self, now_ns: int) -> None:
        """All that the layer holds was noted at a look that began then."""
        self.since_ns = max(self.since_ns, now_ns - GRAIN_NS)

    def keep(self, written: DirTree, chosen: Mapping[str, Change]) -> None:
        """The bytes of what the bot made of these, which is their base once it is applied: for merging."""
        writer = base_writer(self._place, 0)
        try:
            nodes = ((path, written.node(path)) for path, change in chosen.items() if change.kind != "deleted")
            found = [(path, Original.of(path, node)) for path, node in nodes if node is not None]
            entries = [self._with_data(entry, path, written, writer, wanted=True) for path, entry in found]
            if new := tuple(entry for entry in entries if entry.data == writer.key):
                writer.commit(Delta(number=0, applied=new))
        finally:
            writer.abandon()

    def _new(self, path: str, host: DirTree, written: DirTree, writer: SegmentWriter) -> Iterator[Original]:
        """What is not on record of a path, and of what it hides of the host."""
        waiting = [(path, False)]
        while waiting:
            path, hidden = waiting.pop()
            if not path or path.count("/") >= MAX_DEPTH:
                continue
            node = host.node(path)
            is_folder = self._copied is None and node is not None and node.kind == "directory"
            if is_folder and path not in self._covered and (hidden or _hides(written, path)):
                self._covered.add(path)
                waiting += [(join(path, name), True) for name in host.names(path)]
            if path not in self._entries:
                entry = self._of_copy(path) if self._copied is not None else self._now(path, host, written)
                entry = self._with_data(entry, path, host, writer, wanted=not _is_gone(written.node(path)))
                if self._copied is None and _written(node) != _written(host.node(path)):
                    entry = Original(path=entry.path, state="unknown")  # while it was read
                if entry.ctime_ns > time.time_ns() - GRAIN_NS:
                    entry = replace(entry, ctime_ns=0)
                self._take_in([entry])
                yield entry

    def _of_copy(self, path: str) -> Original:
        return (self._copied or {}).get(path) or Original.absent(path)

    def _now(self, path: str, host: DirTree, written: DirTree) -> Original:
        """What the host had when an overlay first showed a path, as far as what it has now can tell."""
        node, ours = host.node(path), written.node(path)
        after_ns = 0 if _is_gone(ours) else written.birth_ns(path)
        unknown = Original(path=encode_path(path), state="unknown")
        if node is None:
            new = _is_gone(ours) or not _came_from_host(written, path) or self._is_old(_above(host, path), after_ns)
            return Original.absent(path) if new else unknown
        if self._is_old(node.stat, after_ns) or (ours is not None and _are_equal(path, node, ours, host, written)):
            return Original.of(path, node)
        return unknown

    def _is_old(self, found: os.stat_result, after_ns: int) -> bool:
        """Whether it was like that before the bot had its own. Both times are stamped by the same clock."""
        return found.st_ctime_ns <= self.since_ns or found.st_ctime_ns < after_ns

    def _with_data(self, entry: Original, path: str, tree: DirTree, writer: SegmentWriter, *, wanted: bool) -> Original:
        """With its hash, and its bytes where they are to be kept. Not `wanted`: as far as DELETED_BYTES go."""
        if entry.state != "known" or entry.kind != "file":
            return entry
        try:
            with tree.file(path) as fd:
                before = os.fstat(fd)
                head = os.pread(fd, min(before.st_size, CHUNK + 1), 0)
                sha256 = digest_of(fd) if len(head) > CHUNK else hashlib.sha256(head).hexdigest()
                changed = _differ(before, os.fstat(fd)) or (self._copied is None and entry.inode != before.st_ino)
                if changed or entry.sha256 not in ("", sha256):  # a copy's original is known, but not its bytes
                    return entry if entry.sha256 else replace(entry, state="unknown")
                entry = replace(entry, sha256=sha256)
                if known := self._data.get(sha256):
                    return replace(entry, data=known.data, at=known.at)
                if not 0 < entry.size <= (LARGE if wanted else min(LARGE, self._left)):
                    return entry
                self._left -= 0 if wanted else entry.size
                kept = replace(entry, data=writer.key, at=writer.add_whole(fd, entry.size, head))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            return entry  # cannot be read: known again as long as nobody touches it
        self._data[sha256] = kept
        return kept

    def _take_in(self, entries: Iterable[Original]) -> None:
        for entry in entries:
            if entry.state == "dropped":
                self._entries.pop(decode_path(entry.path), None)
            else:
                self._entries[decode_path(entry.path)] = entry


def _applied(place: Path, layer_ns: int) -> Iterator[tuple[str, Original]]:
    """What the bot made of what is on the host now, alone or merged: from then on it is the base. By the journals."""
    for journal in all_journals(journals_of(place)):
        head = journal.head()
        if head is None or head.layer_ns != layer_ns:  # of a layer that was there before
            continue
        for entry in journal.entries():
            if (entry.at if entry.left or head.step == "done" else head.goal) == "after":
                look = entry.bots or entry.after
                if look.kind == "absent":
                    yield decode_path(entry.path), Original.absent(decode_path(entry.path))
                else:
                    made = Original(path=entry.path, kind=look.kind, mode=look.mode, size=look.size,
                                    target=look.target or None, sha256=look.sha256)  # fmt: skip
                    yield decode_path(entry.path), made


def base_of(opened: OpenLayer) -> Base:
    """The base of an opened layer."""
    return Base(opened.base, opened.manifest() if opened.is_copy else None, opened.record.started_ns)


def _is_gone(ours: Node | None) -> bool:
    """Whether a layer has nothing at a path: no entry, or an overlay's mark that the host's is hidden."""
    return ours is None or stat.S_ISCHR(ours.stat.st_mode)


def _hides(written: DirTree, path: str) -> bool:
    """Whether a folder of the host is hidden by what the layer has there."""
    node = written.node(path)
    return node is None or node.kind != "directory" or "opaque" in OverlayMarks(written).of(path, node)


def _came_from_host(written: DirTree, path: str) -> bool:
    """Whether the overlay copied it up from somewhere, as its mark says, which a bot cannot set."""
    return "origin" in OverlayMarks(written).of(path, written.node(path))


def _above(host: DirTree, path: str) -> os.stat_result:
    """The nearest folder that the host still has above a path: it was written to when something went from it."""
    while path := parent(path):
        if (node := host.node(path)) is not None:
            return node.stat
    return os.fstat(host.root_fd)


def _are_equal(path: str, node: Node, ours: Node, host: DirTree, written: DirTree) -> bool:
    one = Original.of(path, node)
    if node.kind == "file" and node.size == ours.size:
        one = replace(one, sha256=digest_at(host, path) or "")
    return one.is_same(written, path, ours)


def _written(node: Node | None) -> tuple[int, int, int] | None:
    """What changes when a file is written to or replaced, and not when only its mode does."""
    return (node.stat.st_ino, node.stat.st_size, node.stat.st_mtime_ns) if node and node.kind == "file" else None


def _differ(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_ctime_ns, before.st_size) != (after.st_ctime_ns, after.st_size)
