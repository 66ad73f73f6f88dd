"""What a bot changed and nobody decided on yet: found, applied to the folder, or thrown away."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stockade.core.changes import Change, FolderLayer
from stockade.core.events import (
    ChangesApplied,
    ChangesDiscarded,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    SandboxStarted,
)
from stockade.core.ports import Reviewer


@dataclass(frozen=True, slots=True)
class Pending:
    """A folder with changes that nobody decided on."""

    layer: FolderLayer
    changes: tuple[Change, ...]


@dataclass(slots=True)
class Applied:
    """What `apply` did. `refused` can never be applied; `flagged` were left for a person to look at."""

    paths: list[str] = field(default_factory=list)
    refused: list[Change] = field(default_factory=list)
    flagged: list[Change] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not self.refused and not self.flagged


@dataclass(slots=True)
class RunFacts:
    """What a record says that matters for the changes of its run."""

    started: RunStarted | None = None
    layers: tuple[FolderLayer, ...] = ()
    finished: RunFinished | None = None
    applied: ChangesApplied | None = None
    discarded: ChangesDiscarded | None = None


def facts(events: Sequence[RunEvent]) -> RunFacts:
    found = RunFacts()
    for event in events:
        match event:
            case RunStarted():
                found.started = event
            case SandboxStarted():
                found.layers = event.layers
            case RunResumed():
                found.finished = found.applied = found.discarded = None
            case RunFinished():
                found.finished = event
            case ChangesApplied():
                found.applied = event
            case ChangesDiscarded():
                found.discarded = event
            case _:
                pass
    return found


def kept_layers(layers: Iterable[FolderLayer]) -> list[FolderLayer]:
    """Those that still hold what the bot wrote."""
    return [layer for layer in layers if layer.layer is not None and Path(layer.layer).exists()]


def pending(reviewer: Reviewer, layers: Iterable[FolderLayer]) -> list[Pending]:
    """The folders that differ from the host's."""
    found = [Pending(layer, reviewer.changes(layer)) for layer in kept_layers(layers)]
    return [one for one in found if one.changes]


def apply(reviewer: Reviewer, work: Iterable[Pending], done: Applied, *, flagged: bool, force: bool = False) -> None:
    """Apply what can be applied, noting it in `done` as it goes; a layer with nothing left in it is removed.

    UsageError when a file was changed on the host in the meantime and `force` is False: nothing of that folder is
    written then.
    """
    for one in work:
        chosen = [change for change in one.changes if not change.refused and (flagged or not change.flagged)]
        left = [change for change in one.changes if change not in chosen]
        done.refused += [change for change in left if change.refused]
        done.flagged += [change for change in left if not change.refused]
        if chosen:
            paths = reviewer.apply(one.layer, chosen, force=force)
            done.paths += [shown_path(one.layer, path) for path in paths]
        if not left:
            reviewer.discard(one.layer)


def discard(reviewer: Reviewer, layers: Iterable[FolderLayer]) -> None:
    for layer in kept_layers(layers):
        reviewer.discard(layer)


def shown_path(layer: FolderLayer, path: str) -> str:
    """Relative for the working folder, with its place in the sandbox for others."""
    return path if layer.inside == "/workspace" else f"{layer.inside}/{path}"
