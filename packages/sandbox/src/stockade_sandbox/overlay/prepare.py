"""Making the place where a bot's writing to a folder goes: an overlay's, or a whole copy where none can be mounted."""

import errno
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from stockade_sandbox.errors import SandboxFailed, UsageError
from stockade_sandbox.overlay.commits import keep_packed
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.overlay.paths import checked_folder
from stockade_sandbox.overlay.record import LAYER_FILE, LayerRecord, Original, write_manifest
from stockade_sandbox.overlay.safe_fs import (
    MAX_DEPTH,
    MODE_BITS,
    DirTree,
    FolderId,
    Node,
    copy_data,
    digest_of,
    encode_path,
    join,
    new_file,
    new_symlink,
)
from stockade_sandbox.overlay.undo import recover_folder
from stockade_sandbox.policy import FolderRule
from stockade_sandbox.records import line_of, replace
from stockade_sandbox.results import FolderLayer

OnProgress = Callable[[int, int], None]
"""Called with bytes done and bytes in all (0: not yet known), between two files and inside large ones; may raise."""

_RESERVE = 16 << 20
"""Bytes that a copy must leave free."""

_WALK_S = 0.05
"""A look before an overlay is chosen: some 5,000 to 10,000 entries. The rest is for OwnersWalk."""


def prepare_layer(
    rule: FolderRule,
    base: Path,
    *,
    sandbox_uid: int | None,
    can_overlay: Callable[[Path], str | None],
    progress: OnProgress | None = None,
    number: int | None = None,
) -> FolderLayer:
    """Check a folder and make its layer below `base`, which is private to us and made when it is missing.

    An apply to the folder that was cut off is completed first.

    `sandbox_uid`: who the sandbox runs as when we are root, else None. `can_overlay` says why an overlay over a folder
    cannot be mounted, or None. `number`: its place below `base`; else the next that is free.

    Raises UsageError (the folder must not, or cannot, be given; a copy would not fit) and SandboxFailed (the layer
    cannot be made).
    """
    folder = checked_folder(rule.host, base)
    recover_folder(folder, base.parent)
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the name of the folder {str(folder)!r} is not UTF-8", "rename it") from error
    if rule.mode != "overlay":
        return FolderLayer(host=str(folder), inside=rule.inside, mode=rule.mode, strategy="direct")
    overlay = can_overlay(folder) is None and (sandbox_uid is not None or foreign(folder, _walked()) is None)
    try:
        place = _new_place(base, count() if number is None else (number,))
        try:
            if overlay:
                skipped = _make_overlay(folder, place, sandbox_uid)
            else:
                skipped = _make_copy(folder, place, sandbox_uid, progress)
            _write_record(folder, place, skipped)
        except BaseException:
            remove_tree(place)
            raise
    except OSError as error:
        raise _cannot_make(error, folder, base) from error
    return FolderLayer(
        host=str(folder),
        inside=rule.inside,
        mode=rule.mode,
        strategy="overlay" if overlay else "copy",
        layer=str(place),
    )


def _cannot_make(error: OSError, folder: Path, base: Path) -> UsageError | SandboxFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UsageError(f"the disk is full: no room for what is written to {folder} ({base})", "free some space")
    return SandboxFailed(f"cannot make a layer for {folder} in {base}: {error.strerror}", "see who may write there")


def _new_place(base: Path, numbers: Iterable[int]) -> Path:
    """FileExistsError where none of them is free."""
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    real = os.path.realpath(base)
    for number in numbers:
        place = f"{real}/{number}"
        try:
            os.mkdir(place, 0o700)
        except FileExistsError:
            continue
        return Path(place)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), real)


def _make_overlay(folder: Path, place: Path, owner: int | None) -> list[str]:
    """The mounted folder takes its own mode and owner from `upper`."""
    host = folder.stat()
    upper, work = place / "upper", place / "work"
    for made in (upper, work):
        made.mkdir(mode=0o700)
        if owner is not None:
            os.chown(made, owner, owner)
    os.utime(upper, ns=(host.st_atime_ns, host.st_mtime_ns))
    upper.chmod(host.st_mode & MODE_BITS)
    return []


def _make_copy(folder: Path, place: Path, owner: int | None, progress: OnProgress | None) -> list[str]:
    target = place / "copy"
    with DirTree(folder) as source:
        found = survey(source, progress)
        check_space(found.disk_bytes, place, folder)
        target.mkdir(mode=0o700)
        seen = Copier(source, target, owner, progress).run(found)
    write_manifest(place, seen)
    if owner is not None:
        os.chown(target, owner, owner)
    target.chmod(folder.stat().st_mode & 0o777 | 0o700)
    return found.skipped


