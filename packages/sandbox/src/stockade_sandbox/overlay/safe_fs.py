"""Reading and writing folders whose contents were chosen by an adversary.

Everything goes through directory descriptors; no symlink is ever followed, no FIFO is opened, nothing is read without a
bound. Paths in here are relative, `/`-separated, and hold undecodable bytes as surrogates; `encode_path` and
`decode_path` translate them to and from the form that is recorded.
"""

import ctypes
import errno
import functools
import hashlib
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from stockade_sandbox.records import Record
from stockade_sandbox.results import EntryKind

MAX_DEPTH = 128
"""Folders below one another that are looked at. One descriptor is held for each."""

MODE_BITS = 0o1777
"""The others are never copied or applied."""
CHUNK = 1 << 20
LARGE = 64 << 20
"""A file above this is known by its hash, and its bytes are not kept where only merging wants them."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = _READ | os.O_DIRECTORY
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_ESCAPE = 0xF700
_LOOK = 0o500
_AT_SYMLINK_NOFOLLOW, _STATX_BTIME = 0x100, 0x800


def encode_path(path: str) -> str:
    """A path as it is recorded: valid Unicode, so that it survives JSON.

    A byte that is not UTF-8 becomes U+F780..U+F7FF; a name that holds such a character itself is spelled byte by byte,
    so that two names never share a spelling.
    """
    return "".join(
        c if not 0xF780 <= ord(c) <= 0xF7FF and not "\udc80" <= c <= "\udcff"
        else "".join(chr(_ESCAPE + b) for b in os.fsencode(c))
        for c in path
    )  # fmt: skip


def decode_path(path: str) -> str:
    """The inverse of `encode_path`."""
    raw = b"".join(bytes([ord(c) - _ESCAPE]) if 0xF780 <= ord(c) <= 0xF7FF else os.fsencode(c) for c in path)
    return os.fsdecode(raw)


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def parent(path: str) -> str:
    return path.rpartition("/")[0]


def is_safe(path: str) -> bool:
    """Whether `path` is relative and stays below its folder by its own words."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def kind_of(mode: int) -> EntryKind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "special"


@dataclass(frozen=True)
class Node:
    """One entry of a folder, as lstat saw it. `trouble`: why its content cannot be trusted to be all there."""

    stat: os.stat_result
    target: str | None = None
    trouble: str | None = None

    @property
    def kind(self) -> EntryKind:
        return kind_of(self.stat.st_mode)

    @property
    def mode(self) -> int:
        return stat.S_IMODE(self.stat.st_mode)

    @property
    def size(self) -> int:
        return self.stat.st_size if self.kind == "file" else 0


@dataclass
class _Held:
    name: str
    fd: int
    restore: int | None


def filesystem(fd: int) -> int:
    """The id of the file system that `fd` is on (statfs, f_fsid); 0 where it has none.

    Of most it comes from their UUID, so that it outlasts a new mount, which may give another st_dev.
    """
    return os.fstatvfs(fd).f_fsid


class FolderId(Record, kw_only=True):
    """What a folder is known again by, also after a new mount; `filesystem` 0 is none."""

    device: int
    inode: int
    filesystem: int = 0

    @classmethod
    def of(cls, fd: int) -> "FolderId":
        found = os.fstat(fd)
        return cls(device=found.st_dev, inode=found.st_ino, filesystem=filesystem(fd))

    def is_of(self, fd: int) -> bool:
        now = FolderId.of(fd)
        same = now.device == self.device or (self.filesystem != 0 and now.filesystem == self.filesystem)
        return same and now.inode == self.inode


