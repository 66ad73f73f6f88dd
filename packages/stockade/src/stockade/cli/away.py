"""The run's side of `run --detach`: no terminal, all that it shows in a log, and its user at a socket, if at all.

Lines of JSON. To whoever is attached `{"asks": N}`: question N stands in the log, 0 is none; from them `{"line": TEXT,
"to": N}`, which answers that question and no other, or is a word to the bot where N is 0, and `{"interrupt": true}`,
a Ctrl-C. The socket is its user's alone.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteStream, SocketListener, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from stockade.cli.talk import Talk
from stockade.cli.ui.failures import say
from stockade.cli.ui.interrupt import Interrupt
from stockade.cli.ui.safe import fit_for_terminal
from stockade.cli.ui.watch import Watch
from stockade.core.events import ModelStarted, RunEvent, RunFinished
from stockade.core.ports import RunStore
from stockade.paths import run_dir
from stockade.run_lock import CONTROL, LOG
from stockade.runtime.factory import Prepared
from stockade_sandbox.keeping import by_descriptor
from stockade_sandbox.unix_streams import taken_over

MAX_LINE_BYTES = 65_536
_STUCK_S = 1.0
"""After which a terminal that reads nothing is waited for no longer."""
_ENDS = (anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError,
         anyio.ClosedResourceError, ValueError)  # fmt: skip
"""What a connection may end with: it was closed, or what came is none of ours."""


@dataclass(slots=True)
class _Question:
    number: int
    text: str
    line: str | None = None
    news: anyio.Event = field(default_factory=anyio.Event)


class Away(Talk):
    """With a user who attaches and leaves. Questions about what the bot may do wait for them; what becomes of the
    changes is asked only while somebody is there.
    """

    detached = True
    live = False

    def __init__(self, log: Path, started: Callable[[str], None]) -> None:
        """`log` is where the run writes now; `started` is told the run when its sandbox is up and its model there."""
        super().__init__()
        self._log, self._started = log, started
        self._there: list[ByteStream] = []
        self._asked = 0
        self._open: list[_Question] = []
        self.typed, self.deciding = self._ask, partial(self._ask, waits=False)

    def bind(self, watch: Watch, interrupt: Interrupt, store: RunStore) -> None:
        super().bind(watch, interrupt, store)
        self.asks = not (watch.silent or watch.front.no_input)

    def attach(self, prepared: Prepared, group: TaskGroup) -> Prepared:
        prepared = super().attach(prepared, group)
        run_id, parts = prepared.started.run_id, prepared.parts
        self.watch.renderer.echoes, self._group, self._prepared = True, group, prepared
        if self.watch.asker is not None:
            self.watch.asker.typed = self._paused
        folder = run_dir(run_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._log.replace(folder / LOG)
        group.start_soon(self._serve, _listening(folder))

        def heard(event: RunEvent) -> None:
            if parts.on_event is not None:
                parts.on_event(event)
            if isinstance(event, ModelStarted):
                self._started(run_id)

        return replace(prepared, parts=replace(parts, on_event=heard))

    async def next(self, finished: RunFinished) -> Sequence[RunEvent]:
        if not self._there:
            self.asks = False
            return ()
        return await super().next(finished)

    async def _paused(self, question: str) -> str | None:
        """Whoever held it and has left holds it no longer."""
        line = await self._ask(question, waits=False)
        return line if self._there else "continue"

    async def _ask(
        self, text: str, *, fresh: bool = True, leave: anyio.Event | None = None, waits: bool = True
    ) -> str | None:
        """The line that answers it; None when `leave` was set before, and not `waits` when nobody is there."""
        self._asked += 1
        question = _Question(self._asked, text)
        self._open.append(question)
        try:
            await self._show(question)
            if waits and not self._there:
                say("waiting for your answer", f"stockade runs attach {self._prepared.started.run_id}")
            while question.line is None and (waits or self._there):
                question.news = anyio.Event()
                await _either(question.news, leave)
                if leave is not None and leave.is_set():
                    break
        finally:
            self._open.remove(question)
            self._write(f"{question.line or ''}\n")
            with anyio.CancelScope(shield=True):
                await self._show(self._open[-1] if self._open else None)
        return question.line

    async def _show(self, question: _Question | None) -> None:
        """The one that is to be answered now: who is attached knows its number before its text can be read."""
        with anyio.move_on_after(_STUCK_S):
            async with anyio.create_task_group() as group:
                for stream in self._there:
                    group.start_soon(self._tell, stream)
        if question is not None:
            self._write(question.text)

    def _write(self, text: str) -> None:
        sys.stderr.write(fit_for_terminal(text))
        sys.stderr.flush()

    async def _tell(self, stream: ByteStream) -> None:
        with suppress(*_ENDS):
            await stream.send(json.dumps({"asks": self._open[-1].number if self._open else 0}).encode() + b"\n")

    async def _serve(self, listening: socket.socket) -> None:
        async with await SocketListener.from_socket(listening) as listener:
            await listener.serve(self._hear)

    async def _hear(self, connection: ByteStream) -> None:
        async with await taken_over(connection) as stream:
            self._there.append(stream)
            try:
                await self._tell(stream)
                lines = BufferedByteReceiveStream(stream)
                while True:
                    self._take(json.loads(await lines.receive_until(b"\n", MAX_LINE_BYTES)))
            except _ENDS:
                pass
            finally:
                self._there.remove(stream)
                for question in self._open:
                    question.news.set()

    def _take(self, said: Any) -> None:
        """ValueError for what is none of ours."""
        match said:
            case {"interrupt": True}:
                os.kill(os.getpid(), signal.SIGINT)
            case {"line": str(line), "to": int(number)}:
                current = self._open[-1] if self._open else None
                if current is not None and current.number == number and current.line is None:
                    current.line = line.strip()
                    current.news.set()
                elif not number and line.strip() and self.asks:
                    self._prepared.parts.pause.words.append(line.strip())
                    self.watch.renderer.note("the bot is told before its next turn")
            case _:
                raise ValueError("no message of ours")


async def _either(news: anyio.Event, leave: anyio.Event | None) -> None:
    async with anyio.create_task_group() as group:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        for event in (news, leave):
            if event is not None:
                group.start_soon(wait, event)


def _listening(folder: Path) -> socket.socket:
    """At a path that is short, however deep the folder lies."""
    (folder / CONTROL).unlink(missing_ok=True)
    place = by_descriptor(folder)
    found = socket.socket(socket.AF_UNIX)
    try:
        found.bind(path := f"/proc/self/fd/{place}/{CONTROL}")
        os.chmod(path, 0o600)
        found.listen(16)
    finally:
        os.close(place)
    return found
