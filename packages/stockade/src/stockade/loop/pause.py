"""A user may hold a run between two steps, say a word to the bot, and let it go on."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from stockade.core.events import MessageInjected, Paused
from stockade.core.ports import Clock
from stockade.loop.record import Record


@dataclass(slots=True)
class Pause:
    """What is under way goes on to its end; nothing new begins while the run is held. That time is nobody's.

    `stopped` says why nothing new begins at all any more.
    """

    held: bool = False
    stopped: str | None = None
    words: list[str] = field(default_factory=list)
    _go: anyio.Event = field(default_factory=anyio.Event)
    _deadlines: dict[anyio.CancelScope, float] = field(default_factory=dict)
    _standing: int = 0
    _asked: list[tuple[float, str | None]] = field(default_factory=list)

    def watch(self, deadline: anyio.CancelScope) -> None:
        """A time limit, of a bot or of one that works for it, that stands still while the run is held, even now."""
        self._deadlines[deadline] = 0.0
        if self._standing:
            self._freeze(deadline)

    def hold(self) -> None:
        """From the event loop."""
        if self.held:
            return
        self.held, self._go = True, anyio.Event()
        self._stop_clock()

    def stop(self, why: str) -> None:
        """The run closes in order before its next step; `why` goes on record."""
        self.stopped = self.stopped or why

    @contextmanager
    def away(self) -> Iterator[list[str]]:
        """Around a question about a step: what the user says to it is appended, and recorded before the next one."""
        since, replies = anyio.current_time(), list[str]()
        self._stop_clock()
        try:
            yield replies
        finally:
            self._start_clock()
            self._asked.append((anyio.current_time() - since, " / ".join(replies) or None))

    def _stop_clock(self) -> None:
        self._standing += 1
        if self._standing == 1:
            for deadline in self._deadlines:
                self._freeze(deadline)

    def _freeze(self, deadline: anyio.CancelScope) -> None:
        self._deadlines[deadline] = deadline.deadline - anyio.current_time()
        deadline.deadline = float("inf")

    def _start_clock(self) -> None:
        self._standing -= 1
        if not self._standing:
            for deadline, left_s in self._deadlines.items():
                deadline.deadline = anyio.current_time() + left_s

    def go_on(self, word: str | None = None) -> None:
        """From the event loop. `word` is for the bot, before its next turn."""
        if word:
            self.words.append(word)
        if self.held:
            self.held = False
            self._start_clock()
            self._go.set()

    async def passed(self, record: Record, clock: Clock) -> bool:
        """Returns when the run is not held, with the time that it was on record, and what the user said.

        False when nothing more shall begin.
        """
        while self._asked:
            duration_s, text = self._asked.pop(0)
            await record.add(Paused(at=clock.now(), duration_s=duration_s, said=text))
        while self.held:
            since = clock.monotonic()
            await self._go.wait()
            await record.add(Paused(at=clock.now(), duration_s=clock.monotonic() - since))
        return self.stopped is None

    async def said(self, record: Record, clock: Clock, turn: int) -> None:
        """Puts on record what the user said meanwhile."""
        while self.words:
            text = f"The user says: {self.words.pop(0)}"
            await record.add(MessageInjected(at=clock.now(), turn=turn, source="user", text=text))


@dataclass(slots=True)
class PausingPrompt:
    """Implements core.ports.UserPrompt: questions to the user, while the run's time stands still.

    Nobody, until somebody sets `answer`, which shows a question and returns what was typed, None for nothing.
    """

    pause: Pause
    answer: Callable[[str], Awaitable[str | None]] | None = None

    @property
    def attended(self) -> bool:
        return self.answer is not None

    async def ask(self, question: str) -> str | None:
        if self.answer is None:
            return None
        with self.pause.away():
            return await self.answer(question)
