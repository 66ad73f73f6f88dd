"""Draws docs/pictures, a terminal of 80 columns for each of the main flows: `make pictures`.

The command, its record and its sandbox are real, in tmux, on a copy of examples/demo; the model reads its answers from
a file. What differs from one time to the next (ids of runs, durations) is written as if it did not.
"""

import io
import json
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from tests.support.tmux import Screen

from stockade.testing import say
from stockade_sandbox.overlay.discard import remove_tree

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "pictures"
HOME = Path("/tmp/stockade-tour")
"""Not of a random name: a path decides where lines break."""
SIZE = (80, 24)
PATIENCE_S = 60
DAY = "2026-01-02"
_QUESTION = "or say what to change:"
_ID = re.compile(r"(?<!\d)\d{8}-\d{6}-[a-z0-9]{4}\b")
_SECONDS = re.compile(r"(?<!\d)\d+\.\d s\b")
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL")
_FORMAT = re.sub(r" *@font-face \{\{.*?\}\}\n| *<!--.*?-->\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Rich's, without the fonts that it would fetch and without the address of its makers."""


@dataclass(frozen=True)
class Flow:
    """`call` is what is typed behind `stockade`, `answers` are the model's. `typed`: what has to be on the screen, and
    the keys that follow. The picture is of the end of the command or, with `until`, of the moment when that is on the
    screen; `leave` are the keys after that. `at_home`: with the user's own home, where rootless Podman keeps files of
    other uids, which nobody but it can remove.
    """

    call: str
    answers: Sequence[str] = ()
    typed: Sequence[tuple[str, str]] = ()
    until: str = ""
    leave: str = ""
    at_home: bool = False


FLOWS = {
    "run": Flow(
        'run "Write the number of lines of data.csv into count.txt" \\\n    --folder demo -m scripted/run.jsonl',
        (
            say("shell", thought="I count the lines and look at the result.",
                command="wc -l < data.csv > count.txt; cat count.txt"),
            say("finish", answer="data.csv has 12 lines, and count.txt says so."),
        ),
        [(_QUESTION, "y\r")],
    ),
    "chat": Flow(
        "chat --folder demo -m scripted/chat.jsonl",
        (
            say("shell", command="sed -i 's/545796/567131/; s/487371/489160/' data.csv"),
            say("finish", answer="Both numbers are in `data.csv`: **Lisbon** 567131, **Gdansk** 489160."),
        ),
        [("Ctrl-D leaves", "Lisbon has 567131 people now, Gdansk 489160\r"), ("/apply asks", "/diff\r")],
        until="+Gdansk",
        leave="\x04",
    ),
    "review": Flow(
        "apply last --files",
        typed=[
            ("(1/2) Apply this hunk?", "y\r"),
            ("(2/2) Apply this hunk?", "n\r"),
        ],
    ),
    "list": Flow("runs list"),
    "show": Flow("runs show last"),
    "doctor": Flow("doctor", at_home=True),
}  # fmt: skip


def played(flow: Flow) -> str:
    """The rows of the screen, with their colours as escapes."""
    if flow.answers:
        script = HOME / flow.call.rpartition("/")[2]
        script.write_text("".join(f"{json.dumps({'content': answer})}\n" for answer in flow.answers))
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    if not flow.at_home:
        environment["HOME"] = str(HOME)
    above = f"\x1b[1;32m$\x1b[0m stockade {flow.call}\n"
    screen = Screen(HOME, shlex.split(flow.call.replace("\\\n", "")), HOME, environment, PATIENCE_S, SIZE, above)
    try:
        for seen, keys in flow.typed:
            screen.until(seen)
            screen.type(keys)
        if flow.until:
            screen.until(flow.until)
            cells = screen.cells
            screen.type(flow.leave)
        if status := screen.status():
            raise RuntimeError(f"stockade {flow.call} ended with status {status}:\n{screen.text}")
        return cells if flow.until else screen.cells.rpartition("status=")[0]
    finally:
        screen.close()


def settled(screens: dict[str, str]) -> dict[str, str]:
    """Each of the same length, without what differs from one time to the next."""
    ids = sorted({found for cells in screens.values() for found in _ID.findall(cells)})

    def numbered(match: re.Match[str]) -> str:
        return f"{DAY.replace('-', '')}-09{ids.index(match[0]) + 1:02}00-demo"

    return {
        name: _SECONDS.sub(lambda match: f"{'0.4 s':>{len(match[0])}}", _ID.sub(numbered, cells))
        for name, cells in screens.items()
    }


def drawn(name: str, cells: str) -> str:
    """An SVG that names no address but its own name space."""
    text = Text.from_ansi(cells)
    text.rstrip()
    console = Console(record=True, width=SIZE[0], file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(text)
    return console.export_svg(title="stockade", theme=MONOKAI, code_format=_FORMAT, unique_id=f"stockade-{name}")


def main() -> None:
    HOME.mkdir(mode=0o700)
    try:
        shutil.copytree(ROOT / "examples" / "demo", HOME / "demo")
        screens = {name: played(flow) for name, flow in FLOWS.items()}
    finally:
        remove_tree(HOME)  # an overlay's own folder in it lets no ordinary user in
    TARGET.mkdir(exist_ok=True)
    for name, cells in settled(screens).items():
        (TARGET / f"{name}.svg").write_text(drawn(name, cells))
        print(f"wrote docs/pictures/{name}.svg")


if __name__ == "__main__":
    main()
