"""The folders that a client has sent to its sandbox: where they lie here, and what was written to them there."""

import errno
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import anyio
import anyio.to_thread

from stockade_sandbox.backends.remote.folders import Entry, Taking, entry_of, spooled, write_tar
from stockade_sandbox.errors import SandboxFailed, UsageError
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.overlay.paths import RECEIVED
from stockade_sandbox.overlay.prepare import survey
from stockade_sandbox.overlay.safe_fs import MODE_BITS, DirTree, decode_path, parent
from stockade_sandbox.overlay.snapshots import Snapshots
from stockade_sandbox.overlay.store import KEPT, Kept, copy_out, read_snapshot
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import Sandbox
from stockade_sandbox.results import FolderLayer

Seen = dict[str, Kept | None]
"""What a sandbox sees of a folder, by path: what was written, None for what is as it was sent."""
_TRUSTED, _OPAQUE = "trusted.overlay.", ".overlay.opaque"


class Inbox:
    """Of one sandbox: `wanted` are the numbers of the folders that are to come, below `box`."""

    def __init__(self, box: Path, wanted: tuple[int, ...]) -> None:
        self._box, self.wanted = box, wanted
        self._here: set[int] = set()
        self._turn = anyio.Lock()
        self.all_here = anyio.Event()
        if not wanted:
            self.all_here.set()

    def place(self, number: int) -> Path:
        return self._box / RECEIVED / str(number)

    async def take(self, number: int, pieces: AsyncIterator[bytes]) -> None:
        """A whole folder; one that is here already stays as it is. UsageError, ActionFailed; SandboxFailed."""
        if number not in self.wanted:
            raise UsageError(f"no folder {number} was announced", 'name it in "sent"')
        async with self._turn:
            if number in self._here:
                return
            place = self.place(number)
            try:
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=place.parent) as file:
                    await spooled(pieces, file)
                    await anyio.to_thread.run_sync(_unpack, file, place)
            except OSError as error:
                raise _failed(error, "a folder cannot be taken in") from error
            self._here.add(number)
            if self._here.issuperset(self.wanted):
                self.all_here.set()

    def given(self, policy: Policy) -> Policy:
        """With where the folders lie here."""
        rules = ((number in self.wanted, self.place(number), rule) for number, rule in enumerate(policy.folders))
        return replace(policy, folders=tuple(replace(rule, host=str(at)) if sent else rule for sent, at, rule in rules))

    def folders(self, box: Sandbox) -> dict[int, "SentFolder"]:
        """Of the sandbox that was given them. Blocks. SandboxFailed where there is no layer."""
        found = dict[int, SentFolder]()
        for number in self.wanted:
            place = str(self.place(number).resolve())
            layer = next((one for one in box.layers if one.host == place and one.layer is not None), None)
            if layer is None:
                raise SandboxFailed(f"the sandbox {box.backend} keeps no layer of a folder that was sent")
            found[number] = SentFolder(layer, lambda: getattr(box, "host_pid", None))
        return found

    async def remove(self) -> None:
        if self._box.exists():
            await anyio.to_thread.run_sync(remove_tree, self._box)


def _unpack(file: BinaryIO, place: Path) -> None:
    file.seek(0)
    if place.exists():  # an attempt before this one failed
        remove_tree(place)
    place.mkdir(mode=0o755)
    Taking(place).take(file)


def _failed(error: OSError, what: str) -> SandboxFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SandboxFailed(f"the disk of the serving machine is full: {what}", "free some space there")
    return SandboxFailed(f"{what}: {error.strerror}")


class SentFolder:
    """One that came, and the layer over it. Its methods block; one at a time."""

    def __init__(self, layer: FolderLayer, guard: Callable[[], int | None]) -> None:
        self.turn = anyio.Lock()
        self._place = Path(str(layer.layer))
        self._host = Path(layer.host)
        self._snapshots = _Written(layer, None, 1, guard)
        with DirTree(self._host) as tree:
            self._base = frozenset(survey(tree).nodes)

    def now(self, since: str) -> str:
        """The name of what is written now; empty where nothing was. UsageError where `since` is no snapshot of it."""
        try:
            read_snapshot(self._place / KEPT, since or None)
        except SandboxFailed as error:
            raise UsageError(f"since: {error.message}", "give what Stockade-Snapshot said") from None
        if not self._snapshots.unchanged():
            self._snapshots.take()
        return self._snapshots.name or ""

    def close(self) -> None:
        self._snapshots.close()

    def tell(self, since: str, name: str, out: BinaryIO) -> None:
        """What leads from snapshot `since` to `name`, as a tar. SandboxFailed where one is not known."""
        before, after = (seen(self._base, read_snapshot(self._place / KEPT, one or None)) for one in (since, name))
        with DirTree(self._host) as tree:
            write_tar(self._differences(tree, before, after), out)

    def _differences(self, tree: DirTree, before: Seen, after: Seen) -> Iterator[Entry]:
        for path in sorted(before.keys() - after.keys(), key=_parts):
            above = parent(path)
            if not above or above in after:
                yield Entry(path, "gone")
        for path in sorted(after, key=_parts):
            kept = after[path]
            if path in before and before[path] == kept:
                continue
            if kept is not None:
                yield self._entry(path, kept)
            elif (node := tree.node(path)) is not None:
                yield entry_of(tree, path, node)

    def _entry(self, path: str, kept: Kept) -> Entry:
        assert kept.kind in ("file", "directory", "symlink", "fifo")

        @contextmanager
        def data() -> Iterator[int]:
            with tempfile.TemporaryFile(dir=self._place) as file:
                copy_out(self._place / KEPT, kept, file.fileno())
                os.lseek(file.fileno(), 0, os.SEEK_SET)
                yield file.fileno()

        target = decode_path(kept.target or "")
        read = data if kept.kind == "file" else None
        return Entry(path, kept.kind, kept.mode & MODE_BITS, kept.mtime_ns, target, kept.size, read)


class _Written(Snapshots):
    """Where the folder came from its base is known already."""

    def _note(self, *_: object) -> None:
        return


def _parts(path: str) -> list[str]:
    return path.split("/")


def seen(base: frozenset[str], entries: Mapping[str, Kept]) -> Seen:
    """What is seen of a folder with these `base` paths under the entries of an overlay's upper layer, or of a copy."""
    written = {decode_path(path): entry for path, entry in entries.items() if path}
    marks = [mark for entry in entries.values() for mark in entry.marks]
    prefix = _TRUSTED if any(mark.startswith(_TRUSTED) for mark in marks) else ""
    found, hidden = Seen(), ""
    for path in sorted({*base, *written}, key=_parts):
        if hidden and not path.startswith(f"{hidden}/"):
            hidden = ""
        entry = written.get(path)
        if entry is None:
            if not hidden:
                found[path] = None
            continue
        is_there = entry.kind not in ("whiteout", "gone")
        if is_there:
            found[path] = entry
        opaque = any(mark.startswith(prefix) and mark.endswith(_OPAQUE) for mark in entry.marks)
        if not hidden and (entry.kind != "directory" or opaque):
            hidden = path
    return found