def _write_record(folder: Path, place: Path, skipped: list[str]) -> None:
    """On disk when this returns. The start is read off the file's own ctime: the clock of the host files' times."""
    with DirTree(folder) as host, (place / LAYER_FILE).open("xb") as out:
        keep_packed(host, place)
        started = os.fstat(out.fileno()).st_ctime_ns
        record = LayerRecord(host=encode_path(str(folder)), folder=FolderId.of(host.root_fd), started_ns=started,
                             skipped=tuple(skipped))  # fmt: skip
        out.write(line_of(record))
        out.flush()
        os.fsync(out.fileno())


def foreign(folder: Path, enough: Callable[[], bool]) -> str | None:
    """The first entry, the upper ones first, that is not ours: an overlay in a user namespace, where only our own uid
    and gid exist, cannot copy it up. None where there is none, or `enough` said so between two folders.
    """
    uid, gid = os.geteuid(), os.getegid()
    host, waiting = folder.stat(), deque([str(folder)])
    if (host.st_uid, host.st_gid) != (uid, gid):
        return str(folder)
    while waiting and not enough():
        with suppress(PermissionError, FileNotFoundError), os.scandir(waiting.popleft()) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if found.st_uid != uid or found.st_gid != gid:
                    return entry.path
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return None


def _walked() -> Callable[[], bool]:
    end = time.monotonic() + _WALK_S
    return lambda: time.monotonic() > end


class OwnersWalk:
    """Looks through the whole of folders that an overlay was laid over after a short look, beside the run; `tell` gets,
    in its own thread, a line for each that holds what cannot be changed. It takes half a processor at the most.
    """

    def __init__(self, layers: Sequence[FolderLayer], tell: Callable[[str], None]) -> None:
        self._layers, self._tell, self._stop = layers, tell, threading.Event()
        self._worked = time.monotonic()
        self._thread = threading.Thread(target=self._walk, name="stockade-owners", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _rests(self) -> bool:
        """Whether it is over; rests for as long as it has worked."""
        is_over = self._stop.wait(time.monotonic() - self._worked)
        self._worked = time.monotonic()
        return is_over

    def _walk(self) -> None:
        for layer in self._layers:
            with suppress(OSError):  # the folder is gone: whoever reads it says so
                if found := foreign(Path(layer.host), self._rests):
                    path = layer.inside + found.removeprefix(layer.host)
                    self._tell(f"{path} belongs to somebody else on the host: it can be read, not changed")


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
        wanted, stays = -(-(needed + _RESERVE) >> 20), _RESERVE >> 20
        raise UsageError(
            f"a copy of {folder} needs {wanted} MiB ({stays} of them stay free) and {where} has {free >> 20}",
            "free some space, or give a smaller folder",
        )


class Copier:
    """Copies a surveyed folder. `owner`: the uid and gid of the copies, where we may give files away."""

    def __init__(self, source: DirTree, target: Path, owner: int | None, progress: OnProgress | None) -> None:
        self._source, self._target, self._progress = source, target, progress
        self._owner = None if owner is None else (owner, owner)
        self._done = self._total = 0

    def run(self, found: Survey) -> list[Original]:
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
        at, name = to.place(path)
        if node.kind == "directory":
            os.mkdir(name, 0o700, dir_fd=at)
            return node
        if node.target is not None:
            new_symlink(node.target, name, at, self._owner, (node.stat.st_atime_ns, node.stat.st_mtime_ns))
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

            times = before.st_atime_ns, before.st_mtime_ns
            with new_file(name, at, before.st_mode & MODE_BITS, self._owner, times) as out:
                copy_data(source, out, tick)
                self._hashes[path] = digest_of(out, tick)
        self._done += before.st_blocks * 512
        return Node(before)

    def _finish_folder(self, to: DirTree, path: str, node: Node) -> None:
        fd = to.folder(path)
        if self._owner is not None:
            os.fchown(fd, *self._owner)
        os.utime(fd, ns=(node.stat.st_atime_ns, node.stat.st_mtime_ns))
        os.fchmod(fd, node.mode & MODE_BITS)

    def _seen(self, to: DirTree, path: str, node: Node) -> Original:
        copy = to.node(path)
        if copy is None:
            raise UsageError(f"the copy of {path!r} vanished while it was made", "run again")
        when = 0 if node.kind == "directory" else node.stat.st_mtime_ns
        return replace(Original.of(path, node), mtime_ns=when, sha256=self._hashes.get(path, ""),
                       inode=copy.stat.st_ino, ctime_ns=copy.stat.st_ctime_ns)  # fmt: skip
