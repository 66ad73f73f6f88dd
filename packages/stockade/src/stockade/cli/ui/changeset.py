"""What a bot changed, as it is looked at: a summary first, renames as renames, and the diffs, in a pager where one is
set.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from stockade.changes import Pending, left_out
from stockade.cli.ui.console import write_line, write_prose
from stockade.cli.ui.drawing import MAX_LINE_CHARS
from stockade.cli.ui.pager import paged
from stockade.cli.ui.safe import fit_for_terminal, one_line, safe_text, screen, some
from stockade.core.ports import Differ
from stockade.git import ignored
from stockade_sandbox.overlay.diff import Hunk, hunks
from stockade_sandbox.results import Change, FolderLayer, Renamed, shown_path, what_changed

MAX_DIFF_LINES = 120
MAX_DIFFS = 40
MAX_LISTED = 200
MAX_BRIEF_LINES = 40
"""Diffs of so many lines are drawn below the summary without being asked for."""
_GROUPS_NAMED = 4
_MARKS = {"added": "A", "modified": "M", "deleted": "D", "mode": "m", "type": "T"}
_LEAST_WIDTH = 60
_HEADS = ("+++", "---", "diff ", "index ", "new ", "deleted ", "old ", "rename ", "similarity ", "Binary ")


@dataclass(frozen=True, slots=True)
class Item:
    """What is decided on at once: a change, and with it what cannot be without it: the old name of a file that was
    renamed, and all below a path that was a folder or becomes one. `ignored`: the host's ignore files name it. `lines`:
    added and removed; of the first MAX_LISTED renames.
    """

    layer: FolderLayer
    change: Change
    renamed: Renamed | None = None
    others: tuple[Change, ...] = ()
    ignored: bool = False
    lines: tuple[int, int] = (0, 0)

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.change, *self.others

    @property
    def flagged(self) -> str:
        """Why it should be looked at first; empty when it need not be."""
        first = sorted(self.changes, key=lambda change: not change.held)
        return next((change.flagged for change in first if change.flagged and not self.refused), "")

    @property
    def held(self) -> bool:
        """Whether it is only applied when it is named."""
        return any(change.held for change in self.changes)

    @property
    def refused(self) -> str:
        return next((change.refused for change in self.changes if change.refused), "")

    @property
    def folded(self) -> bool:
        return self.ignored and not self.flagged and not self.refused

    @property
    def path(self) -> str:
        return one_line(shown_path(self.layer.inside, self.change.path))


def items_of(reviewer: Differ, one: Pending) -> list[Item]:
    """What can be decided on in a folder: what should be looked at first, then by path, what is ignored last.

    A folder that was only made or removed with what is in it is none.
    """
    below: dict[str, list[Change]] = {}
    turned = {change.path for change in one.changes if change.kind == "type"}
    full, single = set[str](), list[Change]()
    for change in one.changes:
        above = _above(change.path)
        full.update(above)
        if (root := next((path for path in above if path in turned), None)) is not None:
            below.setdefault(root, []).append(change)
        else:
            single.append(change)
    single = [one for one in single if not _is_implied(one, full)]
    renames = reviewer.renames(one.layer, single)
    by_path = {change.path: change for change in single}
    old = {renamed.old for renamed in renames.values()}
    names = ignored(Path(one.layer.host), (change.path for change in single if change.path not in old))
    items = list[Item]()
    for change in single:
        if change.path in old:
            continue
        renamed = renames.get(change.path)
        others = (by_path[renamed.old],) if renamed else tuple(below.get(change.path, ()))
        whole = (change, *others)
        lines = sum(one.added_lines for one in whole), sum(one.removed_lines for one in whole)
        if renamed:
            counted = renamed.similarity < 100 and len(items) < MAX_LISTED
            lines = _lines(reviewer.unified_diff(one.layer, change, renamed)) if counted else (0, 0)
        items.append(Item(one.layer, change, renamed, others, change.path in names, lines))
    return sorted(items, key=lambda item: (not item.held, not item.flagged, item.folded))


def files_of(differ: Differ, work: Iterable[Pending]) -> list[Item]:
    return [item for one in work for item in items_of(differ, one)]


def some_files(items: Sequence[Item], paths: Container[str] | None = None) -> str:
    """`2 files`, as the summary counts them; with `paths`, as they are shown, of these only."""
    if paths is not None:
        items = [one for one in items if any(shown_path(one.layer.inside, it.path) in paths for it in one.changes)]
    return some(len(items), "file")


def _lines(diff: str) -> tuple[int, int]:
    body = diff.partition("\n@@")[2].split("\n")
    return sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body)


def _is_implied(change: Change, full: set[str]) -> bool:
    return change.entry == "directory" and change.kind in ("added", "deleted") and change.path in full


def chosen_of(one: Pending, items: Iterable[Item]) -> tuple[Change, ...]:
    """The changes of these items, and the folders that were made or removed with all that is in them."""
    paths = {change.path for item in items for change in item.changes}
    inside, chosen = Counter[str](), Counter[str]()
    for change in one.changes:
        inside.update(_above(change.path))
        chosen.update(_above(change.path) if change.path in paths else ())
    for change in reversed(one.changes):
        is_new = change.entry == "directory" and change.path not in paths and not change.refused
        if is_new and 0 < inside[change.path] == chosen[change.path]:
            paths.add(change.path)
            chosen.update(_above(change.path))
    return tuple(change for change in one.changes if change.path in paths)


def _above(path: str) -> list[str]:
    """The folders that a path lies in."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def list_files(console: Console, reviewer: Differ, work: Sequence[Pending]) -> None:
    """The summary alone."""
    summarise(console, reviewer, work, files_of(reviewer, work))


