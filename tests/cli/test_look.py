"""How the flows look: in a terminal of two sizes, without colours, in a pipe, over a slow line, resized amid a run."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from stockade.testing import say
from tests.cli.conftest import PATIENCE_S, Stage
from tests.support.tmux import Screen

SIZES = [(80, 24), (160, 50)]
PROSE = "The numbers of lines are wanted, so each file is counted, and what is counted is written beside it for later. "
ANSWER = (
    "# Lines\n\n- `data.csv` has **three** lines\n- nothing else is in [the folder](http://example.org/)\n\n" + PROSE
)
WORK = say("shell", thought=PROSE * 2, command="wc -l < data.csv > count.txt; printf '%090d\\n' 7")
DONE = say("finish", answer=ANSWER)
AS_IT_IS = ("/workspace $ ", "0" * 80, "hint: ", '{"name', "stockade model pull ")
"""Beginnings of lines that the terminal breaks, as they may be copied: commands, output, ways out, answers unread."""
PROFILE = {
    "name": "Counter", "role": PROSE.strip(), "constraints": [PROSE.strip()], "resources": [],
    "best_practices": ["Counts twice."],
}  # fmt: skip
BLOCK = (
    "\n\n1. `wc` counts\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> said\n\n```python\nclass A:  # so\n    x = '1'\n```\n"
)
_MOVES = re.compile(rb"\x1b\[2K|\r(?!\n)")
_COLOURS = re.compile(r"\x1b\[[0-9;]*\b(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])\b[0-9;]*m")
_ON_WHITE_AND_BLACK = {"31", "32", "35", "90"}
"""Red, green, magenta and grey: docs/measured/colours.md has the contrasts of the others."""

_NOT_HERE = ("CI", "NO_COLOR", "COLUMNS", "LINES")
Start = Callable[..., Screen]


@pytest.fixture
def start(stage: Stage) -> Iterator[Start]:
    screens: list[Screen] = []

    def begin(*words: str, size: tuple[int, int], **environment: str) -> Screen:
        kept = {name: value for name, value in stage.environment().items() if name not in _NOT_HERE}
        env = {**kept, "PAGER": "cat", **environment}
        screens.append(Screen(stage.tmp_path, list(words), stage.demo, env, PATIENCE_S, size))
        return screens[-1]

    yield begin
    for one in screens:
        one.close()


def broken(screen: Screen, columns: int) -> list[str]:
    """Lines of ours that are wider than the terminal."""
    return [line for line in screen.text.split("\n") if len(line.rstrip()) > columns and not line.startswith(AS_IT_IS)]


def flows(stage: Stage) -> dict[str, tuple[Sequence[str], Sequence[tuple[str, ...]]]]:
    """Each: the words of the command, and what is typed once something is on the screen, one behind the other."""
    run = ("run", "count the lines", "--folder", str(stage.demo), "-m", stage.script(WORK, DONE, name="run.jsonl"))
    plan = stage.script(
        json.dumps(PROFILE), say("shell", command="true"), say("finish", answer="two"), name="plan.jsonl"
    )
    code = stage.script("```python\ndef two():\n    return 2\n```", name="code.jsonl")
    return {
        "chat": (("chat", "--folder", str(stage.demo), "-m", stage.script(WORK, DONE, name="chat.jsonl")),
                 [("Ctrl-D leaves", "count\r"), ("/apply asks", "/diff\r"),
                  ("data.csv", "/help\r"), ("/quit", "\x04")]),
        "review": (run, [("change:", "?\r"), ("goes on with it", "change:", "f\r"), ("Apply this?", "y\r")]),
        "plan": (("plan", "count", "-m", plan, "--folder", str(stage.demo)),
                 [("[Y/n]", "y\r"), ("feedback for", "y\r")]),
        "code": (("code", "two() gives 2", "-m", code, "--no-input", "--example", "two() == 2"), []),
        "list": (("runs", "list"), []),
        "show": (("runs", "show"), []),
        "models": (("model", "list"), []),
        "bots": (("bots",), []),
        "doctor": (("doctor",), []),
        "wrong": (("run", "x", "-m", f"scripted/{'/nowhere' * 12}"), []),
    }  # fmt: skip


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "160x50"])
def test_no_line_of_ours_is_broken_wrongly(stage: Stage, start: Start, size: tuple[int, int]) -> None:
    for name, (words, typed) in flows(stage).items():
        screen = start(*words, size=size)
        for *seen, keys in typed:
            screen.until(*seen)
            screen.type(keys)
        screen.status()
        assert broken(screen, size[0]) == [], name
        assert colours(screen.cells) <= _ON_WHITE_AND_BLACK, name


def colours(text: str) -> set[str]:
    """What chooses a colour in it; that of the terminal itself (39, 49) is none."""
    numbers = {n for found in re.findall(r"\x1b\[([0-9;]*)m", text) for n in found.split(";")}
    return {n for n in numbers if re.fullmatch(r"3[0-8]|4[0-8]|9\d|10[0-7]", n)}


def painted(
    stage: Stage, *words: str, size: tuple[int, int] = (24, 80), pause_s: float = 0.0, piece: int = 65536, **env: str
) -> bytes:
    """What a command wrote to a terminal, which takes so many bytes at once and then waits."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    environment = {k: v for k, v in stage.environment().items() if k not in _NOT_HERE}
    process = subprocess.Popen(
        ["setsid", "-c", sys.executable, "-m", "stockade.cli", *words], stdin=theirs, stdout=theirs, stderr=theirs,
        env={**environment, "TERM": "xterm-256color", **env},
    )  # fmt: skip
    stage.terminals.append(process)
    os.close(theirs)
    data = b""
    try:
        while more := os.read(ours, piece):
            data += more
            time.sleep(pause_s)
    except OSError:
        pass
    os.close(ours)
    process.wait(PATIENCE_S)
    return data


