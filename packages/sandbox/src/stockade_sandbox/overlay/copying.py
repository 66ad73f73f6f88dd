"""A whole copy of a folder, for where an overlay cannot be mounted, and the manifest of what was copied."""

import errno
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stockade_sandbox.errors import UsageError
from stockade_sandbox.overlay.base_parts import digest_of
from stockade_sandbox.overlay.record import Baseline
from stockade_sandbox.overlay.safe_fs import MAX_DEPTH, DirTree, Node, copy_data, encode_path, join
from stockade_sandbox.records import replace

OnProgress = Callable[[int, int], None]
"""Called with bytes done and bytes in all (0: not yet known), between two files and inside large ones; may raise."""

_RESERVE = 16 << 20
"""Bytes that a copy must leave free."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Survey:
    """What a folder holds: entries in order, folders before what is in them; `skipped`, each with the reason."""

    nodes: dict[str, Node] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    disk_bytes: int = 0


def survey(tree: DirTree, progress: OnProgress | None = None) -> Survey:
    """All of a folder that can be copied."""
    found = Survey()
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        if progress:
            progress(0, 0)
        try:
            names = tree.names(folder)
        except PermissionError:
            found.skipped.append(f"{encode_path(folder)}: cannot be read")
            found.nodes.pop(folder, None)
            continue
        for name in names:
            _take(tree, join(folder, name), found, waiting)
    found.nodes = dict(sorted(found.nodes.items(), key=lambda item: item[0].split("/")))
    return found


def _take(tree: DirTree, path: str, found: Survey, waiting: list[str]) -> None:
    node = tree.node(path)
    if node is None:
        return
    if node.kind == "special":
        found.skipped.append(f"{encode_path(path)}: not a file, folder or symlink")
        return
    if node.kind == "directory" and path.count("/") >= MAX_DEPTH - 1:
        found.skipped.append(f"{encode_path(path)}: more than {MAX_DEPTH} folders deep")
        return
    found.nodes[path] = node
    if node.kind == "directory":
        waiting.append(path)
    elif node.kind == "file":
        found.disk_bytes += node.stat.st_blocks * 512


def check_space(needed: int, where: Path, folder: Path) -> None:
    """UsageError when a copy of `needed` bytes would not fit."""
    free = shutil.disk_usage(where).free
    if needed + _RESERVE > free:
        raise UsageError(
            f"a copy of {folder} needs {needed >> 20} MiB and {where} has {free >> 20} MiB free",
            "free some space, or give a smaller folder",
        )


class Copier:
    """Copies a surveyed folder. `owner`: the uid and gid of the copies, where we may give files away."""

    def __init__(self, source: DirTree, target: Path, owner: int | None, progress: OnProgress | None) -> None:
        self._source, self._target, self._owner, self._progress = source, target, owner, progress
        self._done = self._total = 0

    def run(self, found: Survey) -> list[Baseline]:
        """The manifest: each entry as it was on the host, and how to know its copy again."""
        copied: dict[str, Node] = {}
        self._hashes: dict[str, str] = {}
        self._total = found.disk_bytes
        with DirTree(self._target) as to:
            for path, node in found.nodes.items():
                if taken := self._entry(to, path, node, found):
                    copied[path] = taken
                self._tell(0)
            for path in reversed([path for path, node in copied.items() if node.kind == "directory"]):
                self._finish_folder(to, path, copied[path])
            return [self._seen(to, path, node) for path, node in copied.items()]

    def _tell(self, more: int) -> None:
        """`more`: of a file that is not done yet."""
        if self._progress:
            self._progress(min(self._done + more, self._total), self._total)

    def _entry(self, to: DirTree, path: str, node: Node, found: Survey) -> Node | None:
        folder, _, name = path.rpartition("/")
        at = to.folder(folder)
        if node.kind == "directory":
            os.mkdir(name, 0o700, dir_fd=at)
            return node
        if node.target is not None:
            os.symlink(node.target, name, dir_fd=at)
            self._stamp(name, at, node.stat)
            return node
        try:
            return self._file(at, name, path)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO):
                raise
            found.skipped.append(f"{encode_path(path)}: {error.strerror}")
            return None

    def _file(self, at: int, name: str, path: str) -> Node:
        """Hashed while its pages are at hand: later the bot has written to the copy, and who works on the host to the
        original, whose inode and ctime would call a `git checkout` and back a change."""
        with self._source.file(path) as source:
            before, copied = os.fstat(source), 0

            def tick(count: int) -> None:
                nonlocal copied
                copied += count
                self._tell(copied)

            out = os.open(name, _NEW, 0o600, dir_fd=at)
            try:
                copy_data(source, out, tick)
                self._hashes[path] = digest_of(out, tick)
                if self._owner is not None:
                    os.fchown(out, self._owner, self._owner)
                os.fchmod(out, stat.S_IMODE(before.st_mode) & 0o1777)
                os.utime(out, ns=(before.st_atime_ns, before.st_mtime_ns))
            finally:
                os.close(out)
        self._done += before.st_blocks * 512
        return Node(before)

    def _stamp(self, name: str, at: int, found: os.stat_result) -> None:
        if self._owner is not None:
            os.chown(name, self._owner, self._owner, dir_fd=at, follow_symlinks=False)
        os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=at, follow_symlinks=False)

    def _finish_folder(self, to: DirTree, path: str, node: Node) -> None:
        fd = to.folder(path)
        if self._owner is not None:
            os.fchown(fd, self._owner, self._owner)
        os.utime(fd, ns=(node.stat.st_atime_ns, node.stat.st_mtime_ns))
        os.fchmod(fd, node.mode & 0o1777)

    def _seen(self, to: DirTree, path: str, node: Node) -> Baseline:
        copy = to.node(path)
        if copy is None:
            raise UsageError(f"the copy of {path!r} vanished while it was made", "run again")
        update = {"copy_inode": copy.stat.st_ino, "copy_ctime_ns": copy.stat.st_ctime_ns,
                  "sha256": self._hashes.get(path, "")}  # fmt: skip
        return replace(Baseline.of(path, node), **update)
