"""What a bot changed and nobody decided on yet: found, applied to the folder, or thrown away."""

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack

from stockade.core.errors import LayerLost, UsageError
from stockade.core.events import (
    ChangesApplied,
    ChangesDiscarded,
    ChangesUndone,
    Checkpoint,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    SandboxStarted,
)
from stockade.core.ports import Applying, Deciding, Differ, Reviewer
from stockade_sandbox.results import Change, Decision, FolderLayer, Moved, shown_path

Record = Callable[[RunEvent], None]
Progress = Callable[[str, int, int], None]
"""Called with what is done, how many entries of it, and of how many."""


def quietly(_what: str, _done: int, _total: int) -> None:
    """A progress that nobody sees."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A folder with changes that nobody decided on.

    `part`: these are some of all that there are, or of some files `contents` instead of all that the bot made of them.
    `reviewed`: the digests of what was looked at, without which nothing is compared.
    """

    layer: FolderLayer
    changes: tuple[Change, ...]
    part: bool = False
    contents: Mapping[str, bytes] = field(default_factory=dict)
    reviewed: Mapping[str, str] | None = None


@dataclass(slots=True)
class Applied:
    """What `apply` did. `refused` can never be applied; `held` would run by themselves on the host, and were left for a
    user to name; `conflicts` are paths that could not be merged with the host's side, with the reason."""

    paths: list[str] = field(default_factory=list)
    refused: list[Change] = field(default_factory=list)
    held: list[Change] = field(default_factory=list)
    conflicts: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return not (self.refused or self.held or self.conflicts)


@dataclass(slots=True)
class RunFacts:
    """What a record says that matters for the changes of its run."""

    started: RunStarted | None = None
    layers: tuple[FolderLayer, ...] = ()
    finished: RunFinished | None = None
    applied: ChangesApplied | None = None
    undone: ChangesUndone | None = None
    discarded: ChangesDiscarded | None = None
    wrote: bool = False
    """Whether anything is known to have been written to the layers and not decided on since."""


FACTUAL = (
    RunStarted, SandboxStarted, Checkpoint, RunResumed, RunFinished, ChangesApplied, ChangesUndone, ChangesDiscarded,
)  # fmt: skip
"""What `facts` looks at; the other events of a run need not be kept for it."""


def facts(events: Sequence[RunEvent]) -> RunFacts:
    result, applied, thrown = RunFacts(), set[str](), set[str]()
    for event in events:
        match event:
            case RunStarted():
                result.started = event
            case SandboxStarted():
                result.wrote = result.wrote and event.layers == _bare(result.layers)
                result.layers = event.layers
            case Checkpoint():
                result.wrote = result.wrote or any(event.files)
            case RunResumed():
                result.finished = result.applied = result.undone = result.discarded = None
                result.layers = tuple(replace(layer, seal=None) for layer in result.layers)
                thrown.clear()
            case RunFinished():
                result.finished, result.wrote = event, bool(event.changes)
                result.layers = _sealed(result.layers, event.seals)
                applied.clear()
            case ChangesApplied():
                result.applied, result.undone = event, None
                applied.update(event.paths)
                result.wrote = result.wrote and _is_left(result, applied | thrown)
            case ChangesUndone():
                applied.difference_update(event.paths)
                result.undone, result.applied = event, result.applied if applied else None
            case ChangesDiscarded() if event.paths:
                thrown.update(event.paths)
                result.layers = tuple(_without(layer, event.paths) for layer in result.layers)
                result.wrote = result.wrote and _is_left(result, applied | thrown)
            case ChangesDiscarded():
                result.discarded, result.wrote = event, False
            case _:
                pass
    return result


def _is_left(result: RunFacts, decided: Container[str]) -> bool:
    """Whether something that the run wrote is not among these: once all was applied, the journals have it."""
    changed = result.finished.changes if result.finished else ()
    return any(not any(name in decided for name in _shown(result.layers, change)) for change in changed)


def _without(layer: FolderLayer, paths: Iterable[str]) -> FolderLayer:
    """The layer without these changes, of whichever folder they are."""
    start = shown_path(layer.inside, "")
    inner = (path[len(start) :] for path in paths if path.startswith(start) and (start or not path.startswith("/")))
    return replace(layer, without=(*layer.without, *inner))


def _shown(layers: Iterable[FolderLayer], change: Change) -> set[str]:
    """How a change can be called when it is applied: of which folder it is, the end of a run does not say."""
    return {change.path, *(shown_path(layer.inside, change.path) for layer in layers)}


def went_down(events: Sequence[RunEvent]) -> bool:
    """Whether the machine went down with this run: it has no end, and its last event is from before the machine was up.

    What it wrote may be anything then; runtime.resume.bring_back makes it what it was.
    """
    up_since = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return facts(events).finished is None and events[-1].at <= up_since


