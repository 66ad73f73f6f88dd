"""How snapshots of a layer and its base lie on disk: in segments, one for each look that found something new.

A segment is the data of new files, then a line of JSON that says what is new, then the length of that line. It is
written whole, synced and renamed into place, so it is there or not; later it is only ever removed, or its data
forgotten, so that layers of one folder share theirs as links. Segments lie beside the layer and go with it:

    kept/N        snapshot N. Its name is N and the hash of its JSON; reading it takes all segments up to it.
    base/N.KEY    what was noted of the base when snapshot N was taken, in the order of the KEYs; N is 0 for what
                  another layer has handed on and what is applied
"""

import errno
import hashlib
import os
import secrets
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal

from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.overlay.record import Original, sync_folder, write_file
from stockade_sandbox.overlay.safe_fs import CHUNK, copy_piece, extents
from stockade_sandbox.records import Record, field, line_of, read, replace

KEPT, BASE = "kept", "base"
"""The folders of segments in a layer's place."""

_FOOTER = 16
_HASH_CHARS = 24
_BLOCK = 4096

KeptKind = Literal["file", "directory", "symlink", "whiteout", "fifo", "gone"]


class Kept(Record, kw_only=True):
    """An entry of a layer. The root's path is empty; paths are spelled as safe_fs.encode_path does.

    A file's data is `length` bytes at `at` of segment `segment`; where `pieces` (offset, length) are given those bytes
    are the file's data and the rest of its `size` is holes. `whiteout` hides the host's entry; `gone` was in a copy and
    was removed. `marks` are extended attributes, values in hexadecimal.
    """

    path: str
    kind: KeptKind
    mode: int = 0
    mtime_ns: int = 0
    size: int = 0
    target: str | None = None
    marks: dict[str, str] = field(default_factory=dict)
    sha256: str = ""
    segment: int = 0
    at: int = 0
    length: int = 0
    pieces: tuple[tuple[int, int], ...] | None = None


class Delta(Record, kw_only=True):
    """What a segment says: of a snapshot the entries that are new or different, and the paths that are as in the
    beginning again; of the base what was noted, and the bytes of what was `applied`."""

    version: int = 1
    number: int
    entries: tuple[Kept, ...] = ()
    dropped: tuple[str, ...] = ()
    originals: tuple[Original, ...] = ()
    applied: tuple[Original, ...] = ()


