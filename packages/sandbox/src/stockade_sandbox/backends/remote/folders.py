"""A folder on its way to another machine, and what was written there on its way back: tar in pax form (docs/remote.md).

Names are any bytes. What is gone is an entry with the vendor's keyword STOCKADE.gone; set-id bits, owners, attributes
and second names stay behind. Whoever takes it in believes nothing of it.
"""

import errno
import os
import tarfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import BinaryIO, Literal

import anyio

from stockade_sandbox.backends.unpack import BoundedHeader
from stockade_sandbox.errors import ActionFailed, UsageError
from stockade_sandbox.overlay.discard import remove_entry
from stockade_sandbox.overlay.prepare import survey
from stockade_sandbox.overlay.safe_fs import (
    CHUNK,
    MAX_DEPTH,
    MODE_BITS,
    DirTree,
    Node,
    is_safe,
    new_file,
    new_symlink,
    parent,
)
from stockade_sandbox.policy import GIB

MAX_BYTES, MAX_ENTRIES = 16 * GIB, 1 << 20
"""Of one folder, either way: the bytes of its files, holes too, and how many entries it has."""
SNAPSHOT = "stockade-snapshot"
"""The header that names what a folder's changes lead to: it is given as `since` next time."""
_GONE = "STOCKADE.gone"
_TYPES = {"file": tarfile.REGTYPE, "directory": tarfile.DIRTYPE, "symlink": tarfile.SYMTYPE, "fifo": tarfile.FIFOTYPE}
_LATEST_NS = 1 << 62
_NOT_HONEST = {errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.ENAMETOOLONG}

Kind = Literal["file", "directory", "symlink", "fifo", "gone"]


@dataclass(frozen=True, slots=True)
class Entry:
    """`path` as the file system spells it. `data` gives a file to read, of `size` bytes."""

    path: str
    kind: Kind
    mode: int = 0
    mtime_ns: int = 0
    target: str = ""
    size: int = 0
    data: Callable[[], AbstractContextManager[int]] | None = None


def entry_of(tree: DirTree, path: str, node: Node) -> Entry:
    """Of what lies in a folder that nobody writes to."""
    kind: Kind = "fifo" if node.kind == "special" else node.kind
    return Entry(path, kind, node.mode & MODE_BITS, node.stat.st_mtime_ns, node.target or "", node.size,
                 (lambda: tree.file(path)) if kind == "file" else None)  # fmt: skip


def whole(tree: DirTree) -> Iterator[Entry]:
    """All of a folder, a folder before what is in it."""
    return (entry_of(tree, path, node) for path, node in survey(tree).nodes.items())


def write_tar(entries: Iterable[Entry], out: BinaryIO) -> None:
    """ActionFailed for more than MAX_BYTES or MAX_ENTRIES; OSError."""
    bound = _Bound()
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape",
                      bufsize=CHUNK) as tar:  # fmt: skip
        for entry in entries:
            bound.count(entry.size)
            info = tarfile.TarInfo(entry.path)
            if entry.kind == "gone":
                info.pax_headers = {_GONE: "1"}
                tar.addfile(info)
                continue
            seconds, part = divmod(entry.mtime_ns, 10**9)
            info.pax_headers = {"mtime": f"{seconds}.{part:09}"}
            info.type, info.mode, info.linkname = _TYPES[entry.kind], entry.mode, entry.target
            if entry.data is None:
                tar.addfile(info)
                continue
            info.size = entry.size
            with entry.data() as fd, open(fd, "rb", closefd=False) as source:
                tar.addfile(info, source)
            tar.members.clear()  # type: ignore[attr-defined]  # all of which it keeps


class _Bound:
    def __init__(self) -> None:
        self._bytes = self._entries = 0

    def count(self, size: int) -> None:
        self._bytes, self._entries = self._bytes + size, self._entries + 1
        if self._bytes > MAX_BYTES or self._entries > MAX_ENTRIES:
            what = f"the folder is more than goes between machines: {MAX_BYTES // GIB} GiB, {MAX_ENTRIES} entries"
            raise ActionFailed(what, "give a smaller one")