def recording(record: Record) -> Callable[[Decision], None]:
    """Puts a decision on record as an event."""
    return lambda decision: record(event_of(decision))


def event_of(decision: Decision) -> ChangesApplied | ChangesUndone:
    kind = ChangesUndone if decision.back else ChangesApplied
    return kind(at=decision.at, paths=decision.paths)


def _bare(layers: Iterable[FolderLayer]) -> tuple[FolderLayer, ...]:
    return tuple(replace(layer, seal=None, without=()) for layer in layers)


def _sealed(layers: tuple[FolderLayer, ...], seals: Sequence[str | None]) -> tuple[FolderLayer, ...]:
    padded = [*seals, *[None] * len(layers)]
    return tuple(replace(layer, seal=seal) for layer, seal in zip(layers, padded, strict=False))


def kept_layers(layers: Iterable[FolderLayer]) -> list[FolderLayer]:
    """Those that are still there."""
    return [layer for layer in layers if layer.layer is not None and Path(layer.layer).exists()]


def check_kept(found: RunFacts) -> None:
    """LayerLost when what the run wrote, and nobody decided on, is not on this machine any more."""
    if found.wrote and (lost := [layer for layer in found.layers if layer.is_lost]):
        what = f"what the run wrote to {lost[0].host} is gone: there is no {lost[0].layer} on this machine"
        run = found.started.run_id if found.started else "RUN"
        raise LayerLost(
            what,
            f"go on without it: stockade runs resume {run} --from-scratch; or close it: stockade runs discard {run}",
        )


def pending(reviewer: Differ, layers: Iterable[FolderLayer]) -> list[Pending]:
    """The folders that differ from the host's."""
    results = [Pending(layer, reviewer.changes(layer)) for layer in kept_layers(layers)]
    return [one for one in results if one.changes]


def left_out(reviewer: Differ, work: Iterable[Pending]) -> Counter[str]:
    """How many changes of caches are not in it, by the name of the cache."""
    return sum((Counter(reviewer.left_out(one.layer)) for one in work), Counter[str]())


def apply(
    reviewer: Reviewer,
    work: Iterable[Pending],
    done: Applied,
    *,
    flagged: bool,
    **how: Unpack[Applying],
) -> None:
    """Apply what can be applied, noting it in `done` as it goes. With nothing left in any layer they are removed.

    `record` puts on record what is applied, before it is. ChangedOnHost when the host has other content than the run
    met: nothing of that folder is written then. `merge`: what both changed is merged, and what cannot be is left;
    `force`: the bot's is written over the host's.
    """
    over, seen = list[FolderLayer](), list(work)
    for one in seen:
        chosen = [change for change in one.changes if not change.refused and (flagged or not change.held)]
        done.refused += [change for change in one.changes if change.refused]
        done.held += [change for change in one.changes if change.held and not (flagged or change.refused)]
        if how.get("merge") and not how.get("force"):
            left = reviewer.conflicts(one.layer, chosen, merge=True)
            chosen = [change for change in chosen if change.path not in left]
            done.conflicts |= {shown_path(one.layer.inside, path): reason for path, reason in left.items()}
        if chosen:
            how["contents"], how["reviewed"] = one.contents, one.reviewed
            paths = reviewer.apply(one.layer, chosen, **how)
            done.paths += [shown_path(one.layer.inside, path) for path in paths]
        if not reviewer.changes(one.layer) if one.part else len(chosen) == len(one.changes):
            over.append(one.layer)
    if len(over) == len(seen):  # until then the others' place says where to go on
        discard(reviewer, over)


def released(work: Iterable[Pending], names: Container[str]) -> list[Pending]:
    """What of it is held back is so no more where it is one of `names`, as they are shown."""
    result = list[Pending]()
    for one in work:
        shown = ((change, shown_path(one.layer.inside, change.path)) for change in one.changes)
        changes = tuple(replace(change, held=change.held and name not in names) for change, name in shown)
        result.append(replace(one, changes=changes))
    return result


def move(
    reviewer: Reviewer,
    layers: Iterable[FolderLayer],
    *,
    back: bool,
    work: Iterable[Pending] | None = None,
    only: Collection[str] | None = None,
    **how: Unpack[Deciding],
) -> Moved:
    """Take `back` what was applied, as far as it is still so, the last first, all or `only` these paths as they are
    shown; or apply again what was taken back, where the layer is gone, or only `work` of it. `force`: also what was
    edited since.
    """
    result = Moved()
    if back:
        for layer in reversed(list(layers)):
            result.add(reviewer.undo(layer, only, **how))
    elif work is not None:
        for one in work:
            result.add(reviewer.redo(one.layer, one.changes, one.contents, **how))
    else:
        for layer in filter(lambda one: one.is_lost, layers):
            result.add(reviewer.redo(layer, **how))
    return result


