"""What becomes of the changes of a run, as clients say: the diff with its tag, apply, undo, discard. The same code as
the command line's, in a thread.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

import anyio
from anyio import from_thread, to_thread

from stockade import changes
from stockade.changes import Pending
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent
from stockade.core.secrets import View
from stockade.run_lock import cleanup
from stockade.runtime import sandboxes
from stockade.runtime.resume import bring_back
from stockade.server.colouring import coloured
from stockade.server.live import Conflicting
from stockade.server.models import Chosen, Decided, Diff, DiffFile, FileEntry, FileList
from stockade.server.runs import NotFound, Runs
from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.overlay import HostSide, listing
from stockade_sandbox.overlay.diff import TEXT_BYTES, is_binary
from stockade_sandbox.overlay.safe_fs import LARGE, decode_path, encode_path, join
from stockade_sandbox.policy import WORKSPACE
from stockade_sandbox.port import Differ
from stockade_sandbox.results import Decision, FolderLayer, Moved, shown_path

T = TypeVar("T")
Record = Callable[[RunEvent], None]
MAX_FILES = 2000
MAX_CACHES = 100
MAX_PATCH = 200_000


class Outdated(UsageError):
    """What was reviewed is not what there is now. Nothing was written."""


class Unmatched(UsageError):
    """Nobody said which changes are meant."""


class Changes:
    """Of a run that is over, or, without `record` and only to look at, of one that is under way. `record` puts an event
    on record, from this thread.
    """

    def __init__(self, run_id: str, events: list[RunEvent], record: Record | None) -> None:
        self._run_id, self._put, self._reviewer = run_id, record, sandboxes.reviewer()
        self._events = events

    def _record(self, event: RunEvent) -> None:
        assert self._put is not None
        self._put(event)

    def diff(self, view: View, *, colours: bool = False) -> Diff:
        """What is still to be decided on. UsageError where a secret in it could not be masked."""
        work = self._pending()
        files, names = self._shown(self._reviewer, work, view, colours=colours)
        applied, undone = changes.applied_and_undone(self._events)
        caches = changes.left_out(self._reviewer, work)
        return Diff(
            etag=self._etag(work), files=files, masked=names, applied=tuple(sorted(applied)[:MAX_FILES]),
            undone=() if work else tuple(sorted(undone)[:MAX_FILES]), caches=dict(caches.most_common(MAX_CACHES)),
        )  # fmt: skip

    def host_diff(self, view: View) -> Diff:
        """What else than the run changed in the folder, of what the run changed too."""
        host, work = HostSide(), self._pending()
        files, names = self._shown(host, changes.pending(host, self._layers), view)
        return Diff(etag=self._etag(work), files=files, masked=names)

    def _shown(
        self, differ: Differ, work: Iterable[Pending], view: View, *, colours: bool = False
    ) -> tuple[tuple[DiffFile, ...], tuple[str, ...]]:
        """Files with what is hidden masked, and the names of that."""
        names, files = dict[str, None](), list[DiffFile]()
        view.check_files()
        for one in work:
            renames = differ.renames(one.layer, one.changes)
            for change in one.changes[: MAX_FILES - len(files)]:
                patch = differ.unified_diff(one.layer, change, renames.get(change.path))
                names |= dict.fromkeys(view.redactor.names(patch))
                path = shown_path(one.layer.inside, change.path)
                shown = view.redactor.text(patch)[:MAX_PATCH]
                files.append(DiffFile(path=path, folder=one.layer.host, change=change, patch=shown))
        if colours:
            pieces = coloured([(one.path, one.patch) for one in files])
            files = [one.model_copy(update={"colours": found}) for one, found in zip(files, pieces, strict=True)]
        return tuple(files), tuple(names)

    def file(self, path: str, view: View, *, raw: bool = False) -> bytes:
        """A file as the run sees it, with its secrets masked. `raw`: exactly that, whatever it is; UsageError where a
        secret is in it. NotFound where there is no file.
        """
        view.check_files()
        if (data := self._content(path)) is None:
            raise NotFound(f"there is no file {path} of at most {LARGE >> 20} MiB", "GET .../files lists them")
        masked = view.redactor.raw(data)
        if raw:
            if masked != data:
                raise UsageError(f"{path} holds a secret, and is not sent", "apply it at the server")
        elif is_binary(data) or len(data) > TEXT_BYTES:
            raise UsageError(f"{path} is no text that can be shown", "with ?raw=true its bytes are sent")
        return masked

    def _content(self, path: str) -> bytes | None:
        layer, below = self._place(path)
        return listing.read_file(layer, below, LARGE) if layer is not None and below else None

    def files(self, folder: str) -> FileList:
        """NotFound where it is no folder."""
        layer, below = self._place(folder)
        found = listing.list_folder(layer, below) if layer is not None else None
        at = (
            encode_path(below)
            if layer is None or layer.inside == WORKSPACE
            else shown_path(layer.inside, encode_path(below))
        )
        others = [one.inside for one in self._layers if one.inside != WORKSPACE] if folder in ("", ".") else []
        if found is None and not others:
            raise NotFound(f"there is no folder {folder or WORKSPACE}", "GET .../files names them, from the first on")
        entries = [FileEntry(path=inside, kind="directory") for inside in others]
        entries += [
            FileEntry(path=join(at.rstrip("/"), one.name), kind=one.kind, size=one.size, target=one.target)
            for one in found or ()
        ]
        return FileList(entries=tuple(entries[:MAX_FILES]), left_out=max(0, len(entries) - MAX_FILES))

    def _place(self, path: str) -> tuple[FolderLayer | None, str]:
        """The folder of the sandbox that a path is in, and where in it, as the file system spells it. None: in none."""
        if self._put is not None:
            self._settle()
        clean = os.path.normpath(os.path.join(WORKSPACE, decode_path(path)))
        for layer in sorted(self._layers, key=lambda one: len(one.inside), reverse=True):
            if clean == layer.inside or clean.startswith(f"{layer.inside}/"):
                return layer, clean[len(layer.inside) + 1 :]
        return None, ""

    def apply(self, etag: str | None, chosen: Chosen) -> Decided:
        """Outdated when `etag` is not that of the changes now; `*` is any. Unmatched for none at all."""
        if etag is None:
            raise Unmatched("an apply says which changes it means", "If-Match: the ETag of GET .../diff")
        if not (work := self._pending()):
            moved = changes.move(self._reviewer, self._layers, back=False, force=chosen.force, record=self._decision)
            return self._moved(moved)
        if etag not in ("*", self._etag(work)):
            raise Outdated("the changes are not those of that ETag any more", "look at GET .../diff again")
        work = [replace(one, reviewed=self._reviewer.digests(one.layer, one.changes)) for one in work]
        if chosen.paths is not None:
            work = self._only(work, chosen.paths)
        done = changes.Applied()
        try:
            changes.apply(
                self._reviewer, work, done, flagged=chosen.flagged, force=chosen.force, merge=chosen.merge,
                record=self._decision,
            )  # fmt: skip
            changes.discard_decided(self._reviewer, self._layers)
        finally:
            cleanup(self._run_id)
        left = {change.path: change.refused or "" for change in done.refused} | done.conflicts
        left |= {change.path: f"{change.flagged}: it takes `flagged`, or its name" for change in done.held}
        return Decided(paths=tuple(done.paths), left=left)

    def undo(self, paths: Iterable[str] | None, *, force: bool) -> Decided:
        """All, or what is at these paths and below. What was edited since stays, unless `force`."""
        self._settle()
        only = None if paths is None else changes.applied_at(self._events, map(_recorded, paths))
        return self._moved(
            changes.move(self._reviewer, self._layers, back=True, only=only, force=force, record=self._decision)
        )

    def discard(self, etag: str | None, only: Iterable[str] | None) -> Decided:
        """All that was not applied is thrown away, or what is at the paths `only` and below. Outdated when that is not
        what `etag` says; None and `*` are any.
        """
        work = self._pending()
        if etag not in (None, "*", self._etag(work)):
            raise Outdated("the changes are not those of that ETag any more", "look at GET .../diff again")
        paths = changes.thrown_away(self._reviewer, work, None if only is None else map(_recorded, only))
        changes.throw_away(self._reviewer, self._layers, work, paths, self._record)
        cleanup(self._run_id)
        return Decided(paths=paths)

    @property
    def _layers(self) -> tuple[FolderLayer, ...]:
        return changes.facts(self._events).layers

    def _settle(self) -> None:
        """What was cut off is completed, and what was lost is said."""
        if changes.went_down(self._events):
            bring_back(self._events)
        self._events = changes.complete(self._reviewer, self._events, self._record)
        changes.check_kept(changes.facts(self._events))

    def _pending(self) -> list[Pending]:
        if self._put is not None:
            self._settle()
        return changes.pending(self._reviewer, self._layers)

    def _decision(self, decision: Decision) -> None:
        self._record(changes.event_of(decision))

    def _moved(self, moved: Moved) -> Decided:
        cleanup(self._run_id)
        return Decided(paths=tuple(moved.paths), left=dict(moved.left))

    def _etag(self, work: Iterable[Pending]) -> str:
        known = [[one.layer.inside, sorted(self._reviewer.digests(one.layer, one.changes).items())] for one in work]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]

    def _only(self, work: list[Pending], paths: Iterable[str]) -> list[Pending]:
        """What is at these paths and below, with what it lies in and the old name of what was renamed."""
        wanted, hit, result = {_recorded(os.path.normpath(path)) for path in paths}, set[str](), list[Pending]()
        for one in work:
            names = {change.path: shown_path(one.layer.inside, change.path) for change in one.changes}
            mine = {path for path, name in names.items() for way in wanted if _is_at(name, way, hit)}
            renames = self._reviewer.renames(one.layer, one.changes)
            mine |= {renames[path].old for path in mine & renames.keys()}
            mine |= {path for path in names if any(other.startswith(f"{path}/") for other in mine)}
            if chosen := tuple(change for change in one.changes if change.path in mine):
                result.append(replace(one, changes=chosen, part=True))
        if missing := wanted - hit:
            raise UsageError(f"nothing was changed at {min(missing)}", "paths are as GET .../diff names them")
        return changes.released(result, wanted)


def _recorded(path: str) -> str:
    """A path as a record has it, and as clients name it."""
    return encode_path(decode_path(path))


def _is_at(name: str, way: str, hit: set[str]) -> bool:
    if found := changes.is_at(name, way):
        hit.add(way)
    return found


async def decide(runs: Runs, run_id: str, work: Callable[[Changes], T]) -> T:
    """About changes of a run that is over; one after the other, as the folder's lock has it."""
    async with runs.alone(run_id):
        found = await runs.store.events(run_id)

        def record(event: RunEvent) -> None:
            from_thread.run(runs.store.append, run_id, [event])

        with anyio.CancelScope(shield=True):  # a half that is cancelled would not be on record
            result = await to_thread.run_sync(lambda: work(Changes(run_id, found, record)))
    runs.wake(run_id)
    return result


async def look(runs: Runs, run_id: str, work: Callable[[Changes], T]) -> T:
    """The same, to look at alone: also while the run is under way, as they are now."""
    if run_id not in runs.live:
        return await decide(runs, run_id, work)
    found = await runs.store.events(run_id)
    try:
        return await to_thread.run_sync(work, Changes(run_id, found, None))
    except (OSError, SandboxFailed) as error:  # a file that went away while it was read
        raise Conflicting(f"the files of run {run_id} change while they are read: {error}", "try again") from None
