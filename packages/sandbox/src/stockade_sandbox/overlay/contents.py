"""What a journal holds of entries: kept in its store, staged in the host folder; and whether an entry still is one."""

import errno
import hashlib
import os
import stat
from contextlib import suppress
from typing import Self

from stockade_sandbox.overlay.journal import Look, Side
from stockade_sandbox.overlay.safe_fs import (
    CHUNK,
    MODE_BITS,
    DirTree,
    Node,
    copy_data,
    decode_path,
    digest_of,
    encode_path,
    new_file,
    new_symlink,
    parent,
    read_up_to,
    xattrs_of,
)
from stockade_sandbox.results import Change

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}
_XATTRS = ("user.", "system.posix_acl_access")
_INODE = ".inode"


class Contents:
    """Of one journal: `store` and `staging` are descriptors of its folders. Errors are OSError.

    `sync`: whether each new file is brought to disk at once; else one sync of all is the caller's.
    """

    def __init__(self, host: DirTree, store: int, staging: int, *, sync: bool) -> None:
        self._host, self._store, self._staging, self._sync = host, store, staging, sync
        root = os.fstat(host.root_fd)
        self.owner = (root.st_uid, root.st_gid) if os.geteuid() == 0 else None

    def look(self, path: str, node: Node | None) -> Look:
        """What is there now."""
        if node is None:
            return Look()
        seen = node.stat
        if node.kind == "directory":
            owner = (seen.st_uid, seen.st_gid)
            return Look("directory", node.mode, owner=owner, xattrs=xattrs_of(self._host.folder(path)) or None)
        look = Look(node.kind, node.mode, node.size, inode=seen.st_ino, mtime_ns=seen.st_mtime_ns)
        if node.kind == "file":
            with self._host.file(path) as fd:
                look.sha256 = digest_of(fd)
        elif node.target is not None:
            look.target = encode_path(node.target)
        return look

    def is_still(self, look: Look, path: str, node: Node | None, *, surely: bool = False) -> bool:
        """Whether an entry is what it was: by inode, size and time or else by content; `surely` by content only."""
        if node is None or look.kind != node.kind:
            return node is None and look.kind == "absent"
        if node.kind == "directory":
            return True
        if node.kind == "symlink":
            return node.target == decode_path(look.target)
        if node.mode != look.mode or node.size != look.size:
            return False
        if not surely and (node.stat.st_ino, node.stat.st_mtime_ns) == (look.inode, look.mtime_ns):
            return True
        if node.kind == "special":
            return node.stat.st_ino == look.inode
        with self._host.file(path) as fd:
            return digest_of(fd) == look.sha256

    def keep(self, number: int, path: str, node: Node | None, side: Side) -> Look:
        """What is there now, and its content in the store: as a link to it, or a copy.

        What has other names on the host is copied, because they go on writing to it; the link beside the copy is for
        the case that they did not.
        """
        look = self.look(path, node)
        if node is None or node.kind == "directory":
            return look
        name, (at, there) = f"{number}.{side}", self._host.place(path)
        shared = node.kind == "file" and node.stat.st_nlink > 1
        _link(there, at, name + _INODE * shared, self._store)
        if shared or not _is_there(name, self._store):
            self._copy_from_host(path, node, name)
        return look

    def _copy_from_host(self, path: str, node: Node, name: str) -> None:
        if node.kind == "file":
            with self._host.file(path) as source:
                self._copy(source, name, self._store)
        elif node.target is not None:
            new_symlink(node.target, name, self._store, *_whose(node.stat))
        elif stat.S_ISFIFO(node.stat.st_mode):
            os.mkfifo(name, node.mode, dir_fd=self._store)

    def of(self, store: int) -> Self:
        """The same of another journal's store."""
        return type(self)(self._host, store, self._staging, sync=self._sync)

    def has(self, number: int, side: Side, look: Look) -> bool:
        """Whether the store has this side as it was: a program that had a file open can write to what is kept of it."""
        name = f"{number}.{side}"
        if look.kind != "file":
            return look.kind in ("absent", "directory") or _is_there(name, self._store)
        return self._holds(name, look)

    def _holds(self, name: str, look: Look) -> bool:
        try:
            fd = os.open(name, _READ, dir_fd=self._store)
        except FileNotFoundError:
            return False
        try:
            return digest_of(fd) == look.sha256
        finally:
            os.close(fd)

    def bring(self, number: int, side: Side, look: Look) -> str:
        """The name in staging of what is to be renamed into place; from the store where it is not there yet."""
        name = f"{number}.{side}"
        if _is_there(name, self._staging):
            return name
        kept = name + _INODE if look.kind == "file" and self._holds(name + _INODE, look) else name
        if not _link(kept, self._store, name, self._staging):
            self.stage_copy(kept, name)
        return name

    def stage_copy(self, kept: str, name: str) -> None:
        """What the store keeps, into staging under a name."""
        store = self._store
        found = os.stat(kept, dir_fd=store, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            new_symlink(os.readlink(kept, dir_fd=store), name, self._staging, *_whose(found))
        elif stat.S_ISFIFO(found.st_mode):
            os.mkfifo(name, stat.S_IMODE(found.st_mode), dir_fd=self._staging)
        else:
            fd = os.open(kept, _READ, dir_fd=store)
            try:
                self._copy(fd, name, self._staging)
            finally:
                os.close(fd)

    def stage(self, number: int, path: str, change: Change, before: Node | None, written: DirTree) -> Look:
        """The bot's content, into staging: with the owner and attributes of the host's file, or of a new one there."""
        if change.entry == "symlink":
            owner = self.owner_of(path, before) if self.owner else None
            new_symlink(decode_path(change.target or ""), f"{number}.after", self._staging, owner)
            return Look("symlink", target=change.target or "")
        with written.file(path) as source:
            return self.stage_file(number, path, source, change.mode & MODE_BITS, before)

    def stage_file(self, number: int, path: str, source: int, mode: int, before: Node | None) -> Look:
        """What `source` holds from where it stands, into staging, as `stage` does."""
        with new_file(f"{number}.after", self._staging, mode, sync=self._sync) as out:
            sha256 = _copy_hashed(source, out, path)
            self._adorn(out, path, before)
            now = os.fstat(out)
        return Look("file", mode, now.st_size, sha256, inode=now.st_ino, mtime_ns=now.st_mtime_ns)

    def _adorn(self, out: int, path: str, before: Node | None) -> None:
        uid, gid = self.owner_of(path, before)
        if self.owner:
            os.fchown(out, uid, gid)
        elif gid != os.getegid():
            with suppress(PermissionError):
                os.fchown(out, -1, gid)
        if before is None or before.kind != "file":
            return
        with suppress(PermissionError), self._host.file(path) as old:
            set_xattrs(out, xattrs_of(old, _XATTRS))

    def owner_of(self, path: str, before: Node | None) -> tuple[int, int]:
        """Whose a new entry is: the old one's owner, else the folder's where we are root, else ours."""
        if before is not None and before.kind == "file":
            return before.stat.st_uid, before.stat.st_gid
        uid, gid = self.owner or (os.geteuid(), os.getegid())
        folder = self._host.node(parent(path)) if parent(path) else Node(os.fstat(self._host.root_fd))
        inherits = folder is not None and folder.kind == "directory" and folder.mode & stat.S_ISGID
        return uid, folder.stat.st_gid if folder is not None and inherits else gid

    def _copy(self, source: int, name: str, to: int) -> None:
        """All of a file: content, owner as far as we may, attributes, mode and times."""
        seen = os.fstat(source)
        with new_file(name, to, stat.S_IMODE(seen.st_mode), *_whose(seen), sync=self._sync) as out:
            copy_data(source, out)
            set_xattrs(out, xattrs_of(source))


def _whose(seen: os.stat_result) -> tuple[tuple[int, int], tuple[int, int]]:
    """Owner and times."""
    return (seen.st_uid, seen.st_gid), (seen.st_atime_ns, seen.st_mtime_ns)


def _copy_hashed(source: int, out: int, path: str) -> str:
    size = os.fstat(source).st_size
    if size > CHUNK:
        copy_data(source, out)
        found = digest_of(source)
    else:
        data = read_up_to(source, CHUNK)
        done = 0
        while done < len(data):
            done += os.write(out, data[done:])
        found = hashlib.sha256(data).hexdigest()
    if os.fstat(out).st_size != size:
        raise OSError(errno.EIO, "the layer changed while it was read", encode_path(path))
    return found


def _link(name: str, at: int, new: str, to: int) -> bool:
    """Whether it is there under the new name too. Not across file systems, nor where the kernel forbids it."""
    try:
        os.link(name, new, src_dir_fd=at, dst_dir_fd=to, follow_symlinks=False)
    except FileExistsError:
        os.unlink(new, dir_fd=to)
        return _link(name, at, new, to)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return False
    return True


def _is_there(name: str, at: int) -> bool:
    try:
        os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def set_xattrs(fd: int, xattrs: dict[str, str]) -> None:
    """As far as we may."""
    for name, value in xattrs.items():
        with suppress(PermissionError):
            try:
                os.setxattr(fd, name, bytes.fromhex(value))
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
