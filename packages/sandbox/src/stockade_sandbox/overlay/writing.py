"""Carrying out a journal on a host folder, in either direction, and completing what a kill cut off; see journal.py."""

import ctypes
import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from stockade_sandbox.errors import FolderMoved, UsageError
from stockade_sandbox.locks import lock_within, unlock
from stockade_sandbox.overlay.contents import Contents, set_xattrs
from stockade_sandbox.overlay.discard import remove_entry, remove_tree
from stockade_sandbox.overlay.journal import (
    STAGING,
    Entry,
    Head,
    Journal,
    Look,
    Side,
    all_journals,
    forget_empty,
    journals_for,
    journals_of,
    other,
    staging_of,
    step,
)
from stockade_sandbox.overlay.record import PATIENCE_S
from stockade_sandbox.overlay.safe_fs import DirTree, FolderId, Node, decode_path, encode_path, parent
from stockade_sandbox.records import replace
from stockade_sandbox.results import Change, Decision, FolderLayer, shown_path
from stockade_sandbox.stoppable import Progress, quietly

FSYNC_EACH = 64
"""Above this many files one sync of the whole file system is cheaper."""
_ROOT_MODE = "root-mode"
_CHANGED, _GONE = "it changed while this went on", "its folder is gone"
_MADE_SINCE = "it holds what was made since"
_LOST = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}

T = TypeVar("T")
Chosen = dict[str, Change]
"""Changes by path as the file system spells it, folders before what is in them."""
Record = Callable[[Decision], None]
"""Puts it on record; called once the decision is in the journal, before anything is done about it."""


def removes(change: Change) -> bool:
    return change.kind in ("deleted", "type")


def counted(what: str, items: Collection[T], progress: Progress) -> Iterator[tuple[int, T]]:
    """Each with its number, told as they go."""
    for number, item in enumerate(items):
        progress(what, number, len(items))
        yield number, item


