"""Bringing a layer back to a snapshot, byte for byte; everything the bot did to it since is undone.

Only for a layer whose sandbox is gone: its first process is noted in the run's folder, and awaited. What is there
already and right is left alone, so that a second attempt after a crash completes the first.
"""

import errno
import hashlib
import json
import os
import select
import signal
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from stockade_sandbox.errors import SandboxFailed, UsageError
from stockade_sandbox.overlay.discard import remove_entry
from stockade_sandbox.overlay.record import LAYER_FILE, OpenLayer, open_layer, read_record, write_file, write_manifest
from stockade_sandbox.overlay.safe_fs import (
    CHUNK,
    MODE_BITS,
    copy_data,
    decode_path,
    encode_path,
    join,
    new_file,
    new_symlink,
    parent,
)
from stockade_sandbox.overlay.snapshots import MARKS, Found, kind_of, marks_of, scan
from stockade_sandbox.overlay.store import (
    KEPT,
    Kept,
    copy_out,
    number_of,
    read_snapshot,
    remove_after,
    share_base,
    share_kept,
)
from stockade_sandbox.processes import start_time
from stockade_sandbox.records import line_of, replace
from stockade_sandbox.results import FolderLayer

HOLDER = "sandbox"
_OPAQUE = ".overlay.opaque"
_END_S = 10.0


