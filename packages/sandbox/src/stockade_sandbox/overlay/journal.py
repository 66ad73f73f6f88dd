"""What apply and undo write down before they touch the host's folder, so that a kill leaves nothing half.

Beside a layer `N` lies `N.journal`, which outlives it: a folder for each time that changes of it were applied, with

    journal     one line that says what was decided, then one line for each path: how it was before, how it is after
    store/      for each path, by its number, the content that is not in the folder now: `7.before` or `7.after`

A host's file that is replaced is kept as it is, by a second link, where the state lies on the same file system; else it
is copied. While a decision is carried out, the folder itself holds `.stockade-apply-RUN-N` with what is renamed into
place. Whoever comes next to that folder (`apply`, `undo`, `discard`, a new run) finds it by this name and completes the
decision, or takes back what was prepared for none.

Apply goes from `before` to `after`; undo reads the same journal backwards, and undo of an undo forwards again. The
steps, each named by an audit event `stockade.step` (sys.audit), where a kill may be aimed:

    opened     the folder holds the staging folder; nothing else was touched
    staged     all new content is in it, and what it replaces is kept in the store, durable
    decided    the journal is durable: from here on whoever comes next completes it
    recorded   the event is in the run's record
    remove     (each) before an entry is removed        place      (each) before an entry is put in its place
    removed    all that goes is gone                    placed     all that comes is there
    finished   folders have their modes, all is durable
    done       the journal says so
    cleaned    what is not needed any more is gone from store and staging; then the staging folder goes
    discard    before a layer is renamed to its tombstone
    discarded  after that; what is in a tombstone is removed by whoever comes next
"""

import os
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.overlay.discard import in_runs, remove_tree
from stockade_sandbox.overlay.record import sync_folder, write_file
from stockade_sandbox.overlay.safe_fs import FolderId
from stockade_sandbox.records import Record, field, line_of, read
from stockade_sandbox.results import EntryKind, FolderLayer

SUFFIX = ".journal"
STAGING = ".stockade-apply-"
Side = Literal["before", "after"]


def step(name: str) -> None:
    """A named place in the work. Whoever wants to be there listens with sys.addaudithook."""
    sys.audit("stockade.step", name)


class Look(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What an entry is. `inode` and `mtime_ns` tell quickly that it still is; `sha256` tells it surely.

    `owner` and `xattrs` (in hex) are those of a folder, which is made anew; other entries keep theirs in the store.
    """

    kind: EntryKind | Literal["absent"] = "absent"
    mode: int = 0
    size: int = 0
    sha256: str = ""
    target: str = ""
    inode: int = 0
    mtime_ns: int = 0
    owner: tuple[int, int] | None = None
    xattrs: dict[str, str] | None = None


class Entry(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """One path. `at`: which side the folder has. `content`: whether more than the mode differs.

    `left`: why the last decision left it as it was; empty when it was part of it. `bots`: what the bot made of it,
    where `after` is that merged with the host's side.
    """

    path: str
    before: Look
    after: Look
    at: Side = "before"
    content: bool = True
    left: str = ""
    bots: Look | None = None

    def side(self, which: Side) -> Look:
        return self.before if which == "before" else self.after


class Head(Record, kw_only=True):
    """What was last decided: `goal` is the side that every entry not left out goes to, `at` when that was (UNIX s).

    `modes`: of folders that are opened to writing meanwhile. `folder` is the host's; `inside` is where it was in the
    sandbox. `layer_ns`: when the layer began that was applied. `again`: a part of what older journals hold at `before`
    was applied from there, and is theirs again once this one is taken back.
    """

    version: int = 1
    host: str
    inside: str
    folder: FolderId
    layer_ns: int = 0
    goal: Side
    step: Literal["decided", "done"]
    at: float
    modes: dict[str, int] = field(default_factory=dict)
    again: bool = False


def other(side: Side) -> Side:
    return "before" if side == "after" else "after"


def journals_of(layer: FolderLayer | Path) -> Path:
    """Where the journals of a layer are, which may be gone itself."""
    base = layer if isinstance(layer, Path) else Path(str(layer.layer))
    return base.with_name(base.name + SUFFIX)


def staging_of(journals: Path) -> str:
    """The name of the staging folder, from which `journals_for` leads back."""
    return f"{STAGING}{journals.parent.name}-{journals.name.removesuffix(SUFFIX)}"


def journals_for(staging: str, runs: Path) -> Path | None:
    """The journals that a staging folder belongs to, below the folder of all runs. The name may be anybody's."""
    run, _, number = staging.removeprefix(STAGING).rpartition("-")
    found = runs / run / f"{number}{SUFFIX}"
    return found if run not in ("", ".", "..") and number.isdecimal() and found.is_dir() else None


class Journal:
    """One of them, at `place`. Errors are OSError; SandboxFailed for one that is damaged."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.store = place / "store"

    @property
    def number(self) -> int:
        return int(self.place.name)

    def head(self) -> Head | None:
        """None when nothing was decided yet."""
        try:
            with (self.place / "journal").open("rb") as lines:
                return read(Head, lines.readline())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise self._damaged() from error

    def entries(self) -> list[Entry]:
        """In order: a folder before what is in it."""
        try:
            with (self.place / "journal").open("rb") as lines:
                lines.readline()
                return [read(Entry, line) for line in lines]
        except ValueError as error:
            raise self._damaged() from error

    def write(self, head: Head, entries: Iterable[Entry]) -> None:
        """The whole of it, or what was there before. Durable when this returns."""
        lines = (line_of(one) + b"\n" for one in (head, *entries))
        write_file(self.place / "journal", b"".join(lines))
        sync_folder(self.place)

    def _damaged(self) -> SandboxFailed:
        return SandboxFailed(
            f"the journal {self.place / 'journal'} is damaged",
            "what was there before the apply is beside it, in store/, by the number of the line",
        )


def new_journal(journals: Path) -> Journal:
    """The next one, without a decision in it. The way to it is durable."""
    journals.mkdir(mode=0o700, exist_ok=True)
    number = max((one.number for one in all_journals(journals)), default=0) + 1
    journal = Journal(journals / str(number))
    journal.place.mkdir(mode=0o700)
    for folder in (journal.place, journals, journals.parent):
        sync_folder(folder)
    return journal


def all_journals(journals: Path) -> list[Journal]:
    """Oldest first."""
    try:
        names = [name for name in os.listdir(journals) if name.isdecimal()]
    except FileNotFoundError:
        return []
    return [Journal(journals / name) for name in sorted(names, key=int)]


def journals_on(hosts: Collection[str], runs: Path) -> Iterator[tuple[Path, Journal, Head]]:
    """Every journal with a decision about one of these folders (spelled), in whichever run; with its layer's place."""
    for journals in in_runs(runs, f"*{SUFFIX}"):
        for journal in all_journals(journals):
            head = journal.head()
            if head is not None and head.host in hosts:
                yield journals.with_name(journals.name.removesuffix(SUFFIX)), journal, head


def forget_undone(journals: Path, *, again: bool = False) -> None:
    """Away with what could be applied again: the layer is there for that, or a new apply goes on from here. `again`:
    only with journals that older ones are there for.
    """
    for journal in all_journals(journals):
        head = journal.head()
        if (
            head
            and head.step == "done"
            and head.again >= again
            and all(entry.at == "before" for entry in journal.entries())
        ):
            remove_tree(journal.place)
    forget_empty(journals)


def forget_empty(journals: Path) -> None:
    """A place for journals that has none goes."""
    with suppress(OSError):  # it is not empty, or not there
        journals.rmdir()
