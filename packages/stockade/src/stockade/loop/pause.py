"""A user may hold a run between two steps, say a word to the bot, and let it go on; a machine that sleeps holds it."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from stockade.core.events import MessageInjected, Paused
from stockade.core.ports import Clock
from stockade.loop.record import Record

LEAST_SLEEP_S = 10.0
"""Shorter than a machine sleeps, longer than its clock is set by in small steps."""


@dataclass(slots=True, eq=False)
class _Awake:
    """A run at work. `ahead_s`: how far the clock of the record is ahead of one that stands still while it sleeps."""

    record: Record
    clock: Clock
    ahead_s: float

    async def look(self) -> None:
        """Puts on record how long it has slept since the last look."""
        ahead_s = self.clock.now() - self.clock.monotonic()
        slept_s, self.ahead_s = ahead_s - self.ahead_s, ahead_s
        if abs(slept_s) >= LEAST_SLEEP_S:
            await self.record.add(Paused(at=self.clock.now(), duration_s=slept_s, slept=True))


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
    _awake: list[_Awake] = field(default_factory=list)
    _standing: int = 0
    _asked: list[tuple[float, str | None]] = field(default_factory=list)

    @contextmanager
    def watching(self, deadline: anyio.CancelScope, record: Record, clock: Clock) -> Iterator[None]:
        """A bot, or one that works for it, at work: its time stands still while the run is held, even now."""
        self._deadlines[deadline] = 0.0
        if self._standing:
            self._freeze(deadline)
        awake = _Awake(record, clock, clock.now() - clock.monotonic())
        self._awake.append(awake)
        try:
            yield
        finally:
            self._awake.remove(awake)
            del self._deadlines[deadline]

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
        for awake in list(self._awake):
            await awake.look()
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
