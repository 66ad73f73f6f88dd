"""What is kept beside a layer: whose it is, when it began, how the original looked, what was applied since."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from stockade_sandbox.errors import FolderMoved, LayerLost, SandboxFailed, UsageError
from stockade_sandbox.locks import try_lock
from stockade_sandbox.overlay.safe_fs import DirTree, Node, decode_path, encode_path
from stockade_sandbox.records import Record, line_of, read
from stockade_sandbox.results import EntryKind, FolderLayer

LAYER_FILE = "layer.json"
MANIFEST_FILE = "manifest"


class LayerRecord(Record, kw_only=True):
    """`device`, `inode` and `filesystem` (f_fsid; 0 is none) name the host folder.

    `started_ns` is the file system's clock when the layer was made.
    """

    version: int = 1
    host: str
    device: int
    filesystem: int = 0
    inode: int
    started_ns: int
    skipped: tuple[str, ...] = ()


class Baseline(Record, kw_only=True):
    """How an entry of the host looked. `copy_inode` and `copy_ctime_ns` are those of its copy, right after copying;
    `sha256` is base.digest_of its file."""

    path: str
    kind: EntryKind
    size: int = 0
    mtime_ns: int = 0
    mode: int = 0
    target: str | None = None
    copy_inode: int = 0
    copy_ctime_ns: int = 0
    sha256: str = ""

    @classmethod
    def of(cls, path: str, node: Node) -> "Baseline":
        when = 0 if node.kind == "directory" else node.stat.st_mtime_ns
        target = None if node.target is None else encode_path(node.target)
        return cls(path=encode_path(path), kind=node.kind, size=node.size, mtime_ns=when, mode=node.mode, target=target)


def write_file(path: Path, data: bytes) -> None:
    """All of it or the old file; on disk when this returns."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    part.replace(path)


def write_seen(path: Path, entries: Iterable[Baseline]) -> None:
    write_file(path, b"".join(line_of(entry) + b"\n" for entry in entries))


def read_seen(path: Path) -> dict[str, Baseline]:
    """By path as the file system spells it. SandboxFailed when the record is damaged."""
    if not path.exists():
        return {}
    try:
        entries = [read(Baseline, line) for line in path.read_bytes().split(b"\n") if line]
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

    def manifest(self) -> dict[str, Baseline]:
        return read_seen(self.base / MANIFEST_FILE)


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
        if not host.is_folder(record.device, record.inode, record.filesystem):
            raise FolderMoved(f"{layer.host} is another folder than the one the run began with", _MOVED)
        yield host


@contextmanager
def open_layer(layer: FolderLayer, *, writing: bool = False) -> Iterator[OpenLayer]:
    """The layer, locked against being applied by two at a time, and its host folder. UsageError when either is gone."""
    base, record = read_record(layer)
    with ExitStack() as stack:
        lock = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, lock)
        if not try_lock(lock, shared=not writing):
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