def run(stage: Stage, *answers: Any, **how: Any) -> bytes:
    model = stage.script(*answers or (WORK, DONE))
    return painted(
        stage, "run", "count", "--folder", str(stage.demo), "-m", model, "--no-input", *how.pop("flags", ()), **how
    )


def test_colours_are_those_of_the_terminal_whatever_its_background(stage: Stage) -> None:
    wrong = say("shell", command="for i in 1; do echo \"$i\" 'two' >&2; done # so\nfalse")
    text = run(stage, wrong, WORK, say("finish", answer=ANSWER + BLOCK), flags=("--check", "false")).decode()
    assert {"31", "35"} <= colours(text) <= _ON_WHITE_AND_BLACK, "no background, and no table of 256"
    assert not re.search(r"\x1b\[1;32", text), "many terminals draw bold green as bright green"


@pytest.mark.parametrize(
    ("env", "flags", "none_of"),
    [
        ({"NO_COLOR": "1"}, (), _COLOURS),
        ({"TERM": "dumb"}, (), re.compile(r"[\x1b\r\x07]")),
        ({}, ("--plain",), re.compile(r"[\x1b\r\x07]")),
    ],
    ids=["NO_COLOR", "dumb", "plain"],
)
def test_no_colour_where_none_belongs(
    stage: Stage, env: dict[str, str], flags: tuple[str, ...], none_of: re.Pattern[str]
) -> None:
    text = run(stage, flags=flags, **env).decode().replace("\r\n", "\n")
    assert "three" in text
    assert not none_of.findall(text)


def test_json_that_was_asked_for_is_drawn_as_it_was_written(stage: Stage) -> None:
    words = '{"lines": "**3** of `wc`"}'
    assert words in run(stage, say("finish", answer=words), flags=("--output-schema", "{}")).decode()


def test_in_a_pipe_the_answer_is_as_it_was_written(stage: Stage) -> None:
    ended = stage.run(WORK, DONE, flags=("--no-input",))
    assert ended.out == f"{ANSWER}\n"
    assert "\x1b" not in ended.err
    assert "\x07" not in ended.err


def lines_of(data: bytes) -> list[str]:
    """Those that stay: what is drawn and erased again is not among them."""
    kept = [_MOVES.split(line)[-1] for line in data.split(b"\r\n")]
    return [re.sub(r"\x1b\[[0-9;]*m", "", line.decode()) for line in kept]


def test_over_a_slow_line_every_line_is_whole_and_in_order(stage: Stage) -> None:
    many = say("shell", command="for i in $(seq 25); do echo line $i of many; sleep 0.02; done")
    seen = lines_of(run(stage, many, say("finish", answer="done"), piece=64, pause_s=0.02))
    assert [line for line in seen if "of many" in line and "$" not in line] == [
        f"line {n} of many" for n in range(1, 26)
    ]


def test_a_flood_is_folded_as_it_comes(stage: Stage) -> None:
    flood = say("shell", command="yes 'a line of forty characters, more or less' | head -c 100000000; echo; echo end")
    data = run(stage, flood, say("finish", answer="flooded"))
    assert len(data) < 200_000
    seen = lines_of(data)
    assert "end" in seen
    assert len([line for line in seen if line.startswith("a line of forty")]) <= 40


def test_a_terminal_that_is_resized_amid_a_run(stage: Stage, start: Start) -> None:
    wait = say("shell", command="echo begun; while [ ! -e gone ]; do sleep 0.1; done")
    model = stage.script(wait, DONE)
    words = ("run", "wait", "--folder", f"{stage.demo}:rw", "-m", model, "--no-input")
    screen = start(*words, size=(160, 50))
    screen.until("begun", "running ")
    screen.resize(60, 20)
    screen.until("running ")
    (stage.demo / "gone").touch()
    assert screen.status() == 0
    text = screen.text
    answer = text[text.index("Lines\n") :]
    assert max(len(line.rstrip()) for line in answer.split("\n")) <= 60
    assert "running " not in text, "what is drawn and erased again has left nothing"
