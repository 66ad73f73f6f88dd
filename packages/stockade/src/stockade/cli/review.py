"""What a bot changed, drawn for a person."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from stockade.changes import (
    Applied,
    Pending,
    RunFacts,
    apply,
    check_kept,
    discard,
    facts,
    kept_layers,
    pending,
)
from stockade.cli.clipped import MAX_LINE_CHARS
from stockade.cli.safe import hide, one_line, safe_text, screen, some
from stockade.core.changes import Change, FolderLayer, shown_path, what_changed
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, RunStarted
from stockade.core.ports import Differ
from stockade.core.secrets import View, view_of

MAX_DIFF_LINES = 120
MAX_DIFFS = 40
MAX_LISTED = 200
_IN_MEMORY = 8 << 20
_MARKS = {"added": "A", "modified": "M", "deleted": "D", "mode": "m", "type": "T"}


def draw(console: Console, reviewer: Differ, work: Sequence[Pending]) -> None:
    """The diffs in colour, clipped, and a line for each file and for all. Of very many files the first are drawn, and
    every one that should be looked at first.
    """
    every = [(one.layer, change) for one in work for change in one.changes]
    hidden: dict[str, None] = {}
    for layer, change in every[:MAX_DIFFS]:
        diff = reviewer.unified_diff(layer, change)
        hidden |= dict.fromkeys(screen().names(diff))
        _draw_diff(console, screen().text(diff))
    if len(every) > MAX_DIFFS:
        _print(console, Text(f"[... diffs of {len(every) - MAX_DIFFS} more files not shown ...]", "dim"))
    listed = [entry for number, entry in enumerate(every) if number < MAX_LISTED or entry[1].flagged]
    for layer, change in listed:
        _print(console, _stat_line(layer, change))
    if len(listed) < len(every):
        _print(console, Text(f"[... {len(every) - len(listed)} more files not listed ...]", "dim"))
    if hidden:
        _print(console, Text(f"shown as [redacted: ...], unchanged in the files: {one_line(', '.join(hidden))}", "dim"))
    _print(console, Text(stat([change for _, change in every]), "bold"))


def view(events: Sequence[RunEvent], named: Sequence[str]) -> View:
    """How a run on record is shown; what this process shows from now on hides what the run hid, and what is `named`."""
    started = events[0]
    assert isinstance(started, RunStarted)
    found = view_of(started, os.environ, named)
    hide(found.redactor)
    return found


def write_patch(pieces: Iterable[str]) -> None:
    """To standard output byte for byte, whole or not at all.

    UsageError when something in it is to be hidden: with its mark in place of it, a patch would be applied like that.
    """
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as whole:
        for piece in pieces:
            if names := screen().names(piece):
                raise UsageError(
                    f"the diff holds what is to be hidden ({', '.join(names)}), and would be wrong without it",
                    "--show-secrets writes it as it is; on a terminal it is shown masked",
                )
            whole.write(piece.encode(errors="surrogateescape"))
        whole.seek(0)
        shutil.copyfileobj(whole, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def stat(changes: Sequence[Change]) -> str:
    """`2 files changed, 5 lines added, 1 removed; 1 to look at first`."""
    added, removed = sum(change.added_lines for change in changes), sum(change.removed_lines for change in changes)
    words = f"{some(len(changes), 'file')} changed, {some(added, 'line')} added, {removed} removed"
    flagged = sum(1 for change in changes if change.flagged and not change.refused)
    refused = sum(1 for change in changes if change.refused)
    return words + (f"; {flagged} to look at first" if flagged else "") + (f"; {refused} refused" if refused else "")


def place_in_git(layer: FolderLayer) -> str | None:
    """The folder's path from the root of the git repository around it. `git apply` takes the paths of a patch from
    there, and passes over those it does not find in silence. None for a root, and where there is no repository.
    """
    folder = Path(layer.host)
    root = next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)
    return str(folder.relative_to(root)) if root != folder else None


def name_left_out(console: Console, done: Applied) -> None:
    """The changes that were not applied, each with its reason."""
    for change in done.refused:
        _print(console, Text(f"not applied: {one_line(change.path)}: {one_line(change.refused or '')}", "red"))
    for path, reason in done.conflicts.items():
        _print(console, Text(f"not applied: {one_line(path)}: {reason}", "red"))
    for change in done.flagged:
        _print(console, Text(f"not applied yet: {one_line(change.path)}: {one_line(change.flagged or '')}", "yellow"))


def _stat_line(layer: FolderLayer, change: Change) -> Text:
    lines = what_changed(change)
    kind = "" if change.entry == "file" else f" {change.entry}"
    text = Text(f" {_MARKS[change.kind]} {one_line(shown_path(layer.inside, change.path))}{kind} {lines}")
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


__all__ = ["Applied", "Pending", "RunFacts", "apply", "check_kept", "discard", "draw", "facts", "kept_layers",
           "name_left_out", "pending", "place_in_git", "shown_path", "stat", "view", "write_patch"]  # fmt: skip
