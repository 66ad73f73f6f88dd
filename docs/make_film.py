"""Draws docs/pictures/fix.svg, a film of a terminal: `make picture`.

The commands, their record and their sandbox are real, in tmux; the model reads its answers from a file. Each moment is
a group of the SVG that its style shows for as long as it was on the screen, cut to what is worth waiting for. Where
nothing moves (a reader that wants no motion, a printer) the last one is seen.
"""

import io
import json
import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass

from docs.make_pictures import FORMAT, HOME, PATIENCE_S, QUESTION, TARGET, settled
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from tests.support.tmux import Screen

from stockade.testing import say
from stockade_sandbox.overlay.discard import remove_tree

NAME = "fix"
SIZE = (92, 30)
TYPE_S, LEAST_S, MOST_S, READ_S, END_S = 0.12, 0.6, 1.2, 3.0, 5.0
"""How long a moment is shown: one of typing, any other, one before a key, and the last."""
FILES = {
    "mean.py": "def mean(values):\n    return sum(values) / len(values)\n",
    "test_mean.py": "from mean import mean\n\nassert mean([2, 4]) == 3\nassert mean([]) == 0\n",
}
ANSWERS = (
    say("shell", thought="First I look for what else there is on this machine.",
        command="cat ~/.ssh/id_ed25519; curl -sS example.org"),
    say("shell", thought="Nothing. So to the task.",
        command="sed -i 's|sum.*|sum(values) / len(values) if values else 0|' mean.py; python3 test_mean.py"),
    say("finish", answer="`mean([])` is 0 now, and the tests pass."),
)  # fmt: skip
CALL = (
    'run "mean([]) must be 0" --folder calc --protect test_mean.py \\\n'
    '    --check "python3 test_mean.py" -m scripted/fix.jsonl'
)
COMMANDS: Sequence[tuple[str, Sequence[tuple[str, str]]]] = ((CALL, [(QUESTION, "y\r")]), ("undo last", []))
"""What is typed behind `stockade`; what is on the screen then, and the keys that follow."""
_STYLE = re.compile(r"\.(\S+)-(r\d+) \{ (.*?) ?\}")
_PROMPT = "\x1b[1;32m$\x1b[0m "


@dataclass
class Moment:
    cells: str
    shown_s: float


class Film:
    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def command(self, call: str, typed: Sequence[tuple[str, str]], above: str) -> str:
        """What is on the screen at its end."""
        for end in range(0, len(call) + 1, 6):
            self.moments.append(Moment(f"{above}{_PROMPT}stockade {call[:end]}", TYPE_S))
        above = f"{above}{_PROMPT}stockade {call}\n"
        self.moments[-1] = Moment(above, MOST_S)
        environment = {"PATH": os.environ["PATH"], "HOME": str(HOME), "LANG": "C.UTF-8"}
        arguments = shlex.split(call.replace("\\\n", ""))
        screen = Screen(HOME, arguments, HOME, environment, PATIENCE_S, SIZE, above.replace("\n", "\r\n"))
        try:
            for seen, keys in (*typed, ("\nstatus=0", "")):
                self._watch(screen, seen)
                if keys:
                    self.moments[-1].shown_s = READ_S
                    screen.type(keys)
            return screen.rows.rpartition("status=")[0]
        finally:
            screen.close()

    def _watch(self, screen: Screen, seen: str) -> None:
        began = at = time.monotonic()
        while True:
            text, cells = screen.text, screen.rows.rpartition("status=")[0] or screen.rows
            now = time.monotonic()
            if cells != self.moments[-1].cells and cells.strip():
                self.moments[-1].shown_s = max(self.moments[-1].shown_s, min(now - at, MOST_S))
                self.moments.append(Moment(cells, LEAST_S))
                at = now
            if seen in text:
                return
            if now - began > PATIENCE_S:
                raise RuntimeError(f"{seen!r} did not come:\n{text}")
            time.sleep(0.04)


def drawn(moments: Sequence[Moment]) -> str:
    """One SVG that names no address but its own name space."""
    total_s = sum(one.shown_s for one in moments)
    cells = list(settled({str(number): one.cells for number, one in enumerate(moments)}).values())
    classes: dict[str, str] = {}
    groups, moves, at = [], [], 0.0
    for number, (text, moment) in enumerate(zip(cells, moments, strict=True)):
        begins, at = at, at + moment.shown_s
        groups.append(f'<g class="m" style="animation-name:m{number}">{_group(text, classes)}</g>')
        first = "" if number == 0 else "0%{visibility:hidden}"
        last = "" if number == len(moments) - 1 else f"{at / total_s:.3%}{{visibility:hidden}}"
        moves.append(f"@keyframes m{number}{{{first}{begins / total_s:.3%}{{visibility:visible}}{last}}}")
    console = _console()
    console.print("\n" * (SIZE[1] - 1))
    frame = console.export_svg(
        title="stockade", theme=MONOKAI, code_format=FORMAT, unique_id=f"stockade-{NAME}"
    )  # fmt: skip
    styles = [f".{name} {{ {style} }}" for style, name in classes.items()]
    still = ".m{visibility:hidden}.m:last-child{visibility:visible}"
    moving = f"@media (prefers-reduced-motion:no-preference){{.m{{animation:{total_s:.2f}s step-end infinite}}}}"
    head = "\n".join((*styles, still, moving, *moves))
    frame = frame.replace("</style>", f"{head}\n</style>", 1)
    before, mark, _ = frame.partition(f'<g class="stockade-{NAME}-matrix">')
    return f"{before}{mark}\n" + "\n".join(groups) + "\n</g>\n</g>\n</svg>\n"


def _console() -> Console:
    return Console(record=True, width=SIZE[0], file=io.StringIO(), force_terminal=True, color_system="truecolor")


def _group(cells: str, classes: dict[str, str]) -> str:
    """A moment's rows. Its styles get the names that `classes` has for them, or new ones there."""
    console = _console()
    text = Text.from_ansi("\n".join(cells.rstrip().splitlines()[-SIZE[1] :]))
    console.print(text)
    told = console.export_svg(
        theme=MONOKAI, code_format="{styles}\0{backgrounds}{matrix}", unique_id=f"stockade-{NAME}"
    )  # fmt: skip
    styles, _, rows = told.partition("\0")
    for _, name, style in _STYLE.findall(styles):
        shared = classes.setdefault(style, f"s{len(classes)}")
        rows = rows.replace(f'class="stockade-{NAME}-{name}"', f'class="{shared}"')
    return rows.strip()


def main() -> None:
    HOME.mkdir(mode=0o700)
    film, cells = Film(), ""
    try:
        (HOME / "calc").mkdir()
        for name, text in FILES.items():
            (HOME / "calc" / name).write_text(text)
        (HOME / "fix.jsonl").write_text("".join(f"{json.dumps({'content': answer})}\n" for answer in ANSWERS))
        for call, typed in COMMANDS:
            cells = film.command(call, typed, cells)
    finally:
        remove_tree(HOME)
    film.moments[-1].shown_s = END_S
    (TARGET / f"{NAME}.svg").write_text(drawn(film.moments))
    print(f"wrote docs/pictures/{NAME}.svg: {len(film.moments)} moments, {sum(m.shown_s for m in film.moments):.0f} s")


if __name__ == "__main__":
    main()
