"""A real terminal with a screen: `stockade` in tmux, keys typed and all that was on the screen read back."""

import os
import subprocess
import sys
import time
from pathlib import Path

_CONF = """\
set -g history-limit 20000
set -g default-terminal xterm-256color
set -s escape-time 0
"""
_TOLD = 'printf %s "$1"; shift; "$@"; echo "status=$?"; exec sleep 100000'


class Screen:
    """`arguments` of the command; `patience_s` until what is waited for has to be there; `above`: what is on the
    screen before it."""

    def __init__(
        self, place: Path, arguments: list[str], folder: Path, environment: dict[str, str], patience_s: float,
        size: tuple[int, int] = (120, 40), above: str = "",
    ) -> None:  # fmt: skip
        conf = place / "tmux.conf"
        conf.write_text(_CONF)
        self._tmux = ["tmux", "-f", str(conf), "-S", str(place / f"tmux-{time.monotonic_ns()}")]
        self._environment = {**environment, "TMUX": ""}
        self._patience_s, self._mark = patience_s, 0
        columns, rows = size
        command = ["sh", "-c", _TOLD, "sh", above, sys.executable, "-m", "stockade.cli", *arguments]
        self._do("new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(folder), *command)

    def _do(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], env=self._environment, capture_output=True, check=True, timeout=60
        )  # fmt: skip
        return done.stdout.decode()

    @property
    def text(self) -> str:
        """All that was ever on it, wrapped lines joined."""
        return self._do("capture-pane", "-p", "-J", "-S", "-").rstrip()

    @property
    def cells(self) -> str:
        """All that was ever on it with its colours, as escapes, a line a row."""
        return self._do("capture-pane", "-p", "-e", "-S", "-")

    @property
    def rows(self) -> str:
        """What is on it now with its colours, as escapes, a line a row."""
        return self._do("capture-pane", "-p", "-e")

    @property
    def modes(self) -> tuple[bool, bool]:
        """Whether it is the other screen, and whether the mouse is told."""
        other, mouse = self._do("display-message", "-p", "#{alternate_on} #{mouse_any_flag}").split()
        return other == "1", mouse == "1"

    @property
    def pid(self) -> int:
        """Of the command."""
        shell = self._do("display-message", "-p", "#{pane_pid}").strip()
        return int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])

    def until(self, *seen: str) -> None:
        """Each is on the screen, one behind the other, below where the line stood when something was last typed."""
        end = time.monotonic() + self._patience_s
        while not self._has(seen):
            assert time.monotonic() < end, f"{seen} is not in:\n{self.text[self._mark :]}"
            time.sleep(0.05)

    def _has(self, seen: tuple[str, ...]) -> bool:
        text, at = self.text, self._mark
        for one in seen:
            if (at := text.find(one, at)) < 0:
                return False
            at += len(one)
        return True

    def type(self, words: str) -> None:
        """As it is, control characters too."""
        text = self.text
        self._mark = max(0, text.rfind("\n> "))
        self._do("send-keys", "-H", *(f"{byte:x}" for byte in words.encode()))

    def resize(self, columns: int, rows: int) -> None:
        """Returns when the command can see it, which tmux puts off a little."""
        self._do("resize-window", "-x", str(columns), "-y", str(rows))
        end = time.monotonic() + self._patience_s
        with Path(self._do("display-message", "-p", "#{pane_tty}").strip()).open() as tty:
            while os.get_terminal_size(tty.fileno()) != (columns, rows):
                assert time.monotonic() < end, os.get_terminal_size(tty.fileno())
                time.sleep(0.05)

    def status(self) -> int:
        """Waits for the end of the command."""
        self.until("\nstatus=")
        return int(self.text.rpartition("\nstatus=")[2])

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], env=os.environ, capture_output=True, check=False, timeout=60)
