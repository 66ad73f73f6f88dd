"""The folder of the host that holds a memory: a jail that is walked name by name, never through a link.

Every step is `openat` with O_NOFOLLOW below a descriptor of the root, so neither `..` nor a link that somebody puts
there, even between two looks, leads out. Files are replaced whole (write, sync, rename); whoever changes anything holds
the lock of the root, so two runs at once lose nothing. Blocks; meant for a thread.
"""

import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stockade.core.data import Data
from stockade.core.errors import ActionFailed
from stockade.core.policy import KIB, MIB
from stockade.tools.memory.paths import MAX_DEPTH, Names, shown

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK, _PART = ".lock", ".part-"


class Bounds(Data):
    """Of one memory, in bytes and files (folders count as files)."""

    file_bytes: int = 64 * KIB
    total_bytes: int = MIB
    files: int = 200


BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Entry:
    """What lies at `names`; `size` in bytes, of a folder that of all below it."""

    names: Names
    is_folder: bool
    size: int


@dataclass(frozen=True, slots=True)
class MemoryFolder:
    """Everything raises ActionFailed for what the model can mend, OSError for what the machine cannot do."""

    root: Path
    bounds: Bounds = BOUNDS

    def make(self) -> None:
        """The folder itself, its owner's only."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._root():
            pass

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One at a time, over all processes. What a killed one left half written is removed."""
        with self._root() as root:
            lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=root)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            finally:
                os.close(lock)

    def entries(self, names: Names = ()) -> list[Entry]:
        """All below `names`, sorted, a folder before what is in it. Links and the like are not there."""
        with self._folder(names) as folder:
            return list(_walk(folder, names))

    def is_folder(self, names: Names) -> bool:
        """Whether it is one, else a file. ActionFailed when it is neither."""
        if not names:
            return True
        with self._folder(names[:-1]) as folder:
            found = _kind(folder, names[-1])
        if found is None:
            raise ActionFailed(f"The path {shown(names)} does not exist. Please provide a valid path.")
        return found == "folder"

    def exists(self, names: Names) -> bool:
        try:
            self.is_folder(names)
        except ActionFailed:
            return False
        return True

    def read(self, names: Names) -> str:
        if self.is_folder(names):
            raise ActionFailed(f"{shown(names)} is a folder, not a file")
        with self._folder(names[:-1]) as folder:
            file = _open(names[-1], _FILE, folder, names)
            with os.fdopen(file, "rb") as stream:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise ActionFailed(f"{shown(names)} is not a file")
                data = stream.read(self.bounds.file_bytes + 1)
        if len(data) > self.bounds.file_bytes:
            raise ActionFailed(f"{shown(names)} is larger than {self.bounds.file_bytes} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ActionFailed(f"{shown(names)} is not text") from None

    def write(self, names: Names, text: str) -> None:
        """Whole, on disk when this returns; folders on the way are made. Hold `changing`."""
        data = text.encode()
        self._check_room(names, len(data))
        with self._folder(names[:-1], make=True) as folder:
            if _kind(folder, names[-1]) == "folder":
                raise ActionFailed(f"{shown(names)} is a folder")
            part = _PART + secrets.token_hex(8)
            file = os.open(part, _NEW, 0o600, dir_fd=folder)
            try:
                with os.fdopen(file, "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(file)
                os.rename(part, names[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(part, dir_fd=folder)
                raise
            os.fsync(folder)

    def delete(self, names: Names) -> None:
        """A file, or a folder with all in it. Hold `changing`."""
        inner = self.is_folder(names)
        with self._folder(names[:-1]) as folder:
            if inner:
                shutil.rmtree(names[-1], dir_fd=folder)  # follows no link (shutil.rmtree.avoids_symlink_attacks)
            else:
                os.unlink(names[-1], dir_fd=folder)
            os.fsync(folder)

    def rename(self, old: Names, new: Names) -> None:
        """Never over something that is there. Hold `changing`."""
        self.is_folder(old)
        if new[: len(old)] == old and new != old:
            raise ActionFailed(f"{shown(old)} cannot be moved into itself")
        entries = self.entries()
        deepest = max((len(entry.names) for entry in entries if entry.names[: len(old)] == old), default=len(old))
        if deepest - len(old) + len(new) > MAX_DEPTH:
            raise ActionFailed(f"more than {MAX_DEPTH} folders deep")
        if len(entries) + len(new) - 1 > self.bounds.files:
            raise self._too_many()
        if self._taken(new):
            raise ActionFailed(f"The destination {shown(new)} already exists")
        with self._folder(old[:-1]) as source, self._folder(new[:-1], make=True) as target:
            os.rename(old[-1], new[-1], src_dir_fd=source, dst_dir_fd=target)
            os.fsync(source)
            os.fsync(target)

    def clear(self) -> int:
        """Removes all; how many files that were. Hold `changing`."""
        files = sum(not entry.is_folder for entry in self.entries())
        with self._root() as root:
            for name in os.listdir(root):
                if name == _LOCK:
                    continue
                if _what(root, name) == "folder":
                    shutil.rmtree(name, dir_fd=root)
                else:
                    os.unlink(name, dir_fd=root)
            os.fsync(root)
        return files

    def _taken(self, names: Names) -> bool:
        """Whether anything at all is there, a link too."""
        try:
            with self._folder(names[:-1]) as folder:
                return _what(folder, names[-1]) is not None
        except ActionFailed:
            return False  # not even its folder

    def _check_room(self, names: Names, size: int) -> None:
        if size > self.bounds.file_bytes:
            raise ActionFailed(f"{size} bytes are too long for one file of the memory: {self.bounds.file_bytes} fit")
        self._remove_parts()
        others = [entry for entry in self.entries() if entry.names != names]
        used = sum(entry.size for entry in others if not entry.is_folder)
        if used + size > self.bounds.total_bytes:
            left = max(0, self.bounds.total_bytes - used)
            raise ActionFailed(f"the memory is full: {left} bytes are left; delete what is not needed any more")
        if len(others) + len(names) > self.bounds.files:
            raise self._too_many()

    def _too_many(self) -> ActionFailed:
        return ActionFailed(
            f"the memory has no room for more than {self.bounds.files} files; delete what is not needed"
        )

    def _remove_parts(self) -> None:
        """What a killed process left: the lock is ours, so nobody is writing them."""
        for folder in ((), *(entry.names for entry in self.entries() if entry.is_folder)):
            with self._folder(folder) as opened:
                for name in os.listdir(opened):
                    if name.startswith(_PART):
                        os.unlink(name, dir_fd=opened)

    @contextmanager
    def _root(self) -> Iterator[int]:
        root = os.open(self.root, _FOLDER)
        try:
            yield root
        finally:
            os.close(root)

    @contextmanager
    def _folder(self, names: Names, *, make: bool = False) -> Iterator[int]:
        """A descriptor of a folder of the memory."""
        with self._root() as here:
            at = os.dup(here)
            try:
                for depth, name in enumerate(names, 1):
                    if make and _kind(at, name) is None:
                        os.mkdir(name, 0o700, dir_fd=at)
                    inner = _open(name, _FOLDER, at, names[:depth])
                    os.close(at)
                    at = inner
                yield at
            finally:
                os.close(at)


def _open(name: str, flags: int, folder: int, names: Names) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise ActionFailed(f"The path {shown(names)} does not exist. Please provide a valid path.") from None
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EMLINK):
            what = "a folder" if flags & os.O_DIRECTORY else "a file"
            raise ActionFailed(f"{shown(names)} is not {what} of the memory") from None
        raise


def _what(folder: int, name: str) -> Literal["file", "folder", "other"] | None:
    """None when nothing is there; `other` for a link, a device and the like."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


def _kind(folder: int, name: str) -> Literal["file", "folder"] | None:
    """ActionFailed when it is neither."""
    found = _what(folder, name)
    if found == "other":
        raise ActionFailed(f"{name} is neither a file nor a folder of the memory")
    return found


def _walk(folder: int, names: Names) -> Iterator[Entry]:
    if len(names) > MAX_DEPTH:
        return
    for name in sorted(os.listdir(folder)):
        if name.startswith("."):
            continue
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue  # another run has just deleted it
        if stat.S_ISREG(found.st_mode):
            yield Entry((*names, name), False, found.st_size)
        elif stat.S_ISDIR(found.st_mode):
            try:
                inner = os.open(name, _FOLDER, dir_fd=folder)
            except OSError:
                continue  # gone, or something else by now
            try:
                below = list(_walk(inner, (*names, name)))
            finally:
                os.close(inner)
            yield Entry((*names, name), True, sum(entry.size for entry in below if not entry.is_folder))
            yield from below