def draw(console: Console, reviewer: Differ, work: Sequence[Pending], *, brief: bool = False) -> None:
    """A summary, and the diffs below it, clipped. `brief`: only where they are short."""
    items = files_of(reviewer, work)
    summarise(console, reviewer, work, items)
    unfolded = [item for item in items if not item.folded]
    diffs = [diff_of(reviewer, item) for item in unfolded[:MAX_DIFFS]]
    if brief and (len(diffs) < len(unfolded) or sum(diff.count("\n") for diff in diffs) > MAX_BRIEF_LINES):
        return
    hidden: dict[str, None] = {}
    for diff in diffs:
        hidden |= dict.fromkeys(screen().names(diff))
        draw_diff(console, diff)
    if more := len(unfolded) - len(diffs):
        write_prose(console, Text(f"[... diffs of {more} more files not shown ...]", "dim"))
    name_hidden(console, hidden)


def name_hidden(console: Console, names: Iterable[str]) -> None:
    if listed := one_line(", ".join(names)):
        write_prose(console, Text(f"shown as [redacted: ...], unchanged in the files: {listed}", "dim"))


def summarise(console: Console, reviewer: Differ, work: Sequence[Pending], items: Sequence[Item]) -> None:
    """A line for all, and one for each; of very many the first, and every one that should be looked at first."""
    write_prose(console, Text(stat(items), "bold"))
    listed = [item for item in items if not item.folded]
    shown = [item for number, item in enumerate(listed) if number < MAX_LISTED or item.flagged or item.refused]
    for item in shown:
        write_line(console, stat_line(item))
    if len(shown) < len(listed):
        write_line(console, Text(f"[... {len(listed) - len(shown)} more files not listed ...]", "dim"))
    if folded := [item for item in items if item.folded]:
        write_prose(console, grouped(folded), "dim")
    if left := left_out(reviewer, work):
        names = ", ".join(f"{one_line(name)} {count}" for name, count in left.most_common(_GROUPS_NAMED))
        words = f"[caches are left out: {names}; stockade apply --caches takes them too]"
        write_prose(console, Text(words, "dim"))


def grouped(folded: Sequence[Item]) -> str:
    """What is folded, in a line: `build/ 10, x.log`."""
    names = Counter(
        one_line(item.change.path.partition("/")[0], 60) + "/" * ("/" in item.change.path) for item in folded
    )
    shown = [name + (f" {count}" if name.endswith("/") else "") for name, count in names.most_common(_GROUPS_NAMED)]
    more = " …" if len(names) > _GROUPS_NAMED else ""
    what = f"{some(len(folded), 'file')} that ignore files here name"
    return f"[{what}, applied like the others: {', '.join(shown)}{more}]"


def stat(items: Sequence[Item]) -> str:
    """`2 files changed, 5 lines added, 1 removed; 1 to check first`."""
    added, removed = (sum(item.lines[side] for item in items) for side in (0, 1))
    words = f"{some_files(items)} changed, {some(added, 'line')} added, {removed} removed"
    renamed = sum(1 for item in items if item.renamed)
    flagged = sum(1 for item in items if item.flagged)
    held = sum(1 for item in items if item.held)
    refused = sum(1 for item in items if item.refused)
    words += f", {renamed} renamed" if renamed else ""
    words += f"; {flagged} to check first" if flagged else ""
    words += f", {held} of them held back" if held else ""
    return words + (f"; {refused} refused" if refused else "")


