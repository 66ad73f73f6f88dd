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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from tests.clients.internet import Internet
from tests.clients.player import Step
from tests.support.tmux import Screen
from tests.support.toolchains import CLIENTS_HOME, clients

from stockade.testing import say
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.policy import parse_credential

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "pictures"
HOME = Path("/tmp/stockade-tour")
"""Not of a random name: a path decides where lines break."""
SIZE = (80, 24)
PATIENCE_S = 60
DAY = "2026-01-02"
QUESTION = "or say what to change:"
_ID = re.compile(r"(?<!\d)\d{8}-\d{6}-[a-z0-9]{4,}\b")
_SECONDS = re.compile(r"(?<!\d)\d+\.\d s\b")
_OF_CLAUDE = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "3f0d9a52-61c7-4b1e-9a80-5d2c7e4b1f36"),
    (re.compile(r"[A-Z]\w+ for \d+s"), "Worked for 1s"),
)
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL")
FORMAT = re.sub(r" *@font-face \{\{.*?\}\}\n| *<!--.*?-->\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Rich's, without the fonts that it would fetch and without the address of its makers."""


@dataclass(frozen=True)
class Flow:
    """`call` is what is typed behind `stockade`, `answers` are the model's. `typed`: what has to be on the screen, and
    the keys that follow. The picture is of the end of the command or, with `until`, of the moment when that is on the
    screen; `leave` are the keys after that. `acts`: it is Claude Code as the tests have it, and what its model does,
    which a server plays. `at_home`: with the user's own home, where rootless Podman keeps files of other uids, which
    nobody but it can remove.
    """

    call: str
    answers: Sequence[str] = ()
    typed: Sequence[tuple[str, str]] = ()
    until: str = ""
    leave: str = ""
    acts: Sequence[Step] = ()
    at_home: bool = False


FLOWS = {
    "run": Flow(
        'run "Write the number of lines of data.csv into count.txt" \\\n    --folder demo -m scripted/run.jsonl',
        (
            say("shell", thought="I count the lines and look at the result.",
                command="wc -l < data.csv > count.txt; cat count.txt"),
            say("finish", answer="data.csv has 12 lines, and count.txt says so."),
        ),
        [(QUESTION, "y\r")],
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
    "wrap": Flow(
        "wrap --folder demo --home mine -- claude",
        typed=[
            ("? for shortcuts", "Lisbon has 567131 people now"),
            ("567131", "\r"),
            ("Do you want to make this edit", "\r"),
            ("all is done", "\x04"),
            ("again to exit", "\x04"),
            (QUESTION, "y\r"),
        ],
        acts=[
            ("Read", {"file_path": "/workspace/data.csv"}),
            ("Edit", {"file_path": "/workspace/data.csv", "old_string": "545796", "new_string": "567131"}),
        ],
    ),
    "list": Flow("runs list"),
    "show": Flow("runs show last"),
    "doctor": Flow("doctor", at_home=True),
}  # fmt: skip


@contextmanager
def claude(acts: Sequence[Step]) -> Iterator[dict[str, str]]:
    """Inside, Claude Code can be wrapped with these variables, in the home `mine` where it was set up before."""
    sentinel = parse_credential("ANTHROPIC_API_KEY@x").sentinel
    known = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [sentinel[-20:]], "rejected": []},
        "projects": {"/workspace": {"hasTrustDialogAccepted": True}},
    }
    home = HOME / ".local" / "share" / "stockade-homes" / "mine"
    home.mkdir(parents=True)
    (home / ".claude.json").write_text(json.dumps(known))
    clients()
    package = HOME / "node_modules" / "claude-code"  # at a place that is nobody's
    shutil.copytree(CLIENTS_HOME / "node_modules/@anthropic-ai/claude-code", package)
    (package / "bin" / "claude").symlink_to("claude.exe")
    with Internet(("api.anthropic.com",), HOME / "ca.pem", acts) as internet:
        yield {
            "PATH": f"{package / 'bin'}:{os.environ['PATH']}",
            "HTTPS_PROXY": f"http://127.0.0.1:{internet.port}",
            "STOCKADE_CA": str(internet.certificate),
            "ANTHROPIC_API_KEY": "sk-of-the-user-0123456789",
        }


def played(flow: Flow) -> str:
    """The rows of the screen, with their colours as escapes."""
    with claude(flow.acts) if flow.acts else nullcontext(dict[str, str]()) as variables:
        return _played(flow, variables)


def _played(flow: Flow, variables: Mapping[str, str]) -> str:
    if flow.answers:
        script = HOME / flow.call.rpartition("/")[2]
        script.write_text("".join(f"{json.dumps({'content': answer})}\n" for answer in flow.answers))
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    if not flow.at_home:
        environment["HOME"] = str(HOME)
    environment |= variables
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
    for pattern, text in _OF_CLAUDE:
        screens = {name: pattern.sub(text, cells) for name, cells in screens.items()}
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
    return console.export_svg(title="stockade", theme=MONOKAI, code_format=FORMAT, unique_id=f"stockade-{name}")


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
