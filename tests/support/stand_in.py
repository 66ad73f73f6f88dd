#!/usr/bin/env python3
"""A small coding agent without a model: it has the whole screen, an edit tool and a shell, and asks before that runs.

On a terminal keys are its task: `e` edits a.txt, `s` asks and runs a command, `q` quits, `x`
at once, with the screen as it is.
`-p` takes the task as words; then a line `edit FILE TEXT` or `shell COMMAND` each. Standard input is the same.
"""

import os
import shutil
import signal
import subprocess
import sys
import termios
import tty

ON = "\x1b[?1049h\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[?25l\x1b[>1u"
OFF = "\x1b[<u\x1b[?25h\x1b[?2004l\x1b[?1006l\x1b[?1000l\x1b[?1049l"


def say(words: str) -> None:
    sys.stdout.write(f"\x1b[32m{words}\x1b[0m\r\n")
    sys.stdout.flush()


def edit(name: str, text: str) -> None:
    with open(name, "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def size(*_: object) -> None:
    found = shutil.get_terminal_size()
    say(f"size {found.columns}x{found.lines}")


def on_screen() -> int:
    before = termios.tcgetattr(0)
    tty.setraw(0)
    signal.signal(signal.SIGWINCH, size)
    sys.stdout.write(ON)
    say(f"stand-in term={os.environ['TERM']}")
    size()
    asks = False
    while True:
        key = os.read(0, 64)
        if asks and key == b"y":
            subprocess.run(["sh", "-c", "echo by-the-shell > made.txt; rm -f gone.txt"], check=True)
            say("ran")
        elif key == b"e":
            edit("a.txt", "edited")
            say("edited")
        elif key == b"s":
            say("May I run a command? y/n")
        elif key == b"\x03":
            say("ctrl-c is mine")
        elif key.startswith(b"\x1b[<"):
            say("mouse " + key[3:].decode())
        elif key in (b"q", b"x"):
            termios.tcsetattr(0, termios.TCSADRAIN, before)
            if key == b"q":
                sys.stdout.write(OFF)
            return 7 if key == b"x" else 0
        asks = key == b"s"


def by_itself(task: str) -> int:
    if "does not pass" in task:
        edit("a.txt", "fixed")
    for line in task.splitlines():
        word, _, rest = line.partition(" ")
        if word == "edit":
            edit(*rest.split(" ", 1))
        elif word == "shell":
            done = subprocess.run(["sh", "-c", rest], check=False, stdout=subprocess.PIPE)
            print("shell:", done.returncode, done.stdout.decode().strip())
    print("did", len(task.splitlines()), "of", os.environ.get("STAND_IN", "nothing"))
    return 0


if __name__ == "__main__":
    if "-p" in sys.argv:
        sys.exit(by_itself(sys.argv[-1] if sys.argv[-1] != "-p" else sys.stdin.read()))
    sys.exit(on_screen() if sys.stdin.isatty() else by_itself(sys.stdin.read()))