class Taking:
    """Entries of a tar, put below `root`: over what is there, and nowhere else. Blocks.

    UsageError for what is no such tar; ActionFailed for more than MAX_BYTES or MAX_ENTRIES; OSError.
    """

    def __init__(self, root: Path) -> None:
        self._root, self._bound = root, _Bound()
        self._folders: dict[str, tuple[int, int]] = {}
        """Mode and time of those that were made, or written to."""

    def take(self, source: BinaryIO) -> None:
        try:
            with DirTree(self._root) as tree:
                try:
                    self._take(tree, source)
                finally:
                    self._finish(tree)
        except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
            raise UsageError(f"what was sent as a folder is no tar: {str(error)[:200]}") from None

    def _take(self, tree: DirTree, source: BinaryIO) -> None:
        with tarfile.open(fileobj=source, mode="r:", tarinfo=BoundedHeader, encoding="utf-8", errors="surrogateescape",
                          errorlevel=2) as tar:  # fmt: skip
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # all of which it keeps
                self._bound.count(member.size)
                path = member.name
                if not is_safe(path) or path.count("/") >= MAX_DEPTH or member.sparse is not None:
                    raise UsageError(f"what was sent as a folder has an entry {path[:80]!r}, which cannot be in one")
                try:
                    self._put(tree, tar, member, path)
                except OSError as error:
                    if error.errno not in _NOT_HONEST:
                        raise
                    raise UsageError(f"what was sent as a folder has {path[:80]!r}: {error.strerror}") from None
            source.seek(tar.offset)
            if source.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):  # where tarfile ends in silence
                raise UsageError("what was sent as a folder broke off")

    def _put(self, tree: DirTree, tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        above = parent(path)
        if (mode := tree.make_writable(above)) is not None:
            self._folders.setdefault(above, (mode, os.fstat(tree.folder(above)).st_mtime_ns))
        at, name = tree.place(path)
        node = tree.node(path)
        gone = _GONE in member.pax_headers
        if node is not None and (gone or not (member.isdir() and node.kind == "directory")):
            tree.forget()  # it may hold descriptors of what goes
            at, name = tree.place(path)
            remove_entry(at, name)
            node = None
            for inner in [one for one in self._folders if one == path or one.startswith(f"{path}/")]:
                del self._folders[inner]
        if gone:
            return
        mode, when = member.mode & MODE_BITS, _mtime_ns(member)
        if member.isdir():
            if node is None:
                os.mkdir(name, 0o700, dir_fd=at)
            self._folders[path] = (mode, when)
        elif member.issym():
            new_symlink(member.linkname, name, at, None, (when, when))
        elif member.isreg():
            with new_file(name, at, mode, None, (when, when)) as out:
                _fill(tar, member, out)
        elif member.isfifo():
            os.mkfifo(name, 0o600, dir_fd=at)
            os.chmod(name, mode, dir_fd=at)
        else:
            raise UsageError(f"what was sent as a folder has {path[:80]!r}, which is neither file, folder nor link")

    def _finish(self, tree: DirTree) -> None:
        for path in sorted(self._folders, key=lambda path: path.count("/") if path else -1, reverse=True):
            mode, when = self._folders[path]
            os.utime(tree.folder(path), ns=(when, when))
            tree.set_mode(path, mode)


def _fill(tar: tarfile.TarFile, member: tarfile.TarInfo, out: int) -> None:
    """What is all zeros becomes a hole."""
    data, at = tar.extractfile(member), 0
    while data is not None and (piece := data.read(CHUNK)):
        if piece.count(0) < len(piece):
            done = 0
            while done < len(piece):
                done += os.pwrite(out, piece[done:], at + done)
        at += len(piece)
    if at != member.size:
        raise UsageError("what was sent as a folder broke off")
    os.ftruncate(out, at)


def _mtime_ns(member: tarfile.TarInfo) -> int:
    try:
        found = int(Decimal(member.pax_headers.get("mtime", str(member.mtime))) * 10**9)
    except (InvalidOperation, ValueError, OverflowError):
        found = 0
    return min(max(found, -_LATEST_NS), _LATEST_NS)


async def piped(write: Callable[[BinaryIO], None]) -> AsyncGenerator[bytes]:
    """What `write`, in a thread, writes to the file that it is given. What it raises is raised here at the end."""
    source, target = os.pipe()
    failed: list[Exception] = []

    def work() -> None:
        try:
            with open(target, "wb") as out:
                write(out)
        except Exception as error:  # noqa: BLE001  (raised by who reads; where nobody does any more, a broken pipe)
            failed.append(error)

    thread = threading.Thread(target=work, name="stockade-folder", daemon=True)
    thread.start()
    try:
        while True:
            await anyio.wait_readable(source)
            if not (piece := os.read(source, CHUNK)):
                break
            yield piece
    finally:
        os.close(source)
    thread.join()
    if failed:
        raise failed[0]


async def spooled(pieces: AsyncIterator[bytes], out: BinaryIO) -> None:
    """ActionFailed when there is more than goes between machines; OSError."""
    count = 0
    async for piece in pieces:
        count += len(piece)
        if count > 2 * MAX_BYTES:
            _Bound().count(count)
        out.write(piece)
