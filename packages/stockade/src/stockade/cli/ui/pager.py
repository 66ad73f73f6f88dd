"""What is long goes to the user's pager."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

from rich.console import Console

from stockade.cli.ui.console import console_on
from stockade.cli.ui.failures import say
from stockade.cli.ui.safe import one_line


@contextmanager
def paged(console: Console) -> Iterator[tuple[Console, bool]]:
    """Where it is drawn to: $GIT_PAGER or $PAGER where one is set and there is a terminal, else the console itself.

    And whether that is `delta`, which wants a diff as git writes it and draws it itself.
    """
    words = os.environ.get("GIT_PAGER") or os.environ.get("PAGER") or ""
    try:
        argv = shlex.split(words)
    except ValueError as error:
        say(f"the pager {one_line(words)} cannot be read: {error}", "see $PAGER")
        argv = []
    if not console.is_terminal or not sys.stdin.isatty() or not argv or argv[0] == "cat":
        yield console, False
        return
    if shutil.which(argv[0]) is None:
        say(f"there is no pager {one_line(argv[0])}", "see $PAGER")
        yield console, False
        return
    env = {"LESS": "FRX", **os.environ}
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main else None  # it is the pager's, as in git
    try:
        with subprocess.Popen(argv, stdin=subprocess.PIPE, env=env) as process:
            assert process.stdin is not None
            file = TextIOWrapper(process.stdin, encoding="utf-8", errors="backslashreplace")
            there = console_on(file, console)
            with suppress(BrokenPipeError):  # nobody wants to see more
                yield there, Path(argv[0]).name == "delta"
                file.flush()
            with suppress(BrokenPipeError):
                file.close()
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)