def stat_line(item: Item) -> Text:
    change, name = item.change, item.path
    if item.renamed:
        old = one_line(shown_path(item.layer.inside, item.renamed.old))
        alike = f" ({item.renamed.similarity}% alike) +{item.lines[0]} -{item.lines[1]}"
        text = Text(f" R {old} -> {name}{alike if item.renamed.similarity < 100 else ''}")
    else:
        kind = "" if change.entry == "file" else f" {change.entry}"
        extent = "" if change.entry != "file" and change.kind != "mode" else f" {what_changed(change)}"
        text = Text(f" {_MARKS[change.kind]} {name}{kind}{extent}")
    if item.refused:
        text.append(f"  refused: {one_line(item.refused)}", "bold red")
    elif item.flagged:
        text.append(f"  {'held' if item.held else 'check'}: {one_line(item.flagged)}", "bold magenta")
    return text


def diff_of(reviewer: Differ, item: Item) -> str:
    """Of all that belongs to an item."""
    diff = reviewer.unified_diff(item.layer, item.change, item.renamed)
    others = () if item.renamed else item.others
    return diff + "".join(reviewer.unified_diff(item.layer, change) for change in others)


def draw_diff(console: Console, diff: str, *, limit: int | None = MAX_DIFF_LINES) -> None:
    """In colour, without secrets; at most so many lines."""
    lines = screen().text(diff).removesuffix("\n").split("\n")
    for line in lines[:limit]:
        write_line(console, Text(safe_text(line[:MAX_LINE_CHARS]), _style(line)))
    if limit is not None and len(lines) > limit:
        write_line(console, Text(f"[... {len(lines) - limit} lines not shown ...]", "dim"))


def _style(line: str) -> str:
    if line.startswith(_HEADS):
        return "bold"
    return {"+": "green", "-": "red", "@": "magenta", "\\": "dim"}.get(line[:1], "")


def draw_side_by_side(console: Console, reviewer: Differ, item: Item) -> None:
    """The two sides of a file beside each other; anything else as its diff."""
    write_line(console, stat_line(item))
    texts = reviewer.texts(item.layer, item.change)
    if texts is None or console.width < _LEAST_WIDTH:
        draw_diff(console, diff_of(reviewer, item), limit=None)
        return
    for hunk in hunks(*texts):
        write_line(console, Text(hunk.text.partition("\n")[0], "magenta"))
        for line in _rows(hunk, (console.width - 3) // 2):
            write_line(console, line)


def _rows(hunk: Hunk, width: int) -> Iterator[Text]:
    old: list[bytes] = []
    new: list[bytes] = []
    for line in (*hunk.lines, b" "):
        if line[:1] == b"-":
            old.append(line[1:])
        elif line[:1] == b"+":
            new.append(line[1:])
        else:
            for left, right in zip_longest(old, new):
                yield _row(left, right, width)
            old, new = [], []
            if line != b" ":
                yield _row(line[1:], line[1:], width)


def _row(left: bytes | None, right: bytes | None, width: int) -> Text:
    mark = " " if left == right else "<" if right is None else ">" if left is None else "|"
    styles = ("", "") if left == right else ("red", "green")
    cells = [set_cell_size(_cell(side), width) for side in (left, right)]
    return Text.assemble((cells[0], styles[0]), (f" {mark} ", "dim"), (cells[1].rstrip(), styles[1]))


def _cell(line: bytes | None) -> str:
    text = safe_text((line or b"").decode("utf-8", "surrogateescape").rstrip("\n"))
    return text.expandtabs(4) if cell_len(text) < MAX_LINE_CHARS else text[:MAX_LINE_CHARS]


def show_all(console: Console, reviewer: Differ, work: Sequence[Pending], *, side_by_side: bool = False) -> None:
    """The summary and every diff, whole where there is a pager."""
    items = files_of(reviewer, work)
    with paged(console) as (there, is_delta):
        if there is console and not side_by_side:
            draw(console, reviewer, work)
            return
        summarise(there, reviewer, work, items)
        hidden: dict[str, None] = {}
        for item in items:
            diff = diff_of(reviewer, item)
            hidden |= dict.fromkeys(screen().names(diff))
            if is_delta:
                there.file.write(fit_for_terminal(screen().text(diff)))
            elif side_by_side:
                draw_side_by_side(there, reviewer, item)
            else:
                draw_diff(there, diff, limit=None)
        name_hidden(there, hidden)