class DirTree:
    """A folder and what is below it, by paths relative to it.

    It keeps the descriptors of the folder last visited, so that a walk in order costs one open a folder. What we own
    but may not read (mode 000) is opened to us while we look, and its mode put back.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._loosen = os.geteuid() != 0
        self._held: list[_Held] = []

    def __enter__(self) -> Self:
        self._held.append(self._enter(str(self.root), None, ""))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(0)

    @property
    def root_fd(self) -> int:
        return self._held[0].fd

    def folder(self, path: str) -> int:
        """A descriptor of the folder `path`, good until the next call. OSError where it is not a real folder."""
        parts = path.split("/") if path else []
        if len(parts) > MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, f"more than {MAX_DEPTH} folders deep")
        same = 0
        while same < min(len(parts), len(self._held) - 1) and self._held[same + 1].name == parts[same]:
            same += 1
        self._leave(same + 1)
        for part in parts[same:]:
            self._held.append(self._enter(part, self._held[-1].fd, part))
        return self._held[-1].fd

    def place(self, path: str) -> tuple[int, str]:
        """The folder that `path` is in, as `folder` gives it, and its name there."""
        above, _, name = path.rpartition("/")
        return self.folder(above), name

    def forget(self) -> None:
        """Let go of all folders but the root: they are about to be replaced."""
        self._leave(1)

    def closed_mode(self, path: str) -> int | None:
        """The mode of a folder of ours that `make_writable` would have to open; PermissionError for one of others."""
        fd, held = self.folder(path), self._held[-1]
        if held.restore is not None:
            return held.restore
        found = os.fstat(fd)
        if self._loosen and found.st_uid == os.geteuid() and found.st_mode & 0o300 != 0o300:
            return stat.S_IMODE(found.st_mode)
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return None

    def make_writable(self, path: str) -> int | None:
        """Open a folder of ours to writing, until `set_mode`. The mode it had, or None when nothing was in the way."""
        fd, held = self.folder(path), self._held[-1]
        if held.restore is not None:
            mode, held.restore = held.restore, None
            return mode
        found = os.fstat(fd)
        if not self._loosen or found.st_uid != os.geteuid() or found.st_mode & 0o300 == 0o300:
            return None
        os.fchmod(fd, stat.S_IMODE(found.st_mode) | stat.S_IRWXU)
        return stat.S_IMODE(found.st_mode)

    def set_mode(self, path: str, mode: int) -> None:
        """The mode of a folder; its set-id bits stay as they are."""
        fd = self.folder(path)
        self._held[-1].restore = None
        os.fchmod(fd, mode & 0o1777 | os.fstat(fd).st_mode & (stat.S_ISUID | stat.S_ISGID))

    def names(self, path: str) -> list[str]:
        return sorted(os.listdir(self.folder(path)))

    def node(self, path: str) -> Node | None:
        """What is at `path`, or None when nothing is, or when the way there is not made of real folders."""
        try:
            fd, name = self.place(path)
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            target = os.readlink(name, dir_fd=fd) if stat.S_ISLNK(found.st_mode) else None
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise
        return Node(found, target)

    @contextmanager
    def file(self, path: str) -> Iterator[int]:
        """A descriptor to read the regular file `path`. OSError (EINVAL) when it is anything else."""
        at, name = self.place(path)
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if self._loosen and found.st_uid == os.geteuid() and not found.st_mode & stat.S_IRUSR:
            fd = self._open_loosened(name, at, stat.S_IRUSR, keep=False).fd
        else:
            fd = os.open(name, _READ, dir_fd=at)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
            yield fd
        finally:
            os.close(fd)

    def birth_ns(self, path: str) -> int:
        """When the entry was made, by its file system's clock; 0 where that is not known."""
        return birth_ns(*self.place(path))

    def read(self, path: str, limit: int) -> bytes:
        """At most `limit` bytes of a regular file."""
        with self.file(path) as fd:
            return read_up_to(fd, limit)

    def _enter(self, name: str, at: int | None, label: str) -> _Held:
        if self._loosen:
            found = os.stat(name, dir_fd=at, follow_symlinks=False)
            mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if mine and found.st_mode & _LOOK != _LOOK:
                return self._open_loosened(name, at, stat.S_IRWXU, keep=True)
        return _Held(label, os.open(name, _DIRECTORY, dir_fd=at), None)

    def _open_loosened(self, name: str, at: int | None, bits: int, *, keep: bool) -> _Held:
        pin = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        try:
            mode = os.fstat(pin).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise OSError(errno.EINVAL, "neither a file nor a folder", name)
            own = f"/proc/self/fd/{pin}"
            os.chmod(own, stat.S_IMODE(mode) | bits)
            try:
                fd = os.open(own, os.O_RDONLY | os.O_CLOEXEC)
            finally:
                if not keep:
                    os.chmod(own, stat.S_IMODE(mode))
        finally:
            os.close(pin)
        return _Held(name, fd, stat.S_IMODE(mode))

    def _leave(self, keep: int) -> None:
        while len(self._held) > keep:
            held = self._held.pop()
            if held.restore is not None:
                os.fchmod(held.fd, held.restore)
            os.close(held.fd)


@contextmanager
def new_file(
    name: str,
    at: int,
    mode: int,
    owner: tuple[int, int] | None = None,
    times: tuple[int, int] | None = None,
    *,
    sync: bool = False,
) -> Iterator[int]:
    """A descriptor to fill a new file by. Then it gets its owner (as far as we may), mode and times (in ns)."""
    out = os.open(name, _NEW, 0o600, dir_fd=at)
    try:
        yield out
        if owner:
            with suppress(PermissionError):
                os.fchown(out, *owner)
        os.fchmod(out, mode)
        if times:
            os.utime(out, ns=times)
        if sync:
            os.fsync(out)
    finally:
        os.close(out)


def new_symlink(
    target: str, name: str, at: int, owner: tuple[int, int] | None = None, times: tuple[int, int] | None = None
) -> None:
    """The same for a symlink."""
    os.symlink(target, name, dir_fd=at)
    if owner:
        with suppress(PermissionError):
            os.chown(name, *owner, dir_fd=at, follow_symlinks=False)
    if times:
        os.utime(name, ns=times, dir_fd=at, follow_symlinks=False)