class Exchange:
    """One journal and its host folder, entered for as long as something is moved. `many`: about how many entries.

    A decision that fails in the middle is taken back at once; when that fails too, whoever comes next completes it.
    """

    def __init__(self, host: DirTree, journal: Journal, many: int, progress: Progress) -> None:
        self.host, self.journal, self._progress = host, journal, progress
        self._one_sync = many > FSYNC_EACH
        self.modes: dict[str, int] = {}
        self._root_mode: int | None = None
        self._name = staging_of(journal.place.parent)

    def __enter__(self) -> Self:
        self._root_mode = self.host.closed_mode("")
        if self._root_mode is not None:
            (self.journal.place / _ROOT_MODE).write_text(f"{self._root_mode}")
            self.host.make_writable("")
        with suppress(FileExistsError):
            os.mkdir(self._name, 0o700, dir_fd=self.host.root_fd)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._staging = os.open(self._name, flags, dir_fd=self.host.root_fd)
        self.journal.store.mkdir(mode=0o700, exist_ok=True)
        self._store = os.open(self.journal.store, flags)
        self.contents = Contents(self.host, self._store, self._staging, sync=not self._one_sync)
        step("opened")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._staging)
        os.close(self._store)

    def loosen(self, paths: Iterable[str]) -> None:
        """Note which folders must be opened to writing for these. PermissionError for one that cannot be."""
        for folder in {parent(path) for path in paths}:
            node = self.host.node(folder) if folder else None
            if node is not None and node.kind == "directory" and (mode := self.host.closed_mode(folder)) is not None:
                self.modes[folder] = mode

    def staged(self) -> None:
        """All that was staged and kept is durable."""
        for fd in (self._store, self._staging):
            sync_all(fd) if self._one_sync else os.fsync(fd)
        step("staged")

    def carry_out(
        self,
        layer: FolderLayer,
        layer_ns: int,
        goal: Side,
        entries: list[Entry],
        record: Record | None,
        *,
        again: bool = False,
    ) -> None:
        """Decide that all entries go to `goal` but those that are `left`, and do it. `again`: as Head says."""
        head = Head(host=encode_path(layer.host), inside=layer.inside, folder=FolderId.of(self.host.root_fd), goal=goal,
                    layer_ns=layer_ns, step="decided", at=time.time(), again=again,
                    modes={encode_path(path): mode for path, mode in self.modes.items()})  # fmt: skip
        self.journal.write(head, entries)
        step("decided")
        self.complete(head, entries, record)

    def complete(self, head: Head, entries: list[Entry], record: Record | None = None) -> None:
        """What was decided, from wherever it was cut off."""
        recorded = False
        try:
            if record:
                record(decision_of(head, entries))
                recorded = True
                step("recorded")
            self._move(head, entries)
        except BaseException:
            back = replace(head, goal=other(head.goal), at=time.time())
            self.journal.write(back, entries)
            self._move(back, entries)
            if record and recorded:
                record(decision_of(back, entries))
            raise

    def _move(self, head: Head, entries: list[Entry]) -> None:
        self.modes = {decode_path(path): mode for path, mode in head.modes.items()}
        moving = [(number, entry) for number, entry in enumerate(entries) if not entry.left]
        self._remove(head.goal, moving)
        step("removed")
        self._place(head.goal, moving)
        step("placed")
        self._set_modes()
        self._sync(entry.path for _, entry in moving)
        step("finished")
        for _, entry in moving:
            entry.at = entry.at if entry.left else head.goal
        self.journal.write(replace(head, step="done", modes={}), entries)
        step("done")
        self.clean(entries)

    def _remove(self, goal: Side, moving: list[tuple[int, Entry]]) -> None:
        """What is to go, deepest first; a folder that becomes a file, and what becomes a folder, too."""
        for _, entry in reversed(moving):
            old, new = entry.side(other(goal)), entry.side(goal)
            turns = (old.kind == "directory") != (new.kind == "directory")
            if not entry.content or old.kind == "absent" or not (new.kind == "absent" or turns):
                continue
            path = decode_path(entry.path)
            node = self.host.node(path)
            if node is None or (new.kind != "absent" and self.contents.is_still(new, path, node)):
                continue
            if not self.contents.is_still(old, path, node):
                entry.left = _CHANGED
                continue
            step("remove")
            at, name = self._writable(parent(path)), path.rpartition("/")[2]
            if old.kind != "directory":
                os.unlink(name, dir_fd=at)
                continue
            try:
                os.rmdir(name, dir_fd=at)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                entry.left = _MADE_SINCE

    def _place(self, goal: Side, moving: list[tuple[int, Entry]]) -> None:
        for _, (number, entry) in counted("writing", moving, self._progress):
            if entry.left or entry.side(goal).kind == "absent":
                continue
            try:
                entry.left = self._place_one(number, decode_path(entry.path), entry, goal)
            except OSError as error:
                if error.errno not in _LOST or self._has_folder(decode_path(entry.path)):
                    raise
                entry.left = _GONE

    def _has_folder(self, path: str) -> bool:
        folder = self.host.node(parent(path)) if parent(path) else None
        return not parent(path) or (folder is not None and folder.kind == "directory")

    def _place_one(self, number: int, path: str, entry: Entry, goal: Side) -> str:
        """Why it was left as it is; empty when it is as it is to be."""
        old, new, node = entry.side(other(goal)), entry.side(goal), self.host.node(path)
        if new.kind == "directory":
            if node is not None and node.kind != "directory":
                return _CHANGED
            if node is None and not entry.content:
                return _GONE
            self._make_folder(path, new, node)
            return ""
        if not entry.content:
            if node is None or node.kind != "file":
                return _CHANGED
            if node.mode != new.mode:
                self._chmod(path, new.mode)
            return ""
        if self.contents.is_still(new, path, node):
            return ""
        expected = node is None if old.kind in ("absent", "directory") else self.contents.is_still(old, path, node)
        if not expected:
            return _CHANGED
        step("place")
        at = self._writable(parent(path))
        staged = self.contents.bring(number, goal, new)
        os.rename(staged, path.rpartition("/")[2], src_dir_fd=self._staging, dst_dir_fd=at)
        return ""

    def _make_folder(self, path: str, new: Look, node: Node | None) -> None:
        if node is None:
            os.mkdir(path.rpartition("/")[2], 0o700, dir_fd=self._writable(parent(path)))
            fd = self.host.folder(path)
            if new.owner is not None:  # the host's own, as it was
                with suppress(PermissionError):
                    os.fchown(fd, *new.owner)
                os.fchmod(fd, stat.S_IRWXU | new.mode & (stat.S_ISUID | stat.S_ISGID))
            elif self.contents.owner:
                uid, gid = self.contents.owner
                os.fchown(fd, uid, -1 if os.fstat(fd).st_mode & stat.S_ISGID else gid)
            set_xattrs(fd, new.xattrs or {})
        self.modes[path] = new.mode

    def _writable(self, path: str) -> int:
        """The folder, opened to its owner when its mode forbids writing; `_set_modes` sets the mode back."""
        mode = self.host.make_writable(path)
        if mode is not None:
            self.modes.setdefault(path, mode)
        return self.host.folder(path)

    def _set_modes(self) -> None:
        """The modes of folders, which would have been in the way before: deepest first."""
        for path in sorted(filter(None, self.modes), key=lambda path: path.count("/"), reverse=True):
            node = self.host.node(path)
            if node is not None and node.kind == "directory":
                self.host.set_mode(path, self.modes[path])
        self.host.forget()

    def _chmod(self, path: str, mode: int) -> None:
        at, name = self.host.place(path)
        pin = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        try:
            if not stat.S_ISREG(os.fstat(pin).st_mode):
                raise OSError(errno.EINVAL, "not a regular file any more", encode_path(path))
            os.chmod(f"/proc/self/fd/{pin}", mode)
        finally:
            os.close(pin)

    def _sync(self, paths: Iterable[str]) -> None:
        if self._one_sync:
            sync_all(self.host.root_fd)
        for folder in () if self._one_sync else sorted({parent(decode_path(path)) for path in paths}):
            node = self.host.node(folder) if folder else None
            if not folder or (node is not None and node.kind == "directory"):
                os.fsync(self.host.folder(folder))

    def clean(self, entries: list[Entry]) -> None:
        """Away with what neither direction needs: what is in its place now, and what was prepared for nothing."""
        needed = {f"{number}.{other(entry.at)}" for number, entry in enumerate(entries) if entry.content}
        for name in os.listdir(self._store):
            if name.removesuffix(".inode") not in needed:
                os.unlink(name, dir_fd=self._store)
        step("cleaned")
        self.close_root()

    def abandon(self, entries: list[Entry] | None = None) -> None:
        """Nothing was decided: all is as before. Without `entries` the journal itself goes."""
        if entries is not None:
            self.clean(entries)
        else:
            self.close_root()
            remove_tree(self.journal.place)
            forget_empty(self.journal.place.parent)

    def close_root(self) -> None:
        """The staging folder goes, and with it the sign that something was under way."""
        mark = self.journal.place / _ROOT_MODE
        if self._root_mode is None and mark.exists():
            self._root_mode = int(mark.read_text())
        remove_entry(self.host.root_fd, self._name)
        if self._root_mode is not None:
            self.host.set_mode("", self._root_mode)
        mark.unlink(missing_ok=True)


