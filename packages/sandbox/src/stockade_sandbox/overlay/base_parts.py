"""How a base lies on disk: for snapshot N an index `N` of JSON lines, a path each, and a file of the bytes they name.

A part is written whole, synced and renamed into place before the snapshot of its number, so it is there or not. `0` is
what another layer has handed on; `applied` is what an apply wrote since. Parts lie in `base/` beside the layer and go
with it.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.overlay.record import Baseline, write_file
from stockade_sandbox.overlay.safe_fs import CHUNK, DirTree, Node, copy_piece, decode_path, encode_path, extents
from stockade_sandbox.overlay.segments import KEPT, sync_folder, write_at
from stockade_sandbox.records import Record, line_of, read
from stockade_sandbox.results import EntryKind

BASE = "base"
APPLIED = "applied"
KEPT_BYTES = 64 << 20
"""A file above this is known by its hash only."""
MODE_BITS = 0o1777
"""The others are never copied or applied."""
_BLOCK = 4096
_DATA = ".data"


class Original(Record, kw_only=True):
    """What the host had at a path.

    `absent`: nothing; `unknown`: it changed while the bot changed its own; `dropped`: the layer does not show it now.
    `inode` and `ctime_ns` (0: too young to be told by) know the host's entry again without reading it. A file's bytes
    are at `at` of the file `data`; with `data` empty only its hash is kept. `sha256` is what digest_of says.
    """

    path: str
    state: Literal["known", "absent", "unknown", "dropped"] = "known"
    kind: EntryKind = "file"
    mode: int = 0
    size: int = 0
    target: str | None = None
    sha256: str = ""
    inode: int = 0
    ctime_ns: int = 0
    data: str = ""
    at: int = 0

    @classmethod
    def of(cls, path: str, node: Node) -> "Original":
        target = None if node.target is None else encode_path(node.target)
        return cls(path=encode_path(path), kind=node.kind, mode=node.mode, size=node.size, target=target,
                   inode=node.stat.st_ino, ctime_ns=node.stat.st_ctime_ns)  # fmt: skip

    @classmethod
    def copied(cls, seen: Baseline) -> "Original":
        return cls(path=seen.path, kind=seen.kind, mode=seen.mode, size=seen.size, target=seen.target,
                   sha256=seen.sha256)  # fmt: skip

    def is_same(self, tree: DirTree, path: str, node: Node | None) -> bool:
        """Whether `node`, at `path` of the host or of a layer, is this. Reads it where only its bytes can tell."""
        if self.state != "known" or node is None:
            return self.state == "absent" and node is None
        if (node.stat.st_ino, node.stat.st_ctime_ns) == (self.inode, self.ctime_ns):
            return True
        if node.kind != self.kind or node.kind == "special" or node.size != self.size:
            return False
        if node.kind == "symlink":
            return node.target == decode_path(self.target or "")
        if (node.mode ^ self.mode) & MODE_BITS:
            return False
        return node.kind == "directory" or (self.sha256 != "" and self.sha256 == digest_at(tree, path))


def digest_of(fd: int, tick: Callable[[int], None] | None = None) -> str:
    """sha256 of a file's bytes; above KEPT_BYTES, of each MiB that is not all zeros, with its number before it.

    So the holes of an image of a disk are not read, and the same bytes give the same hash however they lie. `tick` is
    called between pieces and may raise.
    """
    size, digest = os.fstat(fd).st_size, hashlib.sha256()
    numbers: Iterable[int] = range(-(-size // CHUNK)) if size <= KEPT_BYTES else _chunks(fd)
    for number in numbers:
        data = os.pread(fd, min(CHUNK, size - number * CHUNK), number * CHUNK)
        if size > KEPT_BYTES:
            if data == bytes(len(data)):
                continue
            digest.update(number.to_bytes(8, "big"))
        digest.update(data)
        if tick:
            tick(0)
    return digest.hexdigest()


def _chunks(fd: int) -> Iterator[int]:
    """The numbers of those that hold data, each once."""
    following = 0
    for start, end in extents(fd):
        first = max(start // CHUNK, following)
        following = max(-(-end // CHUNK), following)
        yield from range(first, following)


def digest_at(tree: DirTree, path: str) -> str | None:
    """None where it cannot be read, or is being replaced: not known to be the same then."""
    try:
        with tree.file(path) as fd:
            return digest_of(fd)
    except OSError:
        return None


class Part:
    """Of a base that is being written. Nothing of it counts before `commit`."""

    def __init__(self, folder: Path, index: str) -> None:
        self._index = folder / index
        self.name = f"{secrets.token_hex(8)}{_DATA}"
        self._out: int | None = None
        self._end = 0
        self._committed = False

    def add(self, fd: int, size: int, head: bytes) -> int:
        """Where the bytes of a file are now. Blocks are shared where the file system can and it pays."""
        out = self._open()
        if size <= len(head):
            at = self._end
            write_at(out, head, at)
        else:
            at = -(-self._end // _BLOCK) * _BLOCK
            done = 0
            while done < size and (count := copy_piece(fd, out, done, size - done, at)):
                done += count
        self._end = at + size
        return at

    def commit(self, entries: Iterable[Original], *, anew: bool = False) -> None:
        """Durable when this returns. Adds to what is there of that part, unless `anew`."""
        self._make_folder()
        if self._out is not None:
            os.fsync(self._out)
        lines = [line_of(entry) + b"\n" for entry in entries]
        before = self._index.read_bytes() if self._index.exists() and not anew else b""
        write_file(self._index, before + b"".join(lines))
        sync_folder(self._index.parent)
        self._committed = True

    def close(self) -> None:
        if self._out is not None:
            os.close(self._out)
            if not self._committed:
                self._index.with_name(self.name).unlink(missing_ok=True)

    def _open(self) -> int:
        if self._out is None:
            self._make_folder()
            self._out = os.open(
                self._index.with_name(self.name), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
            )
        return self._out

    def _make_folder(self) -> None:
        if not self._index.parent.exists():
            self._index.parent.mkdir(mode=0o700)
            sync_folder(self._index.parent.parent)


def number_after(place: Path) -> int:
    """Of the part that is noted after all snapshots and parts of a layer."""
    names = [path.name for folder in (place / BASE, place / KEPT) if folder.is_dir() for path in folder.iterdir()]
    return max([int(name) for name in names if name.isdecimal()], default=0) + 1


def indices(place: Path, number: int | None = None) -> list[Path]:
    """Of the parts up to `number`, in order."""
    found = [path for path in (place / BASE).iterdir() if path.name.isdecimal()] if (place / BASE).is_dir() else []
    return sorted((one for one in found if number is None or int(one.name) <= number), key=lambda one: int(one.name))


def forget_after(place: Path, number: int) -> None:
    """What was noted after snapshot `number`, which the layer is brought back to, and bytes that nothing names."""
    for path in set(indices(place)) - set(indices(place, number)):
        path.unlink()
    named = {entry.data for path in [*indices(place), place / BASE / APPLIED] for entry in read_index(path)}
    for path in (place / BASE).glob(f"*{_DATA}"):
        if path.name not in named:
            path.unlink()


def share(source: Path, place: Path, number: int, *, as_part: str | None = None) -> None:
    """Give another layer of the folder what was noted up to snapshot `number`: part by part, or all of it `as_part`."""
    if not (source / BASE).is_dir():
        return
    (place / BASE).mkdir(mode=0o700, exist_ok=True)
    parts = indices(source, number)
    for path in [*(source / BASE).glob(f"*{_DATA}"), *([] if as_part else parts)]:
        with suppress(FileExistsError):  # an attempt before this one was cut off
            os.link(path, place / BASE / path.name)
    if as_part:
        write_file(place / BASE / as_part, b"".join(path.read_bytes() for path in parts))
    sync_folder(place / BASE)


def read_index(path: Path) -> list[Original]:
    """SandboxFailed when it is damaged."""
    if not path.exists():
        return []
    try:
        return [read(Original, line) for line in path.read_bytes().split(b"\n") if line]
    except ValueError as error:
        raise SandboxFailed(f"the record {path} is damaged", "discard the layer and run again") from error
