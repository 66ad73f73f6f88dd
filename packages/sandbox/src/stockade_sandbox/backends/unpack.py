"""Layers of a container image, unpacked into one folder as the OCI image layer specification says (whiteouts, opaque
folders), whatever is in them: https://github.com/opencontainers/image-spec/blob/main/layer.md.

All of it is ours afterwards: no other owner, no set-id bit, no device, no attribute. Links are followed as the root of
that folder would follow them (openat2(2), RESOLVE_IN_ROOT), so that nothing is read or written beside it.
"""

import gzip
import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from stockade_sandbox.backends.in_root import open_in_root
from stockade_sandbox.errors import UsageError
from stockade_sandbox.overlay.discard import remove_entry
from stockade_sandbox.policy import GIB, MIB
from stockade_sandbox.stoppable import Progress

MAX_BYTES, MAX_ENTRIES = 64 * GIB, 1 << 21
"""Of an image, unpacked."""
_MAX_DEPTH = 128
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_WHITEOUT, _OPAQUE, _RESERVED = ".wh.", ".wh..wh..opq", ".wh..wh."
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME,
             tarfile.GNUTYPE_LONGLINK)  # fmt: skip
_FOLDER = os.O_RDONLY | os.O_DIRECTORY


class BoundedHeader(tarfile.TarInfo):
    """tarfile reads what extends a header, and a map of what is sparse, into memory, however much it is said to be."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "BoundedHeader":
        found = super().frombuf(buf, encoding, errors)
        if found.type in _EXTENDED and found.size > MIB:
            raise UsageError(f"a header in the archive is of {found.size} bytes", "make it anew")
        if found.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse()
        return found

    def _proc_gnusparse_10(self, *_: object) -> None:
        raise _sparse()


def _sparse() -> UsageError:
    return UsageError("a file in the archive is stored as a sparse one", "make it without tar --sparse")


class Unpacking:
    """`root` is filled, layer by layer, the lowest first. UsageError for a layer that is none, or no honest one;
    OSError where the disk will not take it.
    """

    def __init__(self, root: Path, progress: Progress) -> None:
        root.mkdir(mode=0o755)
        self._root = os.open(root, _FOLDER | os.O_CLOEXEC)
        self._progress = progress
        self._bytes = self._entries = 0
        self.left_out = 0
        """Devices, named pipes and other entries that are not files, folders or links."""

    def close(self) -> None:
        os.close(self._root)

    def layer(self, blob: BinaryIO, diff_id: str, beside: Path) -> None:
        """One that is, decompressed, what `diff_id` (sha256:HEX) says. It is kept meanwhile in the folder `beside`."""
        with tempfile.TemporaryFile(dir=beside) as file:
            digest = hashlib.sha256()
            for piece in self._pieces(blob):
                digest.update(piece)
                file.write(piece)
            if f"sha256:{digest.hexdigest()}" != diff_id:
                raise UsageError(f"a layer of the image is not what it says: it should be {diff_id}", "fetch it again")
            try:
                for _, member in _members(file):
                    self._hide(member)
                for tar, member in _members(file):
                    self._put(tar, member)
            except (tarfile.TarError, ValueError, OverflowError) as error:
                raise UsageError(f"a layer of the image cannot be read: {error}", "make the image anew") from None

    def _pieces(self, blob: BinaryIO) -> Iterator[bytes]:
        start = blob.read(4)
        blob.seek(0)
        if start == _ZSTD:
            hint = "skopeo copy --dest-compress --dest-compress-format gzip ... writes it in another form"
            raise UsageError("a layer of the image is compressed by zstd", hint)
        source = gzip.GzipFile(fileobj=blob) if start.startswith(_GZIP) else blob
        try:
            while piece := source.read(MIB):
                self._count(len(piece))
                yield piece
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UsageError(f"a layer of the image cannot be decompressed: {error}", "fetch it again") from None

    def _count(self, more: int) -> None:
        self._bytes += more
        self._progress("unpacking the image", self._bytes, 0)
        if self._bytes > 2 * MAX_BYTES:  # each byte is counted in its layer, and as what it becomes
            raise UsageError(f"the image is more than {MAX_BYTES // GIB} GiB", "use a smaller one")

    def _hide(self, member: tarfile.TarInfo) -> None:
        """What layers below have there is gone."""
        folder, name = _split(member.name)
        if not name.startswith(_WHITEOUT):
            return
        try:
            at = open_in_root(self._root, folder or ".", _FOLDER)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            if name == _OPAQUE:
                for one in os.listdir(at):
                    remove_entry(at, one)
            elif not name.startswith(_RESERVED) and name.removeprefix(_WHITEOUT) not in ("", ".", ".."):
                remove_entry(at, name.removeprefix(_WHITEOUT))
        finally:
            os.close(at)

    def _put(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        folder, name = _split(member.name)
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            raise UsageError(f"the image has more than {MAX_ENTRIES} files", "use a smaller one")
        if not name or name.startswith(_WHITEOUT):
            return
        if not (member.isdir() or member.isreg() or member.issym() or member.islnk()):
            self.left_out += 1
            return
        try:
            at = self._folder(folder)
            try:
                self._put_at(at, name, tar, member)
            finally:
                os.close(at)
        except (FileNotFoundError, NotADirectoryError, FileExistsError, IsADirectoryError) as error:
            raise UsageError(f"the image's {member.name!r} cannot be unpacked: {error.strerror}",
                             "make the image anew") from None  # fmt: skip

    def _put_at(self, at: int, name: str, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        if member.isdir():
            with_it = _stat(at, name)
            if with_it is None or not stat.S_ISDIR(with_it.st_mode):
                remove_entry(at, name)
                os.mkdir(name, 0o700, dir_fd=at)
            os.chmod(name, member.mode & 0o1777 | 0o700, dir_fd=at)
            return
        if member.islnk():
            self._link(at, name, member.linkname)
            return
        remove_entry(at, name)
        if member.issym():
            os.symlink(member.linkname, name, dir_fd=at)
        else:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at)
            with open(fd, "wb") as file:
                self._count(member.size)
                if data := tar.extractfile(member):
                    shutil.copyfileobj(data, file, MIB)
                file.flush()
                os.fchmod(fd, member.mode & 0o777 | 0o600)
                os.utime(fd, (member.mtime, member.mtime))

    def _link(self, at: int, name: str, target: str) -> None:
        """A second name; of a target that is a symlink, of the link itself."""
        folder, base = _split(target)
        source = open_in_root(self._root, folder or ".", _FOLDER)
        try:
            one, other = _stat(source, base), _stat(at, name)
            if one is None or stat.S_ISDIR(one.st_mode):
                raise FileNotFoundError(0, f"it is a second name of {target!r}, which is no file")
            if other is None or (one.st_dev, one.st_ino) != (other.st_dev, other.st_ino):
                remove_entry(at, name)
                os.link(base, name, src_dir_fd=source, dst_dir_fd=at, follow_symlinks=False)
        finally:
            os.close(source)

    def _folder(self, path: str) -> int:
        """Opened, made where it is not there."""
        try:
            return open_in_root(self._root, path or ".", _FOLDER)
        except FileNotFoundError:
            above, _, name = path.rpartition("/")
            at = self._folder(above)
            try:
                os.mkdir(name, 0o755, dir_fd=at)
            finally:
                os.close(at)
            return open_in_root(self._root, path, _FOLDER)


def _members(file: BinaryIO) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    file.seek(0)
    with tarfile.open(fileobj=file, mode="r:", tarinfo=BoundedHeader, errorlevel=2) as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # all of which it keeps
            yield tar, member


def _split(name: str) -> tuple[str, str]:
    """The folder and the name of an entry; of the root itself two empty ones. UsageError for what leads up."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or len(parts) > _MAX_DEPTH or "\0" in name:
        raise UsageError(f"an entry of the image has the name {name[:80]!r}", "make the image anew")
    return "/".join(parts[:-1]), parts[-1] if parts else ""


def _stat(at: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