def restore(
    layer: FolderLayer,
    name: str | None,
    source: Path | None = None,
    protect: Collection[str] = (),
    without: Collection[str] = (),
) -> None:
    """Make the layer what it was when snapshot `name` was taken; None is as it began. What is at the paths `protect`
    and below is what the folder has there, and so is what was changed at exactly the paths `without`.

    `source` is the place of another layer of the same folder whose snapshot it is; then this one must be new.
    SandboxFailed when the snapshot is gone or there is no room; UsageError when a file that was untouched then would
    have to come from the host, and changed there.
    """
    if layer.strategy == "direct":
        return
    try:
        with open_layer(layer, writing=True) as opened:
            folder = (source or opened.base) / KEPT
            wanted = {decode_path(path): entry for path, entry in read_snapshot(folder, name).items()}
            for path in (*protect, *_whole(wanted, set(without), opened)):
                wanted = _as_given(wanted, path, opened)
            _Restorer(opened, folder, wanted).run()
            if source is None:
                remove_after(opened.base, name)
            else:
                share_base(source, opened.base, number_of(name), from_begin=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SandboxFailed("the disk is full: the folder cannot be brought back", "free some space") from error
        raise SandboxFailed(f"cannot bring {layer.layer} back to its snapshot: {error.strerror}") from error


def share_snapshots(source: FolderLayer, layer: FolderLayer, name: str) -> None:
    """Give a new layer of the same folder the snapshots of another up to `name`, and its beginning.

    Segments are never written to again, so the two share them on disk; so do they the base up to there. The beginning
    is what conflicts with the host are told by where there is no base.
    """
    base, other = Path(str(layer.layer)), Path(str(source.layer))
    try:
        share_kept(other, base, name)
        share_base(other, base, number_of(name), from_begin=False)
        if layer.strategy == "overlay":
            own = replace(read_record(layer)[1], started_ns=read_record(source)[1].started_ns)
            write_file(base / LAYER_FILE, line_of(own))
    except OSError as error:
        raise SandboxFailed(f"cannot share the snapshots of {other}: {error.strerror}") from error


def _whole(wanted: dict[str, Kept], without: set[str], opened: OpenLayer) -> list[str]:
    """Those of `without` that are to be as the host has them with all that is in them: not its folders that more of
    `without` is in, of which only the mode is put right here.
    """
    around, whole = {parent(path) for path in without}, list[str]()
    for path in sorted(without):
        node, entry = opened.host.node(path), wanted.get(path)
        if node is None or node.kind != "directory" or path not in around:
            whole.append(path)
        elif entry is not None and entry.kind == "directory":
            wanted[path] = replace(entry, mode=node.mode & MODE_BITS)
    return whole


def _as_given(wanted: Mapping[str, Kept], path: str, opened: OpenLayer) -> dict[str, Kept]:
    """`wanted` without what a bot made of the host's entry at `path`, and of the folders above it only that one shown
    again: what else a bot removed of them stays removed.
    """
    kept = {one: entry for one, entry in wanted.items() if one != path and not one.startswith(f"{path}/")}
    parts, hidden = path.split("/"), False
    for depth in range(1, len(parts)):
        above, way = "/".join(parts[:depth]), "/".join(parts[: depth + 1])
        entry, node = kept.get(above), opened.host.node(above)
        if node is None or node.kind != "directory":
            break  # there was nothing to protect
        if opened.is_copy:
            if entry is not None and entry.kind != "directory":
                del kept[above]
            continue
        hidden = hidden or (entry is not None and (entry.kind != "directory" or _is_opaque(entry)))
        if not hidden:
            continue
        shown = (
            entry
            if entry is not None and entry.kind == "directory"
            else Kept(
                path=encode_path(above), kind="directory", mode=node.mode & MODE_BITS, mtime_ns=node.stat.st_mtime_ns
            )
        )
        marks = {mark: value for mark, value in shown.marks.items() if not mark.endswith(_OPAQUE)}
        kept[above] = replace(shown, marks=marks)
        for child in (join(above, name) for name in opened.host.names(above)):
            if child != way:
                kept.setdefault(child, Kept(path=encode_path(child), kind="whiteout"))
    return kept


def _is_opaque(entry: Kept) -> bool:
    return any(mark.endswith(_OPAQUE) for mark in entry.marks)


class _Restorer:
    def __init__(self, opened: OpenLayer, folder: Path, wanted: Mapping[str, Kept]) -> None:
        self._tree, self._host, self._folder, self._wanted = opened.written, opened.host, folder, wanted
        self._place = opened.base
        self._is_copy = opened.is_copy
        self._originals = opened.manifest() if opened.is_copy else {}
        root = os.fstat(self._tree.root_fd)
        self._owner = (root.st_uid, root.st_gid) if os.geteuid() == 0 else None
        self._anew: list[str] = []

    def run(self) -> None:
        have = scan(self._tree)
        self._check_originals(have)
        self._remove(have)
        targets = {path for path, entry in self._wanted.items() if entry.kind != "gone"}
        targets |= {path for path in self._originals if path not in self._wanted}
        ordered = sorted(targets, key=lambda path: path.split("/") if path else [])
        have = scan(self._tree)
        for path in ordered:
            if path in self._wanted:
                self._make(path, self._wanted[path], have.get(path))
            elif path not in have:
                self._make_original(path)
        for path in sorted(ordered, key=lambda path: path.count("/") if path else -1, reverse=True):
            entry = self._wanted.get(path)
            if entry is not None and entry.kind == "directory":
                self._finish_folder(path, entry.mode, entry.mtime_ns, entry.marks)
            elif entry is None and self._originals[path].kind == "directory":
                self._tree.set_mode(path, self._originals[path].mode & MODE_BITS)
        if not self._is_copy and "" not in self._wanted:
            self._tree.set_mode("", os.fstat(self._host.root_fd).st_mode & MODE_BITS)
        if self._anew:
            self._remember()

    def _fits(self, path: str, now: os.stat_result) -> bool:
        """Whether what is at `path` can stay: the right thing, or a folder or file whose rest is mended later."""
        entry = self._wanted.get(path)
        if entry is not None:
            return entry.kind == kind_of(now)
        if path in self._originals:
            return self._originals[path].is_untouched(now)
        return not path

    def _remove(self, have: Found) -> None:
        removed = ""
        for path in sorted(have, key=lambda path: path.split("/")):
            if (removed and path.startswith(removed + "/")) or self._fits(path, have[path]):
                continue
            original = self._originals.get(path) if path not in self._wanted else None
            if stat.S_ISDIR(have[path].st_mode) and original is not None and original.kind == "directory":
                continue  # another mode only: mended in place
            remove_entry(*self._open(path))
            removed = path
            self._tree.forget()

    def _open(self, path: str) -> tuple[int, str]:
        """Its folder, opened to writing, and its name there."""
        self._tree.make_writable(parent(path))
        return self._tree.place(path)

    def _check_originals(self, have: Found) -> None:
        """Before anything is touched: what must come from the host again is there as it was."""
        for path, seen in self._originals.items():
            if path in self._wanted or (path in have and seen.is_untouched(have[path])):
                continue
            if not seen.is_same(self._host, path, self._host.node(path)):
                name = encode_path(path)
                raise UsageError(
                    f"{name!r} was changed in the folder since the run began, so it cannot be brought back",
                    "apply or discard the run's changes, and run again",
                )

    def _make(self, path: str, entry: Kept, now: os.stat_result | None) -> None:
        if entry.kind == "directory":
            if path and now is None:
                self._make_folder(path)
            return
        at, name = self._open(path)
        if now is not None and self._is_right(path, entry, now):
            return
        remove_entry(at, name)
        times = entry.mtime_ns, entry.mtime_ns
        if entry.kind == "symlink":
            new_symlink(decode_path(entry.target or ""), name, at, self._owner, times)
            return
        if entry.kind == "file":
            with new_file(name, at, entry.mode, self._owner, times) as out:
                self._fill(out, path, entry)
            return
        if entry.kind == "whiteout":
            os.mknod(name, stat.S_IFCHR, 0, dir_fd=at)
        else:
            os.mkfifo(name, 0o600, dir_fd=at)
        if self._owner:
            os.chown(name, *self._owner, dir_fd=at, follow_symlinks=False)
        os.chmod(name, entry.mode, dir_fd=at)

    def _fill(self, out: int, path: str, entry: Kept) -> None:
        if path in self._wanted:
            copy_out(self._folder, entry, out)
            _set_marks(out, entry.marks)
        else:
            with self._host.file(path) as source:
                copy_data(source, out)

    def _is_right(self, path: str, entry: Kept, now: os.stat_result) -> bool:
        if stat.S_IMODE(now.st_mode) != entry.mode:
            return False
        if entry.kind == "symlink":
            node = self._tree.node(path)
            return node is not None and node.target == decode_path(entry.target or "")
        if entry.kind != "file":
            return True
        if now.st_size != entry.size or now.st_mtime_ns != entry.mtime_ns or entry.pieces is not None:
            return False
        with self._tree.file(path) as fd:
            return _digest(fd) == entry.sha256 and marks_of(fd) == entry.marks

    def _make_folder(self, path: str) -> None:
        at, name = self._open(path)
        os.mkdir(name, 0o700, dir_fd=at)
        if self._owner:
            os.chown(name, *self._owner, dir_fd=at)

    def _finish_folder(self, path: str, mode: int, mtime_ns: int, marks: Mapping[str, str]) -> None:
        fd = self._tree.folder(path)
        _set_marks(fd, marks)
        os.utime(fd, ns=(mtime_ns, mtime_ns))
        self._tree.set_mode(path, mode)

    def _make_original(self, path: str) -> None:
        """From the host again, which was found to be as it was."""
        seen = self._originals[path]
        assert seen.kind != "special"
        self._anew.append(path)
        entry = Kept(path=seen.path, kind=seen.kind, mode=seen.mode & MODE_BITS, mtime_ns=seen.mtime_ns,
                     target=seen.target)  # fmt: skip
        self._make(path, entry, None)

    def _remember(self) -> None:
        """The new copies are known again as untouched."""
        for path in self._anew:
            node = self._tree.node(path)
            if node is not None:
                known = {"inode": node.stat.st_ino, "ctime_ns": node.stat.st_ctime_ns}
                self._originals[path] = replace(self._originals[path], **known)
        write_manifest(self._place, self._originals.values())


def _digest(fd: int) -> str:
    digest, at = hashlib.sha256(), 0
    while data := os.pread(fd, CHUNK, at):
        digest.update(data)
        at += len(data)
    return digest.hexdigest()


def _set_marks(fd: int, marks: Mapping[str, str]) -> None:
    have = marks_of(fd)
    for name in have.keys() - marks.keys():
        if name.startswith(MARKS):
            os.removexattr(fd, name)
    for name, value in marks.items():
        if have.get(name) != value:
            os.setxattr(fd, name, bytes.fromhex(value))


def note_holder(run_dir: Path, pid: int | None) -> None:
    """Which process the sandbox of this run hangs on, for `await_gone` of another process."""
    if pid is not None and run_dir.is_dir():
        (run_dir / HOLDER).write_text(json.dumps({"pid": pid, "start": start_time(pid)}))


def forget_holder(run_dir: Path) -> None:
    (run_dir / HOLDER).unlink(missing_ok=True)


def await_gone(run_dir: Path) -> None:
    """Returns when the sandbox of a killed run has ended, and all that was in it; ends it when it has not. Blocks.

    SandboxFailed when it does not go: nothing may be restored under its hands.
    """
    try:
        noted = json.loads((run_dir / HOLDER).read_text())
        pid, start = int(noted["pid"]), int(noted["start"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return
    with suppress(ProcessLookupError, OverflowError):
        fd = os.pidfd_open(pid)
        try:
            if start_time(pid) == start and not _ended(fd, 0.2):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                if not _ended(fd, _END_S):
                    raise SandboxFailed(f"the sandbox of this run is still there (process {pid})", "end it by hand")
        finally:
            os.close(fd)
    forget_holder(run_dir)


def _ended(pidfd: int, patience_s: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(patience_s * 1000))
