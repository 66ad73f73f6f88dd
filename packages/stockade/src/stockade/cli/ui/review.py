"""What a bot changed, drawn for the user; and what becomes of it: applied, thrown away, asked about, or kept."""

import os
import shlex
import shutil
import sys
import tempfile
import termios
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Unpack

from rich.console import Console
from rich.text import Text

from stockade.changes import (
    Applied,
    Pending,
    RunFacts,
    apply,
    check_kept,
    discard,
    discard_decided,
    facts,
    kept_layers,
    pending,
    recording,
    released,
)
from stockade.cli.ui.changeset import Item, draw, files_of, list_files, show_all, some_files, stat
from stockade.cli.ui.console import write_prose
from stockade.cli.ui.picking import Ask, Picker
from stockade.cli.ui.safe import fit_for_terminal, hide, one_line, screen
from stockade.core.errors import UsageError
from stockade.core.events import ChangesDiscarded, RunEvent, RunStarted
from stockade.core.ports import Applying, Reviewer
from stockade.core.secrets import View, view_of
from stockade.runtime.records import SystemClock
from stockade_sandbox.errors import ReviewOutdated
from stockade_sandbox.results import Change, FolderLayer, shown_path

_IN_MEMORY = 8 << 20
CHOICE = "[y]es, [f]iles one by one, [n]ot now, [x] discard, [d]iff, [?], or say what to change:"


def view(events: Sequence[RunEvent], named: Sequence[str]) -> View:
    """How a run on record is shown; what this process shows from now on hides what the run hid, and what is `named`."""
    started = events[0]
    assert isinstance(started, RunStarted)
    found = view_of(started, os.environ, named)
    hide(found.redactor)
    return found


def refuse_hidden(data: str | bytes) -> None:
    """UsageError when something in it is to be hidden: with its mark in place of it, a patch would be applied so."""
    if names := screen().names(data if isinstance(data, str) else data.decode(errors="replace")):
        raise UsageError(
            f"the diff holds what is to be hidden ({', '.join(names)}), and would be wrong without it",
            "--show-secrets writes it as it is; on a terminal it is shown masked",
        )