class SegmentWriter:
    """A segment that is being written; not there before `commit`. OSError where there is no room."""

    def __init__(self, folder: Path, number: int, key: str = "") -> None:
        self._path = folder / (f"{number}.{key}" if key else f"{number}")
        self._part = self._path.with_name(f"{self._path.name}.part")
        self._number, self.key = number, key
        self._out: BinaryIO | None = None
        self._new: dict[str, Kept] = {}

    def add(self, entry: Kept, fd: int, known: Mapping[str, Kept]) -> Kept:
        """A file, which is open, with its data. `known`: files by their hash; equal data is kept once."""
        size, pieces = os.fstat(fd).st_size, tuple((start, end - start) for start, end in extents(fd))

        def placed(data: Kept) -> Kept:
            is_whole = data.length == size and pieces in ((), ((0, size),))
            return replace(entry, size=size, sha256=data.sha256, segment=data.segment, at=data.at, length=data.length,
                           pieces=None if is_whole else pieces)  # fmt: skip

        if len(pieces) == 1 and pieces[0][1] <= CHUNK:  # the common case: nothing is written when it is known
            name = hashlib.sha256(os.pread(fd, pieces[0][1], pieces[0][0])).hexdigest()
            if (found := known.get(name) or self._new.get(name)) is not None:
                return placed(found)
        out = self._open()
        at, digest, length = out.tell(), hashlib.sha256(), 0
        for start, count in pieces:
            while count > 0 and (data := os.pread(fd, min(count, CHUNK), start)):
                digest.update(data)
                out.write(data)
                start, count, length = start + len(data), count - len(data), length + len(data)
        name = digest.hexdigest()
        if (found := known.get(name) or self._new.get(name)) is not None:
            out.seek(at)
            out.truncate()
        else:
            found = self._new[name] = replace(entry, sha256=name, segment=self._number, at=at, length=length)
        return placed(found)

    def add_whole(self, fd: int, size: int, head: bytes) -> int:
        """Where the `size` bytes of a file are now, which begins with `head`. Blocks are shared where the file system
        can and it pays."""
        out = self._open()
        end = out.tell()
        if size <= len(head):
            out.write(head)
            return end
        out.flush()
        at, done = -(-end // _BLOCK) * _BLOCK, 0
        while done < size and (count := copy_piece(fd, out.fileno(), done, size - done, at)):
            done += count
        out.seek(at + size)
        return at

    def commit(self, delta: Delta) -> str:
        """Durable when this returns; the snapshot's name."""
        out = self._open()
        text = line_of(delta)
        out.write(text)
        out.write(b"%016d" % len(text))
        out.flush()
        sys.audit("stockade.step", "snapshot.sync")
        os.fsync(out.fileno())
        out.close()
        sys.audit("stockade.step", "snapshot.rename")
        self._part.replace(self._path)
        self._out = None
        sync_folder(self._path.parent)
        sys.audit("stockade.step", "snapshot.taken")
        return _name(self._number, text)

    def abandon(self) -> None:
        """Away with what is not committed."""
        if self._out is not None:
            self._out.close()
            self._part.unlink(missing_ok=True)

    def _open(self) -> BinaryIO:
        if self._out is None:
            if not self._path.parent.exists():
                self._path.parent.mkdir(mode=0o700)
                for folder in list(self._path.parents)[1:4]:  # the way to the first one must be on disk too
                    sync_folder(folder)
            self._out = self._part.open("xb" if self.key else "wb")
        return self._out


def read_snapshot(folder: Path, name: str | None) -> dict[str, Kept]:
    """The entries of a snapshot by path; None is the layer as it began. SandboxFailed when it is gone or damaged."""
    entries: dict[str, Kept] = {}
    for number in range(1, number_of(name) + 1):
        delta, text = _read_delta(f"{folder}/{number}")
        if number == number_of(name) and _name(number, text) != name:
            raise SandboxFailed(f"the snapshot {folder / str(number)} is not the one on record", _RESTART)
        for path in delta.dropped:
            entries.pop(path, None)
        entries.update((entry.path, entry) for entry in delta.entries)
    return entries


def number_of(name: str | None) -> int:
    """Of a snapshot's segment; 0 for the beginning."""
    if name is None:
        return 0
    number, _, digest = name.partition("-")
    if not number.isdecimal() or len(digest) != _HASH_CHARS:
        raise SandboxFailed(f"{name!r} is not the name of a snapshot")
    return int(number)


def _segments(folder: Path) -> list[tuple[int, Path]]:
    """Each with its number, in the order in which they were written; what is not whole is none."""
    found = [path for path in folder.iterdir() if path.suffix != ".part"] if folder.is_dir() else []
    parts = [(path.name.partition("."), path) for path in found]
    keyed = [(int(key.partition("-")[0] or number), int(number), path) for (number, _, key), path in parts]
    return [(number, path) for _, number, path in sorted(keyed)]


def number_after(place: Path) -> int:
    """The number of what is noted after all snapshots of a layer, and all that was noted of its base."""
    return max((number for name in (KEPT, BASE) for number, _ in _segments(place / name)), default=0) + 1


def base_writer(place: Path, number: int) -> SegmentWriter:
    """The next segment of a layer's base. Others may write theirs at the same time."""
    taken = max((int(path.suffix[1:].partition("-")[0]) for _, path in _segments(place / BASE)), default=0)
    return SegmentWriter(place / BASE, number, f"{taken + 1}-{secrets.token_hex(4)}")


def read_base(place: Path) -> list[Delta]:
    """All that was noted of a layer's base, in order. SandboxFailed when it is damaged."""
    return [_read_delta(str(path))[0] for _, path in _segments(place / BASE)]


def read_data(place: Path, original: Original) -> bytes:
    """The bytes of a file of the base. SandboxFailed when they are damaged."""
    path = next(iter((place / BASE).glob(f"*.{original.data}")), place / BASE / original.data)
    with path.open("rb") as source:
        found = os.pread(source.fileno(), original.size, original.at)
    if hashlib.sha256(found).hexdigest() != original.sha256:
        raise SandboxFailed(f"what {original.path!r} was is damaged in {path}")
    return found


def remove_after(place: Path, name: str | None) -> None:
    """What a cut run wrote and never put on record, of snapshots and of the base."""
    for folder in (place / KEPT, place / BASE):
        later = [path for number, path in _segments(folder) if number > number_of(name)]
        for path in [*later, *folder.glob("*.part")]:
            path.unlink()


def share_kept(source: Path, place: Path, name: str) -> None:
    """Give another layer of the folder the snapshots of one up to `name`. OSError."""
    (place / KEPT).mkdir(mode=0o700, exist_ok=True)
    _link((source / KEPT / f"{number}", place / KEPT / f"{number}") for number in range(1, number_of(name) + 1))
    sync_folder(place / KEPT)


def share_base(source: Path, place: Path, number: int, *, from_begin: bool) -> None:
    """The same for the base; `from_begin`: it is to stay whatever snapshot that layer is brought back to. OSError."""
    wanted = [(of, path) for of, path in _segments(source / BASE) if of <= number]
    if wanted:
        (place / BASE).mkdir(mode=0o700, exist_ok=True)
        names = ((path, f"{0 if from_begin else of}{path.suffix}") for of, path in wanted)
        _link((path, place / BASE / name) for path, name in names)
        sync_folder(place / BASE)


def _link(pairs: Iterable[tuple[Path, Path]]) -> None:
    for source, target in pairs:
        with suppress(FileExistsError):  # an attempt before this one was cut off
            os.link(source, target)


def copy_out(folder: Path, entry: Kept, to: int) -> None:
    """The data of a kept file into an empty one, checked. SandboxFailed when it is not there any more."""
    path = folder / f"{entry.segment}"
    digest = hashlib.sha256()
    with suppress(FileNotFoundError), path.open("rb") as source:
        _, start = _footer(source.fileno(), str(path))
        if entry.at + entry.length <= start:
            at = entry.at
            for offset, count in entry.pieces if entry.pieces is not None else ((0, entry.length),):
                while count > 0:
                    data = os.pread(source.fileno(), min(count, CHUNK), at)
                    if not data:
                        break
                    digest.update(data)
                    _write_at(to, data, offset)
                    at, offset, count = at + len(data), offset + len(data), count - len(data)
            os.ftruncate(to, entry.size)
            if digest.hexdigest() == entry.sha256:
                return
            raise SandboxFailed(f"the kept data of {entry.path!r} in {path} is damaged", _RESTART)
    raise SandboxFailed(f"what {entry.path!r} held is not kept any more: too much was written since", _RESTART)


def drop_data(folder: Path, number: int) -> int:
    """Forget the data of a segment but not what it says. Returns how many bytes that freed."""
    path = folder / f"{number}"
    try:
        with path.open("rb") as source:
            length, start = _footer(source.fileno(), str(path))
            tail = os.pread(source.fileno(), length + _FOOTER, start)
    except FileNotFoundError:
        return 0
    write_file(path, tail)
    return start


_RESTART = "apply or discard its changes, and run again"


def _name(number: int, text: bytes) -> str:
    return f"{number}-{hashlib.sha256(text).hexdigest()[:_HASH_CHARS]}"


def _footer(source: int, name: str) -> tuple[int, int]:
    """Length of the JSON and where it begins, which is where the data ends, of an open segment."""
    size = os.fstat(source).st_size
    text = os.pread(source, _FOOTER, max(0, size - _FOOTER))
    if len(text) != _FOOTER or not text.isdigit() or (start := size - _FOOTER - int(text)) < 0:
        raise SandboxFailed(f"the snapshot {name} is damaged", _RESTART)
    return int(text), start


def _read_delta(name: str) -> tuple[Delta, bytes]:
    """By a descriptor and a plain name: a long run that goes on reads hundreds of them, twice."""
    try:
        source = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise SandboxFailed(f"the snapshot {name} is gone", _RESTART) from None
    try:
        length, start = _footer(source, name)
        text = os.pread(source, length, start)
        return read(Delta, text), text
    except ValueError:
        raise SandboxFailed(f"the snapshot {name} is damaged", _RESTART) from None
    finally:
        os.close(source)


def _write_at(fd: int, data: bytes, offset: int) -> None:
    while data:
        done = os.pwrite(fd, data, offset)
        if not done:
            raise OSError(errno.EIO, "nothing could be written")
        data, offset = data[done:], offset + done
