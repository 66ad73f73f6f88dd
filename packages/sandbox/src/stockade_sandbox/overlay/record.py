"""What is kept beside a layer: whose it is, when it began, how the original looked, what was applied since."""

import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stockade_sandbox.errors import FolderMoved, LayerLost, SandboxFailed, UsageError
from stockade_sandbox.locks import lock_within, release
from stockade_sandbox.overlay.safe_fs import MODE_BITS, DirTree, FolderId, Node, decode_path, digest_at, encode_path
from stockade_sandbox.records import Record, line_of, read
from stockade_sandbox.results import EntryKind, FolderLayer

LAYER_FILE = "layer.json"
MANIFEST_FILE = "manifest"
PATIENCE_S = 60.0
"""For another command of the user's that reads or applies the same."""


class LayerRecord(Record, kw_only=True):
    """`folder` is the host's; `started_ns` is the file system's clock when the layer was made."""

    version: int = 1
    host: str
    folder: FolderId
    started_ns: int
    skipped: tuple[str, ...] = ()


class Original(Record, kw_only=True):
    """What the host had at a path: when a layer was copied (the manifest), or first showed it (the base).

    `absent`: nothing; `unknown`: it changed while the bot changed its own; `dropped`: the layer does not show it now.
    `sha256` is safe_fs.digest_of its file. `inode` and `ctime_ns` (0: too young to be told by) know an entry again
    without reading it: the host's, of a manifest that of the copy. `data`: the segment that has a file's bytes, at
    `at`; with an empty one only its hash is kept.
    """

    path: str
    state: Literal["known", "absent", "unknown", "dropped"] = "known"
    kind: EntryKind = "file"
    mode: int = 0
    size: int = 0
    mtime_ns: int = 0
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
    def absent(cls, path: str) -> "Original":
        return cls(path=encode_path(path), state="absent")

    def is_same(self, tree: DirTree, path: str, node: Node | None) -> bool:
        """Whether `node`, at `path` of the host or of a layer, is this. Reads it where only its bytes can tell."""
        if self.state != "known" or node is None:
            return self.state == "absent" and node is None
        if self._is_it(node.stat):
            return True
        if node.kind != self.kind or node.kind == "special" or node.size != self.size:
            return False
        if node.kind == "symlink":
            return node.target == decode_path(self.target or "")
        if (node.mode ^ self.mode) & MODE_BITS:
            return False
        return node.kind == "directory" or (self.sha256 != "" and self.sha256 == digest_at(tree, path))

    def is_untouched(self, copy: os.stat_result) -> bool:
        """Whether an entry of a copy is still the one that was copied: ctime cannot be set back from inside."""
        if stat.S_ISDIR(copy.st_mode):
            return self.kind == "directory" and not (self.mode ^ copy.st_mode) & MODE_BITS
        return self._is_it(copy)

    def _is_it(self, found: os.stat_result) -> bool:
        return (found.st_ino, found.st_ctime_ns) == (self.inode, self.ctime_ns)


Manifest = dict[str, Original]
"""Of a copy, by path as the file system spells it."""


def write_file(path: Path, data: bytes) -> None:
    """All of it or the old file; on disk when this returns."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    part.replace(path)


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_manifest(place: Path, entries: Iterable[Original]) -> None:
    write_file(place / MANIFEST_FILE, b"".join(line_of(entry) + b"\n" for entry in entries))


def read_manifest(place: Path) -> Manifest:
    """Empty where there is none. SandboxFailed when the record is damaged."""
    path = place / MANIFEST_FILE
    if not path.exists():
        return {}
    try:
        entries = [read(Original, line) for line in path.read_bytes().split(b"\n") if line]
    except ValueError as error:
        raise SandboxFailed(f"the record {path} is damaged", "discard the layer and run again") from error
    return {decode_path(entry.path): entry for entry in entries}


@dataclass
class OpenLayer:
    """A layer and its host folder, opened and checked. `written` is what the bot left: the upper layer or the copy."""

    layer: FolderLayer
    base: Path
    record: LayerRecord
    host: DirTree
    written: DirTree
    mounts: frozenset[str]

    @property
    def is_copy(self) -> bool:
        return self.layer.strategy == "copy"

    def manifest(self) -> Manifest:
        return read_manifest(self.base)

    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """A folder for what is needed only now. What a kill leaves in it goes with the layer."""
        return tempfile.TemporaryDirectory(prefix="scratch-", dir=self.base)


GONE = (
    "if it was not discarded, go on without it: stockade runs resume RUN --from-scratch; or: stockade runs discard RUN"
)


def read_record(layer: FolderLayer) -> tuple[Path, LayerRecord]:
    """Where a layer is and what is recorded of it. UsageError when it is gone or not that folder's."""
    if layer.layer is None:
        raise UsageError(f"{layer.host} was written to directly: there is no layer of it")
    base = Path(layer.layer)
    try:
        record = read(LayerRecord, (base / LAYER_FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise LayerLost(f"the layer of {layer.host} is gone: there is no {base / LAYER_FILE}", GONE) from error
    except ValueError as error:
        raise SandboxFailed(f"{base / LAYER_FILE} is damaged", "remove the folder by hand") from error
    if record.host != encode_path(layer.host):
        raise UsageError(f"{base} is not a layer of {layer.host} but of {record.host}")
    return base, record


_MOVED = "if it was moved, move it back; what the run wrote can be thrown away without it: stockade runs discard RUN"


@contextmanager
def open_host(layer: FolderLayer, record: LayerRecord | None = None) -> Iterator[DirTree]:
    """The host folder of a layer. FolderMoved when it is gone or another one."""
    record = record or read_record(layer)[1]
    with ExitStack() as stack:
        try:
            host = stack.enter_context(DirTree(Path(layer.host)))
        except OSError as error:
            raise FolderMoved(f"cannot open the folder {layer.host}: {error.strerror}", _MOVED) from error
        if not record.folder.is_of(host.root_fd):
            raise FolderMoved(f"{layer.host} is another folder than the one the run began with", _MOVED)
        yield host


@contextmanager
def open_layer(layer: FolderLayer, *, writing: bool = False) -> Iterator[OpenLayer]:
    """The layer, locked against being applied by two at a time, and its host folder. UsageError when either is gone."""
    base, record = read_record(layer)
    with ExitStack() as stack:
        lock = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(release, lock)
        if not lock_within(lock, PATIENCE_S, shared=not writing):
            raise UsageError(f"the layer of {layer.host} is being applied", "wait until that is done")
        host = stack.enter_context(open_host(layer, record))
        try:
            written = stack.enter_context(DirTree(layer.written or base))
        except FileNotFoundError as error:
            raise LayerLost(f"the layer of {layer.host} is not whole: {error.filename} is gone", GONE) from error
        yield OpenLayer(layer, base, record, host, written, mounts_below(Path(layer.host)))


def mounts_below(folder: Path) -> frozenset[str]:
    """Relative paths below `folder` where something else is mounted. Empty where the system does not say."""
    table = Path("/proc/self/mountinfo")
    if not table.exists():
        return frozenset()
    inside = os.fsencode(folder).rstrip(b"/") + b"/"
    points = (line.split(b" ")[4] for line in table.read_bytes().splitlines() if line.count(b" ") > 4)
    decoded = (p.replace(b"\\040", b" ").replace(b"\\011", b"\t").replace(b"\\012", b"\n").replace(b"\\134", b"\\")
               for p in points)  # fmt: skip
    return frozenset(os.fsdecode(p[len(inside) :]) for p in decoded if p.startswith(inside))
