"""What becomes of the changes when a run is over: applied, thrown away, asked about, or kept for later."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Unpack

from rich.console import Console
from rich.text import Text

from stockade.cli import review
from stockade.cli.safe import one_line
from stockade.core.errors import UsageError
from stockade.core.events import ChangesDiscarded, RunEvent
from stockade.core.ports import Applying, Reviewer
from stockade.runtime.records import SystemClock

Ask = Callable[[str], str | None]
"""Shows a question and returns what was typed; None at the end of input."""


def ask_person(question: str) -> str | None:
    """On stderr, so that stdout holds the answer of the run only."""
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    return line.strip().lower() if line else None


@dataclass(frozen=True, slots=True)
class Decider:
    """For one run. `record` puts an event on disk; `ask` is None when nobody can be asked."""

    run_id: str
    console: Console
    reviewer: Reviewer
    record: Callable[[RunEvent], None]
    ask: Ask | None = None

    def apply(self, work: list[review.Pending], *, flagged: bool = False, **how: Unpack[Applying]) -> review.Applied:
        """Apply, record, name what was left out. UsageError on conflicts, after recording what was applied before."""
        done = review.Applied()
        how["record"] = self.record
        try:
            review.apply(self.reviewer, work, done, flagged=flagged, **how)
        except UsageError:
            self.keep()
            raise
        review.name_left_out(self.console, done)
        if done.conflicts:
            self._say(
                f"your side of it: stockade runs diff --host {self.run_id}; the bot's over yours: "
                f"stockade runs apply --force {self.run_id}",
                "yellow",
            )
        if done.flagged:
            self._say(f"look at them, then: stockade runs apply {self.run_id} --flagged", "yellow")
        return done

    def discard(self, work: list[review.Pending]) -> None:
        self.record(ChangesDiscarded(at=SystemClock().now()))
        review.discard(self.reviewer, [one.layer for one in work])

    def keep(self, why: str = "") -> None:
        self._say(f"{why}changes kept: stockade runs diff|apply|discard {self.run_id}", "yellow")

    def put(self, work: list[review.Pending]) -> None:
        """Ask the person until the answer is one. Whatever is not a clear yes changes nothing."""
        assert self.ask is not None
        flagged = any(change.flagged and not change.refused for one in work for change in one.changes)
        places = ", ".join(one_line(one.layer.host) for one in work)
        question = f"Apply to {places}? [y]es / [N]o, keep for later / [x] throw away / [d]iff again: "
        while True:
            try:
                typed = self.ask(question)
            except KeyboardInterrupt:
                self._say("", "")
                self.keep()
                raise
            match typed:
                case "y" | "yes":
                    if self.apply(work, flagged=flagged and self._agreed(work)).paths:
                        self._say("applied; stockade undo takes it back", "green")
                    return
                case "x":
                    self.discard(work)
                    return
                case "d" | "diff":
                    review.draw(self.console, self.reviewer, work)
                case _:
                    self.keep()
                    return

    def _agreed(self, work: list[review.Pending]) -> bool:
        """Whether what would run on this machine later may be applied too."""
        assert self.ask is not None
        for one in work:
            for change in one.changes:
                if change.flagged and not change.refused:
                    self._say(f"{one_line(change.path)}: {one_line(change.flagged)}", "bold yellow")
        return self.ask("These could run on this machine later. Apply them too? [y]es / [N]o: ") in ("y", "yes")

    def _say(self, words: str, style: str) -> None:
        self.console.print(Text(words, style), soft_wrap=True)