def xattrs_of(fd: int, prefixes: str | tuple[str, ...] = "") -> dict[str, str]:
    """The extended attributes of those names, values in hexadecimal; none where the file system has none."""
    try:
        return {name: os.getxattr(fd, name).hex() for name in os.listxattr(fd) if name.startswith(prefixes)}
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return {}


@functools.cache
def _statx() -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), "statx", None)


def birth_ns(at: int, name: str) -> int:
    """statx(2), which Python has from 3.15 on; 0 where the C library or the file system has no such time."""
    found = ctypes.create_string_buffer(256)
    statx = _statx()
    if statx is None or statx(at, os.fsencode(name), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, found) != 0:
        return 0
    mask, seconds, nanoseconds = struct.unpack_from("=I76xqI", found)
    return int(seconds) * 1_000_000_000 + int(nanoseconds) if mask & _STATX_BTIME else 0


def read_up_to(fd: int, limit: int) -> bytes:
    pieces, left = [], limit
    while left > 0 and (piece := os.read(fd, min(left, CHUNK))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def extents(fd: int) -> Iterator[tuple[int, int]]:
    """Where the data of a file lies, as (start, end); holes are left out. The file position moves."""
    end, at = os.fstat(fd).st_size, 0
    while at < end:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            if error.errno != errno.EINVAL:
                raise
            yield at, end
            return
        at = min(os.lseek(fd, start, os.SEEK_HOLE), end)
        yield start, at


def copy_data(source: int, to: int, tick: Callable[[int], None] | None = None) -> None:
    """All of one file into a new one: holes stay holes, blocks are shared where the file system can.

    `tick` is called with the bytes of each piece of a large one, and may raise.
    """
    os.ftruncate(to, os.fstat(source).st_size)
    for start, end in extents(source):
        at = start
        while at < end:
            done = copy_piece(source, to, at, end - at)
            if done == 0:
                break
            at += done
            if tick:
                tick(done)


def copy_piece(source: int, to: int, at: int, count: int, shift: int = 0) -> int:
    """Some of the `count` bytes at `at`, to `shift` bytes further on; how many."""
    try:
        return os.copy_file_range(source, to, min(count, 64 * CHUNK), at, at + shift)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EPERM):
            raise
    piece = os.pread(source, min(count, CHUNK), at)
    written = 0
    while written < len(piece):
        written += os.pwrite(to, piece[written:], at + shift + written)
    return written


def same_data(one: int, other: int, limit: int) -> bool:
    """Whether two files hold the same bytes. Holes are not read; past `limit` bytes of data the answer is no."""
    if os.fstat(one).st_size != os.fstat(other).st_size:
        return False
    for first, second in ((one, other), (other, one)):
        budget = limit
        for start, end in extents(first):
            budget -= end - start
            if budget < 0 or not _same_range(first, second, start, end):
                return False
    return True


def _same_range(one: int, other: int, start: int, end: int) -> bool:
    while start < end:
        count = min(CHUNK, end - start)
        first, second = os.pread(one, count, start), os.pread(other, count, start)
        if first != second:
            return False
        if not first:
            return True
        start += len(first)
    return True


def digest_of(fd: int, tick: Callable[[int], None] | None = None) -> str:
    """sha256 of a file's bytes; above LARGE, of each MiB that is not all zeros, with its number before it.

    So the holes of an image of a disk are not read, and the same bytes give the same hash however they lie. `tick` is
    called between pieces and may raise.
    """
    size, digest = os.fstat(fd).st_size, hashlib.sha256()
    numbers: Iterable[int] = range(-(-size // CHUNK)) if size <= LARGE else _chunks(fd)
    for number in numbers:
        data = os.pread(fd, min(CHUNK, size - number * CHUNK), number * CHUNK)
        if size > LARGE:
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


class OverlayMarks:
    """The kernel's marks in an overlay's upper layer: what is deleted, replaced, copied up.

    It keeps them in `trusted.overlay.*`, or in `user.overlay.*` when mounted with userxattr. Where it used the first,
    the second are the bot's own and mean nothing. (Linux, Documentation/filesystems/overlayfs.rst)
    """

    def __init__(self, upper: DirTree) -> None:
        self._upper = upper
        names = xattrs_of(upper.folder(""), "trusted.overlay.")
        self._prefixes = ("trusted.overlay.",) if names else ("trusted.overlay.", "user.overlay.")

    def of(self, path: str, node: Node | None) -> dict[str, str]:
        """By their last word, values in hexadecimal; none for what is neither a file nor a folder."""
        if node is None or node.kind not in ("file", "directory") or path.count("/") >= MAX_DEPTH:
            return {}
        if node.kind == "directory":
            found = xattrs_of(self._upper.folder(path), self._prefixes)
        else:
            with self._upper.file(path) as fd:
                found = xattrs_of(fd, self._prefixes)
        return {name.rpartition(".")[2]: value for name, value in found.items()}
