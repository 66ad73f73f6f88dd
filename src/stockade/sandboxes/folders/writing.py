"""Writing checked changes to the host folder; apply.py says in which order and why."""

import errno
import os
import secrets
import stat
from contextlib import suppress

from stockade.core.changes import Change
from stockade.sandboxes.folders.discard import remove_entry
from stockade.sandboxes.folders.hostile import Node, copy_data, parent, spell, unspell
from stockade.sandboxes.folders.record import JOURNAL_FILE, OpenLayer, Seen, write_seen

STAGING = ".stockade-apply-"
_FSYNC_EACH = 64
"""Above this many files one sync of everything is cheaper."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_XATTRS = ("user.", "system.posix_acl_access")

Chosen = dict[str, Change]
"""Changes by path as the file system spells it, folders before what is in them."""


def removes(change: Change) -> bool:
    return change.kind in ("deleted", "type")


class Writer:
    """Carries out checked changes on the host folder."""

    def __init__(self, opened: OpenLayer) -> None:
        self._host, self._from = opened.host, opened.written
        self._journal = opened.base / JOURNAL_FILE
        root = os.fstat(self._host.root_fd)
        self._owner = (root.st_uid, root.st_gid) if os.geteuid() == 0 else None
        self._modes: dict[str, int] = {}

    def sweep(self) -> None:
        """Remove what an interrupted apply left."""
        for name in os.listdir(self._host.root_fd):
            if name.startswith(STAGING):
                remove_entry(self._host.root_fd, name)

    def write(self, chosen: Chosen) -> None:
        root = self._writable("")
        staging = STAGING + secrets.token_hex(6)
        try:
            os.mkdir(staging, 0o700, dir_fd=root)
            fd = os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
            try:
                staged = self._stage(chosen, fd)
                write_seen(self._journal, [Seen(path=change.path, kind=change.entry) for change in chosen.values()])
                self._remove(chosen)
                self._place(chosen, staged, fd)
                self._sync(chosen)
            finally:
                os.close(fd)
        finally:
            remove_entry(root, staging)
            self._restore()

    def _stage(self, chosen: Chosen, staging: int) -> dict[str, str]:
        """All new content, on disk under a number each."""
        staged: dict[str, str] = {}
        files = [path for path, change in chosen.items() if self._is_new_content(path, change)]
        for number, path in enumerate(files):
            staged[path] = str(number)
            self._stage_one(path, chosen[path], staging, str(number), sync=len(files) <= _FSYNC_EACH)
        if len(files) > _FSYNC_EACH:
            os.sync()
        return staged

    def _is_new_content(self, path: str, change: Change) -> bool:
        """A mode of a file with other names on the host is new content too: those names keep the old mode."""
        if change.kind == "deleted" or change.entry == "directory":
            return False
        before = self._host.node(path)
        return change.kind != "mode" or before is None or before.stat.st_nlink > 1

    def _stage_one(self, path: str, change: Change, staging: int, name: str, *, sync: bool) -> None:
        before = self._host.node(path)
        if change.entry == "symlink":
            os.symlink(unspell(change.target or ""), name, dir_fd=staging)
            if self._owner:
                os.chown(name, *self._owner_of(path, before), dir_fd=staging, follow_symlinks=False)
            return
        with self._from.file(path) as source:
            out = os.open(name, _NEW, 0o600, dir_fd=staging)
            try:
                copy_data(source, out)
                self._adorn(out, path, before, os.fstat(source))
                os.fchmod(out, change.mode & 0o1777)
                if sync:
                    os.fsync(out)
            finally:
                os.close(out)

    def _adorn(self, out: int, path: str, before: Node | None, source: os.stat_result) -> None:
        """Owner, group and extended attributes, as the file has on the host or as a new one there would get."""
        if os.fstat(out).st_size != source.st_size:
            raise OSError(errno.EIO, "the layer changed while it was read", spell(path))
        uid, gid = self._owner_of(path, before)
        if self._owner:
            os.fchown(out, uid, gid)
        elif gid != os.getegid():
            with suppress(PermissionError):
                os.fchown(out, -1, gid)
        if before is None or before.kind != "file":
            return
        with suppress(PermissionError), self._host.file(path) as old:
            for name in os.listxattr(old):
                if name.startswith(_KEPT_XATTRS):
                    os.setxattr(out, name, os.getxattr(old, name))

    def _owner_of(self, path: str, before: Node | None) -> tuple[int, int]:
        if before is not None and before.kind == "file":
            return before.stat.st_uid, before.stat.st_gid
        uid, gid = self._owner or (os.geteuid(), os.getegid())
        folder = self._host.node(parent(path)) if parent(path) else Node(os.fstat(self._host.root_fd))
        inherits = folder is not None and folder.kind == "directory" and folder.mode & stat.S_ISGID
        return uid, folder.stat.st_gid if folder is not None and inherits else gid

    def _remove(self, chosen: Chosen) -> None:
        """What is deleted, deepest first; a folder that becomes a file or symlink, and what becomes a folder, too."""
        for path, change in reversed(chosen.items()):
            before = self._host.node(path) if removes(change) else None
            if before is None:
                continue
            if before.kind == "directory":
                self._host.forget()
                os.rmdir(path.rpartition("/")[2], dir_fd=self._writable(parent(path)))
            elif change.kind == "deleted" or change.entry == "directory":
                os.unlink(path.rpartition("/")[2], dir_fd=self._writable(parent(path)))
        self._host.forget()

    def _place(self, chosen: Chosen, staged: dict[str, str], staging: int) -> None:
        for path, change in chosen.items():
            if change.kind == "deleted":
                continue
            at, name = self._folder_for(path), path.rpartition("/")[2]
            if path in staged:
                os.rename(staged[path], name, src_dir_fd=staging, dst_dir_fd=at)
            elif change.entry == "directory" and change.kind == "mode":
                self._modes[path] = change.mode
            elif change.entry == "directory":
                self._make_folder(path, change.mode)
            elif change.entry == "file":
                self._chmod(path, change.mode)

    def _folder_for(self, path: str) -> int:
        """The folder that `path` goes into; made as the layer has it when the host has none."""
        missing = []
        folder = parent(path)
        while folder and self._host.node(folder) is None:
            missing.append(folder)
            folder = parent(folder)
        for folder in reversed(missing):
            made = self._from.node(folder)
            self._make_folder(folder, made.mode & 0o1777 if made else 0o755)
        return self._writable(parent(path))

    def _make_folder(self, path: str, mode: int) -> None:
        at, name = self._writable(parent(path)), path.rpartition("/")[2]
        if self._host.node(path) is None:
            os.mkdir(name, 0o700, dir_fd=at)
        fd = self._host.folder(path)
        if self._owner:
            os.fchown(fd, self._owner[0], -1 if os.fstat(fd).st_mode & stat.S_ISGID else self._owner[1])
        self._modes[path] = mode

    def _writable(self, path: str) -> int:
        """The folder, opened to its owner when its mode forbids writing; `_restore` sets the mode back."""
        mode = self._host.make_writable(path)
        if mode is not None:
            self._modes.setdefault(path, mode)
        return self._host.folder(path)

    def _restore(self) -> None:
        """The modes of folders, which would have been in the way before: deepest first."""
        for path in sorted(self._modes, key=lambda path: path.count("/") if path else -1, reverse=True):
            node = self._host.node(path) if path else Node(os.fstat(self._host.root_fd))
            if node is not None and node.kind == "directory":
                self._host.set_mode(path, self._modes[path])
        self._host.forget()

    def _chmod(self, path: str, mode: int) -> None:
        pin = os.open(
            path.rpartition("/")[2], os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._host.folder(parent(path))
        )
        try:
            if not stat.S_ISREG(os.fstat(pin).st_mode):
                raise OSError(errno.EINVAL, "not a regular file any more", spell(path))
            os.chmod(f"/proc/self/fd/{pin}", mode & 0o1777)
        finally:
            os.close(pin)

    def _sync(self, chosen: Chosen) -> None:
        folders = {parent(path) for path in chosen}
        if len(folders) > _FSYNC_EACH:
            os.sync()
            return
        for folder in sorted(folders):
            node = self._host.node(folder) if folder else None
            if not folder or (node is not None and node.kind == "directory"):
                os.fsync(self._host.folder(folder))
