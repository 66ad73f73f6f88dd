"""What a bot changed, drawn for the user; and what becomes of it: applied, thrown away, asked about, or kept."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import anyio
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
    recording,
)
from stockade.cli import flags
from stockade.cli.ui.console import write_line
from stockade.cli.ui.drawing import MAX_LINE_CHARS
from stockade.cli.ui.safe import fit_for_terminal, hide, one_line, safe_text, screen, some
from stockade.core.errors import UsageError
from stockade.core.events import ChangesDiscarded, RunEvent, RunStarted
from stockade.core.ports import Applying, Differ, Reviewer, RunStore
from stockade.core.secrets import View, view_of
from stockade.runtime import records
from stockade.runtime.records import SystemClock
from stockade.runtime.settings import Settings
from stockade_sandbox.results import Change, FolderLayer, shown_path, what_changed

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
        write_line(console, Text(f"[... diffs of {len(every) - MAX_DIFFS} more files not shown ...]", "dim"))
    listed = [entry for number, entry in enumerate(every) if number < MAX_LISTED or entry[1].flagged]
    for layer, change in listed:
        write_line(console, _stat_line(layer, change))
    if len(listed) < len(every):
        write_line(console, Text(f"[... {len(every) - len(listed)} more files not listed ...]", "dim"))
    if hidden:
        write_line(
            console, Text(f"shown as [redacted: ...], unchanged in the files: {one_line(', '.join(hidden))}", "dim")
        )
    write_line(console, Text(stat([change for _, change in every]), "bold"))


@contextmanager
def on_record(values: Mapping[str, Any]) -> Iterator[tuple[RunStore, Settings]]:
    """The runs on record and the settings, as a command's flags say; closed at the end."""
    settings = flags.settings(flags.given(values))
    store = records.read_store(settings.options.store)
    try:
        yield store, settings
    finally:
        anyio.run(store.close)


def history(values: Mapping[str, Any], run: str) -> tuple[list[RunEvent], Settings]:
    """The events of one run on record. UsageError when there is none that `run` names."""
    with on_record(values) as (store, settings):
        return anyio.run(store.events, anyio.run(store.find, run)), settings


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
        write_line(console, Text(f"not applied: {one_line(change.path)}: {one_line(change.refused or '')}", "red"))
    for path, reason in done.conflicts.items():
        write_line(console, Text(f"not applied: {one_line(path)}: {reason}", "red"))
    for change in done.flagged:
        write_line(
            console, Text(f"not applied yet: {one_line(change.path)}: {one_line(change.flagged or '')}", "yellow")
        )


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
        write_line(console, Text(safe_text(line[:MAX_LINE_CHARS]), _style(line)))
    if len(lines) > MAX_DIFF_LINES:
        write_line(console, Text(f"[... {len(lines) - MAX_DIFF_LINES} lines not shown ...]", "dim"))


def _style(line: str) -> str:
    if line.startswith(("+++", "---", "diff ", "index ", "new ", "deleted ", "old ", "rename ", "Binary ")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}.get(line[:1], "")


__all__ = ["Applied", "Pending", "RunFacts", "apply", "check_kept", "discard", "draw", "facts", "kept_layers",
           "name_left_out", "pending", "place_in_git", "shown_path", "stat", "view", "write_patch"]  # fmt: skip


YES = ("y", "yes", "Y", "Yes", "YES")
Ask = Callable[[str], str | None]
"""Shows a question and returns what was typed; None at the end of input."""


def ask_person(question: str) -> str | None:
    """On stderr, so that stdout holds the answer of the run only."""
    sys.stderr.write(fit_for_terminal(question))
    sys.stderr.flush()
    line = sys.stdin.readline()
    return line.strip() if line else None


@dataclass(frozen=True, slots=True)
class Decider:
    """For one run. `record` puts an event on disk; `ask` is None when nobody can be asked."""

    run_id: str
    console: Console
    reviewer: Reviewer
    record: Callable[[RunEvent], None]
    ask: Ask | None = None

    def apply(self, work: list[Pending], *, flagged: bool = False, **how: Unpack[Applying]) -> Applied:
        """Apply, record, name what was left out. UsageError on conflicts, after recording what was applied before."""
        done = Applied()
        how["record"] = recording(self.record)
        try:
            apply(self.reviewer, work, done, flagged=flagged, **how)
        except UsageError:
            self.keep()
            raise
        name_left_out(self.console, done)
        if done.conflicts:
            write_line(
                self.console,
                f"your side of it: stockade runs diff --host {self.run_id}; the bot's over yours: "
                f"stockade runs apply --force {self.run_id}",
                "yellow",
            )
        if done.flagged:
            write_line(self.console, f"look at them, then: stockade runs apply {self.run_id} --flagged", "yellow")
        return done

    def discard(self, work: list[Pending]) -> None:
        self.record(ChangesDiscarded(at=SystemClock().now()))
        discard(self.reviewer, [one.layer for one in work])

    def keep(self, why: str = "") -> None:
        write_line(self.console, f"{why}changes kept: stockade runs diff|apply|discard {self.run_id}", "yellow")

    def put(self, work: list[Pending]) -> str | None:
        """Ask the user until the answer is one. Whatever is not a clear yes changes nothing. Several words are for the
        bot, and returned: nothing is decided then.
        """
        assert self.ask is not None
        flagged = any(change.flagged and not change.refused for one in work for change in one.changes)
        places = ", ".join(one_line(one.layer.host) for one in work)
        question = f"Apply to {places}? [y]es, [n]ot now, [x] discard, [d]iff, or say what to change: "
        while True:
            try:
                typed = self.ask(question)
            except KeyboardInterrupt:
                write_line(self.console, "", "")
                self.keep()
                raise
            match typed.lower() if typed else typed:
                case "y" | "yes":
                    if self.apply(work, flagged=flagged and self._agreed(work)).paths:
                        write_line(self.console, "applied; stockade undo takes it back", "green")
                    return None
                case "x":
                    self.discard(work)
                    return None
                case "d" | "diff":
                    draw(self.console, self.reviewer, work)
                case None | "" | "n" | "no" | "not now":
                    self.keep()
                    return None
                case words if len(words.split()) > 1:
                    return typed
                case _:
                    write_line(self.console, "one of those letters, or several words for the bot", "dim")

    def _agreed(self, work: list[Pending]) -> bool:
        """Whether what would run on this machine later may be applied too."""
        assert self.ask is not None
        for one in work:
            for change in one.changes:
                if change.flagged and not change.refused:
                    write_line(self.console, f"{one_line(change.path)}: {one_line(change.flagged)}", "bold yellow")
        return self.ask("These could run on this machine later. Apply them too? [y]es / [N]o: ") in YES
