"""The two consoles: results on stdout, progress on stderr. Colours only on a terminal, and not with NO_COLOR."""

import os
import stat
import sys

from rich.console import Console

PIPE_WIDTH = 200


class _Console(Console):
    """Rich would end the process when its reader has gone. A run goes on without its picture; a result is an error."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        if not self.stderr:
            raise BrokenPipeError


def results(*, plain: bool = False) -> Console:
    return _console(stderr=False, plain=plain)


def progress(*, plain: bool = False) -> Console:
    return _console(stderr=True, plain=plain)


def _console(*, stderr: bool, plain: bool) -> Console:
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return _Console(
        stderr=stderr,
        no_color=True if plain else None,
        color_system=None if plain else "auto",
        width=None if terminal else PIPE_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )


def can_ask(*, no_input: bool) -> bool:
    """Whether there is a person: a question on stderr would be seen, and an answer can be typed."""
    return not no_input and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def piped_input(limit: int) -> bytes:
    """What was piped in, or redirected from a file, up to `limit` bytes and one; nothing from a terminal or device."""
    if sys.stdin is None or stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode):
        return b""
    return sys.stdin.buffer.read(limit + 1)


def moves_cursor(console: Console, *, plain: bool) -> bool:
    """Whether a line may be drawn and erased again."""
    return console.is_terminal and not plain and not console.is_dumb_terminal and "CI" not in os.environ
