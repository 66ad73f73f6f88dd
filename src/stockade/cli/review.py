"""What a bot changed: drawn for a person, applied to the folder, or thrown away."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from stockade.cli.clipped import MAX_LINE_CHARS
from stockade.cli.safe import one_line, safe_text
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

MAX_DIFF_LINES = 120
MAX_DIFFS = 40
MAX_LISTED = 200
_MARKS = {"added": "A", "modified": "M", "deleted": "D", "mode": "m", "type": "T"}


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


def draw(console: Console, reviewer: Reviewer, work: Sequence[Pending]) -> None:
    """The diffs in colour, clipped, and a line for each file and for all. Of very many files the first are drawn, and
    every one that should be looked at first.
    """
    every = [(one.layer, change) for one in work for change in one.changes]
    for layer, change in every[:MAX_DIFFS]:
        _draw_diff(console, reviewer.unified_diff(layer, change))
    if len(every) > MAX_DIFFS:
        _print(console, Text(f"[... diffs of {len(every) - MAX_DIFFS} more files not shown ...]", "dim"))
    listed = [entry for number, entry in enumerate(every) if number < MAX_LISTED or entry[1].flagged]
    for layer, change in listed:
        _print(console, _stat_line(layer, change))
    if len(listed) < len(every):
        _print(console, Text(f"[... {len(every) - len(listed)} more files not listed ...]", "dim"))
    _print(console, Text(stat([change for _, change in every]), "bold"))


def stat(changes: Sequence[Change]) -> str:
    """`2 files changed, 5 lines added, 1 removed; 1 to look at first`."""
    added, removed = sum(change.added_lines for change in changes), sum(change.removed_lines for change in changes)
    words = f"{_some(len(changes), 'file')} changed, {_some(added, 'line')} added, {removed} removed"
    flagged = sum(1 for change in changes if change.flagged and not change.refused)
    refused = sum(1 for change in changes if change.refused)
    return words + (f"; {flagged} to look at first" if flagged else "") + (f"; {refused} refused" if refused else "")


def name_left_out(console: Console, done: Applied) -> None:
    """The changes that were not applied, each with its reason."""
    for change in done.refused:
        _print(console, Text(f"not applied: {one_line(change.path)}: {one_line(change.refused or '')}", "red"))
    for change in done.flagged:
        _print(console, Text(f"not applied yet: {one_line(change.path)}: {one_line(change.flagged or '')}", "yellow"))


def _stat_line(layer: FolderLayer, change: Change) -> Text:
    lines = "binary" if change.binary else f"+{change.added_lines} -{change.removed_lines}"
    kind = "" if change.entry == "file" else f" {change.entry}"
    text = Text(f" {_MARKS[change.kind]} {one_line(shown_path(layer, change.path))}{kind} {lines}")
    if change.refused:
        text.append(f"  refused: {one_line(change.refused)}", "bold red")
    elif change.flagged:
        text.append(f"  look first: {one_line(change.flagged)}", "bold yellow")
    return text


def _draw_diff(console: Console, diff: str) -> None:
    lines = diff.removesuffix("\n").split("\n")
    for line in lines[:MAX_DIFF_LINES]:
        _print(console, Text(safe_text(line[:MAX_LINE_CHARS]), _style(line)))
    if len(lines) > MAX_DIFF_LINES:
        _print(console, Text(f"[... {len(lines) - MAX_DIFF_LINES} lines not shown ...]", "dim"))


def _style(line: str) -> str:
    if line.startswith(("+++", "---", "diff ", "index ", "new ", "deleted ", "old ", "rename ", "Binary ")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}.get(line[:1], "")


def _print(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=True)


def _some(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