def applied_and_undone(events: Iterable[RunEvent]) -> tuple[set[str], set[str]]:
    """The paths that are applied now, and those that were taken back, as paths are shown."""
    applied, undone = set[str](), set[str]()
    for event in events:
        if isinstance(event, ChangesApplied):
            applied.update(event.paths)
            undone.difference_update(event.paths)
        elif isinstance(event, ChangesUndone):
            applied.difference_update(event.paths)
            undone.update(event.paths)
    return applied, undone


def applied_at(events: Iterable[RunEvent], ways: Iterable[str]) -> set[str]:
    """What is applied now at `ways` and below, as paths are shown. UsageError for one at which there is none."""
    names, found = applied_and_undone(events)[0], set[str]()
    for way in ways:
        below = {name for name in names if is_at(name, os.path.normpath(way))}
        if not below:
            raise UsageError(f"nothing is applied at {way}", "paths are as the apply told them")
        found |= below
    return found


def is_at(name: str, way: str) -> bool:
    """Whether a shown path is this one, or below it."""
    return way == "." or f"{name}/".startswith(f"{way}/")


def taken_back(differ: Differ, events: Sequence[RunEvent]) -> list[Pending]:
    """What was applied and is not so now, of layers that are gone: it can be applied again. FolderMoved."""
    if not any(isinstance(event, ChangesUndone) for event in events):
        return []
    work = (Pending(layer, differ.changes(layer)) for layer in facts(events).layers if layer.is_lost)
    return [one for one in work if one.changes]


def complete(reviewer: Reviewer, events: Sequence[RunEvent], record: Record) -> list[RunEvent]:
    """Carry out to its end what a kill cut off, and put on record what it kept from there. The events then."""
    known, missing = {event.at for event in events}, list[RunEvent]()
    for layer in facts(events).layers:
        reviewer.recover(layer)
        missing += [event_of(one) for one in reviewer.decisions(layer) if one.at not in known]
    for event in sorted(missing, key=lambda event: event.at):
        record(event)
    return [*events, *missing]


def discard_decided(reviewer: Reviewer, layers: Sequence[FolderLayer]) -> None:
    """All of a run's layers once nothing in them is to be decided on: one that is gone alone would count as lost."""
    if not pending(reviewer, layers):
        discard(reviewer, layers)


def discard(reviewer: Reviewer, layers: Iterable[FolderLayer]) -> None:
    for layer in kept_layers(layers):
        reviewer.discard(layer)


def thrown_away(reviewer: Differ, work: Iterable[Pending], ways: Iterable[str] | None) -> tuple[str, ...]:
    """What is thrown away with the changes at `ways` and below, as paths are shown: the old name of what was renamed,
    what was removed or replaced around it, and a new folder that nothing would be left in; None is all. UsageError for
    a way at which nothing was changed.
    """
    wanted, hit, result = {"."} if ways is None else {os.path.normpath(way) for way in ways}, set[str](), list[str]()
    for one in work:
        names = {change.path: shown_path(one.layer.inside, change.path) for change in one.changes}
        found = {path: [way for way in wanted if is_at(name, way)] for path, name in names.items()}
        hit.update(way for at in found.values() for way in at)
        mine = {path for path, at in found.items() if at}
        renames = reviewer.renames(one.layer, one.changes)
        mine |= {renames[path].old for path in mine & renames.keys()}
        for change in reversed(one.changes):  # what is in a folder comes behind it
            below = {path for path in names if path.startswith(f"{change.path}/")}
            was_folder = change.kind == "deleted" or (change.kind == "type" and change.entry != "directory")
            goes = bool(below & mine) if was_folder else change.kind != "mode" and bool(below) and below <= mine
            mine |= {change.path} if goes else set()
        result += [names[path] for path in names if path in mine]
    if ways is not None and (missing := wanted - hit or not wanted):
        where = f" at {min(missing)}" if isinstance(missing, set) else ""
        raise UsageError(f"nothing was changed{where}", "paths are as the diff names them")
    return tuple(result)


def throw_away(
    reviewer: Reviewer, layers: Sequence[FolderLayer], work: Sequence[Pending], paths: Collection[str], record: Record
) -> None:
    """On record, then done: these of all changes `work` of a run, as `thrown_away` has them. What it wrote is kept as
    long as something else is to be decided on.
    """
    whole = len(paths) == sum(len(one.changes) for one in work)
    record(ChangesDiscarded(at=time.time(), paths=() if whole else tuple(paths)))
    if whole:
        discard(reviewer, layers)
