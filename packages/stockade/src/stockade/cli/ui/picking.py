"""Changes decided on one by one, with the keys of `git add -p`: file by file, and of a file hunk by hunk."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from stockade.changes import Pending
from stockade.cli.ui.changeset import Item, chosen_of, diff_of, draw_diff, grouped, items_of, stat_line
from stockade.cli.ui.console import write_prose
from stockade.cli.ui.safe import one_line, screen, some
from stockade.core.ports import Differ
from stockade_sandbox.overlay.diff import Hunk, hunks, patched

Ask = Callable[[str], str | None]
"""Shows a question and returns what was typed; None at the end of input."""

MAX_QUOTED_LINES = 60
_FILE_KEYS = {
    "y": "apply this file", "n": "not this one", "a": "this one and all that follow",
    "d": "not this one and none that follow", "c": "a comment on it, for the bot; several words are one too",
    "q": "no more: what you chose is applied, the rest is kept for later",
}  # fmt: skip
_HUNK_KEYS = {
    "y": "apply this hunk", "n": "not this one", "a": "this one and all that follow in this file",
    "d": "not this one and none that follow in this file", "s": "split it into smaller hunks",
    "e": "edit it in $EDITOR before it is applied", "c": _FILE_KEYS["c"], "q": _FILE_KEYS["q"],
}  # fmt: skip
_WHOLE = {"yes": "y", "no": "n", "quit": "q", "edit": "e", "split": "s", "comment": "c", "all": "a"}


@dataclass
class Picked:
    """What was chosen of each folder, and what the user said to the bot about it."""

    work: list[Pending] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)


@dataclass
class Picker:
    """Asks about one item after another."""

    console: Console
    reviewer: Differ
    ask: Ask
    picked: Picked = field(default_factory=Picked)
    _all: bool = False
    _enough: bool = False

    def run(self, work: Sequence[Pending]) -> Picked:
        every = [(one, items_of(self.reviewer, one)) for one in work]
        total, number = sum(not item.folded for _, items in every for item in items), 0
        for one, items in every:
            chosen, contents = list[Item](), dict[str, bytes]()
            for item in (item for item in items if not item.folded):
                number += 1
                content = not self._enough and self._item(item, f"{number}/{total}")
                if content is not False:
                    chosen.append(item)
                if isinstance(content, bytes):
                    contents[item.change.path] = content
            folded = [item for item in items if item.folded]
            if folded and not self._enough and self._folded(folded):
                chosen += folded
            if changes := chosen_of(one, chosen):
                self.picked.work.append(replace(one, changes=changes, part=True, contents=contents))
        return self.picked

    def _item(self, item: Item, number: str) -> bool | bytes:
        """True: all of it; False: nothing; else what of a file is written."""
        write_prose(self.console, Text.assemble((f"({number})", "bold"), stat_line(item)))
        if item.refused:
            return False
        if self._all and not item.held:
            return True
        diff, texts = diff_of(self.reviewer, item), self.reviewer.texts(item.layer, item.change)
        if texts is None:
            draw_diff(self.console, diff)
            return self._whole("Apply this?", item)
        if modes := [line for line in diff.split("\n@@")[0].split("\n") if " mode " in line and line[:1] in "on"]:
            draw_diff(self.console, "\n".join([*modes, "(the mode goes with all hunks)"]))
        return self._hunks(item, *texts)

    def _folded(self, items: Sequence[Item]) -> bool:
        write_prose(self.console, grouped(items), "dim")
        return self._all or self._whole("Apply these?", items[0])

    def _whole(self, question: str, item: Item) -> bool:
        key = self._key(question, _FILE_KEYS, item, None)
        self._all = self._all or key == "a"
        self._enough = self._enough or key in ("d", "q")
        return key in ("y", "a")

    def _hunks(self, item: Item, old: bytes, new: bytes) -> bool | bytes:
        waiting, chosen, every, at = hunks(old, new), list[Hunk](), True, 0
        while at < len(waiting):
            hunk = waiting[at]
            draw_diff(self.console, hunk.text)
            key = self._key(f"({at + 1}/{len(waiting)}) Apply this hunk?", _HUNK_KEYS, item, hunk)
            if key == "s":
                waiting[at : at + 1] = hunk.split()
                write_prose(self.console, f"{some(len(hunk.split()), 'hunk')} of it", "dim")
                continue
            mine = self._edited(hunk) if key == "e" else hunk
            if mine is None:
                continue
            chosen += waiting[at:] if key == "a" else [mine] if key in ("y", "e") else []
            every = every and key in ("y", "a")
            self._enough = self._enough or key == "q"
            if key in ("a", "d", "q"):
                break
            at += 1
        if every:
            return True
        return patched(old, chosen) if chosen else False

    def _key(self, question: str, keys: dict[str, str], item: Item, hunk: Hunk | None) -> str:
        """One of the keys. What is none asks again; several words are a comment."""
        while True:
            typed = self.ask(f"{question} [{','.join(keys)},?] ")
            if typed is None:
                return "q"
            key = _WHOLE.get(typed.lower(), typed.lower())
            if key == "c" or " " in typed:
                words = self.ask("to the bot: ") if key == "c" else typed
                if words:
                    self.picked.comments.append(_comment(item, hunk, words))
                    write_prose(self.console, "noted; it is sent when you are through. And this one?", "dim")
            elif key in keys:
                return key
            else:
                for name, words in keys.items():
                    write_prose(self.console, f"{name} - {words}", "dim")

    def _edited(self, hunk: Hunk) -> Hunk | None:
        """None when it is to be asked about again."""
        if names := screen().names(hunk.text):
            what = f"it holds what is to be hidden ({', '.join(names)}): edit the file itself"
            write_prose(self.console, what, "red")
            return None
        remark = (
            "# To drop a line that begins with +, remove it. To keep one that begins with -, make the - a blank.\n"
            "# Lines that begin with # are left out. An empty file: nothing is changed.\n"
        )
        editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
        with tempfile.TemporaryDirectory(prefix="stockade-hunk-") as folder:
            file = Path(folder, "hunk.diff")
            file.write_bytes((hunk.text + remark).encode(errors="surrogateescape"))
            try:
                done = subprocess.run([*editor, str(file)], check=False)
                text = file.read_bytes()
            except OSError as error:
                write_prose(self.console, f"{one_line(shlex.join(editor))}: {error.strerror}; see $EDITOR", "red")
                return None
        try:
            if done.returncode or not text.strip():
                raise ValueError("it was not edited")
            return hunk.edited(text)
        except ValueError as error:
            write_prose(self.console, f"the hunk stays as it was: {error}", "red")
            return None


def _comment(item: Item, hunk: Hunk | None, words: str) -> str:
    """What the bot is told: where, the lines, and what was said."""
    where = f"About {item.change.path}"
    if hunk is None:
        return f"{where}: {words}"
    lines = hunk.text.rstrip("\n").split("\n")
    more = [f"[{some(len(lines) - MAX_QUOTED_LINES, 'more line')}]"] if len(lines) > MAX_QUOTED_LINES else []
    quoted = "\n".join([*lines[:MAX_QUOTED_LINES], *more])
    return f"{where}:\n{quoted}\n{words}"