def decision_of(head: Head, entries: Iterable[Entry]) -> Decision:
    """For the run's record. Its time tells whether it is there already."""
    paths = tuple(shown_path(head.inside, entry.path) for entry in entries if not entry.left)
    return Decision(at=head.at, paths=paths, back=head.goal == "before")


def sync_all(fd: int) -> None:
    """Everything of the file system that `fd` is on, to disk."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(fd) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def alone(host: DirTree) -> Iterator[None]:
    """Nobody else applies to this folder meanwhile, nor takes what is staged in it for leftovers."""
    if not lock_within(host.root_fd, PATIENCE_S):
        raise UsageError(f"another run is being applied to {host.root}", "apply again after it")
    try:
        yield
    finally:
        unlock(host.root_fd)


def recover(host: DirTree, runs: Path, own: FolderLayer | None = None) -> bool:
    """Complete what was decided about this folder and cut off, take back what was prepared for nothing. Be `alone`.

    `runs` has a folder for each run; `own` is a layer whose journals are looked at even where the folder has no sign of
    them. Whether anything was decided.
    """
    names = [name for name in os.listdir(host.root_fd) if name.startswith(STAGING)]
    places = {name: journals_for(name, runs) for name in names}
    if own is not None:
        mine = journals_of(own)
        places[staging_of(mine)] = mine
    decided = False
    for name, journals in places.items():
        every = all_journals(journals) if journals is not None else []
        for journal in sorted(every, key=_is_done):  # what is staged is of the one that is not, and goes with the first
            decided |= _recover_one(host, journal, is_marked=name in names)
        if journals is not None:
            forget_empty(journals)
        if name in names:
            mode = host.make_writable("")
            remove_entry(host.root_fd, name)
            if mode is not None:
                host.set_mode("", mode)
    return decided


def _is_done(journal: Journal) -> bool:
    head = journal.head()
    return head is None or head.step == "done"


def _recover_one(host: DirTree, journal: Journal, *, is_marked: bool) -> bool:
    """Whether there was a decision to complete."""
    head = journal.head()
    if head is not None and head.step == "done" and not is_marked and not (journal.place / _ROOT_MODE).exists():
        return False
    if head is not None and not head.folder.is_of(host.root_fd):
        if is_marked and head.step == "decided":
            raise FolderMoved(
                f"{host.root} holds what an apply to {head.host} left when it was cut off, and may be half of it",
                f"if it was moved, move it back; to leave it as it is, remove {staging_of(journal.place.parent)} in it",
            )
        return False
    with Exchange(host, journal, FSYNC_EACH + 1, quietly) as exchange:
        if head is None:
            exchange.abandon()
        elif head.step == "done":
            exchange.clean(journal.entries())
        else:
            exchange.complete(head, journal.entries())
            return True
    return False
