"""Calling the user back: the bell of the terminal, and a command of theirs (`--notify`).

Neither says a word of the bot's in a place that obeys: the bell is fixed words, the command gets JSON on its input.
"""

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rich.console import Console

from stockade.cli.ui.failures import say
from stockade.cli.ui.prompts import Typed
from stockade.cli.ui.safe import screen
from stockade.core.events import ActionStarted, RunEvent, RunFinished, RunResumed, RunStarted

LONG_S = 30.0
"""Who waits less is still looking."""
COMMAND_S = 10.0
"""How long the command of `--notify` may take."""
_POPS_UP = ("xterm", "tmux", "screen", "rxvt", "alacritty", "foot", "wezterm", "ghostty", "kitty", "konsole", "gnome")
"""Beginnings of TERM whose terminals know OSC 9, or pass over it. The Linux console would print it."""


class Attention:
    """`console`: where the bell rings, None for nowhere. `command`: a line for `sh`, empty for none."""

    def __init__(self, console: Console | None, command: str = "", environ: Mapping[str, str] = os.environ) -> None:
        self._bell = console if console is not None and console.is_terminal and not console.is_dumb_terminal else None
        self._command, self._environ = command, environ
        self._started: RunStarted | None = None
        self._since: float | None = None
        self._action: dict[str, Any] = {}
        self._running: list[threading.Thread] = []
        self._failed: list[str] = []

    def event(self, event: RunEvent) -> None:
        """Of the run, in order."""
        if isinstance(event, RunStarted):
            self._started = event
        if isinstance(event, RunStarted | RunResumed):
            self._since = event.at
        elif isinstance(event, ActionStarted):
            self._action = event.action.action.model_dump()
        elif isinstance(event, RunFinished) and self._since is not None:
            seconds, self._since = max(0.0, event.at - self._since), None
            self._ring(seconds, f"the run has ended: {event.status}")
            self._tell(
                event="ended", seconds=seconds, status=event.status, reason=event.reason, verified=event.verified,
                answer=event.answer, changes=len(event.changes),
            )  # fmt: skip

    def around(self, typed: Typed) -> Typed:
        """The same for a question about the action that has begun; when it is answered, patience begins anew."""

        async def asking(question: str, **how: Any) -> str | None:
            seconds = 0.0 if self._since is None else max(0.0, time.time() - self._since)
            self._ring(seconds, "the bot asks")
            self._tell(event="asks", seconds=seconds, action=self._action)
            try:
                return await typed(question, **how)
            finally:
                self._since = time.time()

        return asking

    def _ring(self, seconds: float, words: str) -> None:
        if self._bell is None or seconds <= LONG_S:
            return
        pops_up = self._environ.get("TERM", "").startswith(_POPS_UP)
        self._bell.file.write(f"\x1b]9;stockade: {words}\x1b\\\a" if pops_up else "\a")
        self._bell.file.flush()

    def _tell(self, **facts: Any) -> None:
        """The command runs beside us, with the facts on its input."""
        if not self._command:
            return
        run = {} if self._started is None else {
            "run": self._started.run_id, "task": self._started.task,
            "folder": next((rule.host for rule in self._started.policy.folders), None),
        }  # fmt: skip
        data = json.dumps(screen().data({**run, **facts})).encode()
        thread = threading.Thread(target=self._run, args=(data,), daemon=True)
        thread.start()
        self._running.append(thread)

    def _run(self, data: bytes) -> None:
        null = subprocess.DEVNULL
        with tempfile.TemporaryFile() as facts:  # no pipe, whose reader might not read
            try:
                facts.write(data)
                facts.seek(0)
                process = subprocess.Popen(
                    ["sh", "-c", self._command], stdin=facts, stdout=null, stderr=null, start_new_session=True
                )
            except (OSError, ValueError) as error:
                self._failed.append(str(error))
                return
        try:
            if status := process.wait(COMMAND_S):
                self._failed.append(f"status {status}")
        except subprocess.TimeoutExpired:
            self._failed.append(f"it did not end within {COMMAND_S:g} s")
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """Waits for the command, no longer than it may take, and says how it failed."""
        for thread in self._running:
            thread.join()
        self._running.clear()
        for why in dict.fromkeys(self._failed):
            say(f"--notify failed: {why}")
        self._failed.clear()