def write_patch(pieces: Iterable[str], to: BinaryIO | None = None) -> None:
    """To a file, or to standard output, byte for byte, whole or not at all. UsageError as refuse_hidden."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as whole:
        for piece in pieces:
            refuse_hidden(piece)
            whole.write(piece.encode(errors="surrogateescape"))
        whole.seek(0)
        shutil.copyfileobj(whole, to or sys.stdout.buffer)
    (to or sys.stdout.buffer).flush()


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
        write_prose(console, Text(f"not applied: {one_line(change.path)}: {one_line(change.refused or '')}", "red"))
    for path, reason in done.conflicts.items():
        write_prose(console, Text(f"not applied: {one_line(path)}: {reason}", "red"))
    for change in done.held:
        write_prose(
            console, Text(f"not applied yet: {one_line(change.path)}: {one_line(change.flagged or '')}", "magenta")
        )


__all__ = [
    "Applied",
    "Item",
    "Pending",
    "RunFacts",
    "apply",
    "check_kept",
    "discard",
    "discard_decided",
    "draw",
    "facts",
    "files_of",
    "kept_layers",
    "list_files",
    "name_left_out",
    "pending",
    "place_in_git",
    "refuse_hidden",
    "released",
    "show_all",
    "shown_path",
    "some_files",
    "stat",
    "view",
    "write_patch",
]  # fmt: skip


YES = ("y", "yes", "Y", "Yes", "YES")
LATER = "These run by themselves on this machine. Apply them too? [y]es / [N]o, or the paths of some: "


def held_in(work: Iterable[Pending]) -> dict[str, Change]:
    """What would run by itself on this machine, by its path as it is shown."""
    every = ((one, change) for one in work for change in one.changes)
    return {shown_path(one.layer.inside, it.path): it for one, it in every if it.held and not it.refused}


def only_of(work: Iterable[Pending], names: Container[str]) -> list[Pending]:
    """What of it is at these paths, as they are shown."""
    parts = (
        replace(
            one, part=True, changes=tuple(it for it in one.changes if shown_path(one.layer.inside, it.path) in names)
        )
        for one in work
    )
    return [one for one in parts if one.changes]


def named(typed: str | None) -> list[str]:
    """The paths in an answer to that, quoted where they have blanks."""
    try:
        return shlex.split(typed or "")
    except ValueError:
        return []


def ask_person(question: str) -> str | None:
    """What was typed, without blanks around it; None at the end of input. On stderr, so that stdout holds the answer of
    the run only.
    """
    sys.stderr.write(fit_for_terminal(question))
    sys.stderr.flush()
    line = sys.stdin.readline()
    return line.strip() if line else None


_HELP = """\
y - apply all of it
f - go through it file by file and hunk by hunk, as git add -p does
n - not now: it is kept, and nothing of the folder changes (so does Enter)
x - throw it away
d - show every diff, in $PAGER where that is set
or say in several words what is to be changed: the bot goes on with it"""


def kept(run_id: str, why: str = "") -> str:
    """What is said of changes that wait for a decision."""
    return f"Not applied{why}. Review: stockade diff {run_id} · apply: stockade apply {run_id}"


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
        except ReviewOutdated:
            raise
        except UsageError:
            self.keep()
            raise
        name_left_out(self.console, done)
        if done.conflicts:
            write_prose(
                self.console,
                f"your side of it: stockade runs diff --host {self.run_id}; the bot's over yours: "
                f"stockade runs apply --force {self.run_id}",
                "magenta",
            )
        if done.held:
            words = f"look at them, then: stockade runs apply {self.run_id} --only PATH for one, --flagged for all"
            write_prose(self.console, words, "magenta")
        return done

    def discard(self, work: list[Pending]) -> None:
        self.record(ChangesDiscarded(at=SystemClock().now()))
        discard(self.reviewer, [one.layer for one in work])

    def keep(self, why: str = "") -> None:
        write_prose(self.console, kept(self.run_id, why), "magenta")

    def put(self, work: list[Pending]) -> str | None:
        """Show the changes and ask the user until the answer is one. Whatever is not a clear yes changes nothing.

        Returns what the user said to the bot instead, or besides; then the rest is still to be decided on.
        """
        try:
            while work:
                work = [replace(one, reviewed=self.reviewer.digests(one.layer, one.changes)) for one in work]
                draw(self.console, self.reviewer, work, brief=True)
                try:
                    is_over, words = self._decide(work)
                except ReviewOutdated as error:
                    write_prose(self.console, f"{one_line(error.message)}; this is how it is now:", "magenta")
                    is_over, words = False, None
                if is_over:
                    return words
                work = pending(self.reviewer, [one.layer for one in work])
        except KeyboardInterrupt:
            write_prose(self.console, "", "")
            self.keep()
            raise
        return None

    def _decide(self, work: list[Pending]) -> tuple[bool, str | None]:
        """Whether nothing is left to ask about, and words for the bot."""
        assert self.ask is not None
        places = ", ".join(one_line(one.layer.host) for one in work)
        question = f"Apply to {places}? {CHOICE} "
        while True:
            if sys.stdin is not None and sys.stdin.isatty():  # what was typed before is no answer to this
                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
            typed = self.ask(question)
            match (typed or "n").lower():
                case "y" | "yes":
                    self._applied(self.apply(self._agreed(work)))
                    return True, None
                case "f" | "files":
                    picked = Picker(self.console, self.reviewer, self.ask).run(work)
                    if picked.work:
                        self._applied(self.apply(picked.work, flagged=True))
                    if picked.comments:
                        return True, "\n\n".join(picked.comments)
                    if picked.work:
                        return False, None
                case "n" | "no":
                    self.keep()
                    return True, None
                case "x" | "discard":
                    self.discard(work)
                    return True, None
                case "d" | "diff":
                    show_all(self.console, self.reviewer, work)
                case "?" | "h" | "help":
                    write_prose(self.console, _HELP, "dim")
                case words if " " in words:
                    return True, typed
                case _:
                    write_prose(
                        self.console, "one of those letters (? explains them), or several words for the bot", "magenta"
                    )

    def _applied(self, done: Applied) -> None:
        if done.paths:
            write_prose(self.console, "applied; stockade undo takes it back", "green")

    def _agreed(self, work: list[Pending]) -> list[Pending]:
        """With what of it runs by itself on this machine released, as far as the user names it."""
        assert self.ask is not None
        held = held_in(work)
        for path, change in held.items():
            write_prose(self.console, f"{one_line(path)}: {one_line(change.flagged or '')}", "bold magenta")
        typed = self.ask(LATER) if held else None
        return released(work, held if typed in YES else named(typed))
