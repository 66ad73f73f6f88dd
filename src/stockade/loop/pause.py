"""A person may hold a run between two steps, say a word to the bot, and let it go on."""

from dataclasses import dataclass, field

import anyio

from stockade.core.events import Nudged, Paused
from stockade.core.ports import Clock
from stockade.loop.record import Record


@dataclass(slots=True)
class Pause:
    """What is under way goes on to its end; nothing new begins while the run is held. That time is nobody's."""

    held: bool = False
    words: list[str] = field(default_factory=list)
    _go: anyio.Event = field(default_factory=anyio.Event)
    _deadline: anyio.CancelScope | None = None
    _left_s: float = 0.0

    def watch(self, deadline: anyio.CancelScope) -> None:
        """The time limit that stands still while the run is held, which it may be already."""
        self._deadline = deadline
        if self.held:
            self._stop_clock()

    def hold(self) -> None:
        """From the event loop."""
        if self.held:
            return
        self.held, self._go = True, anyio.Event()
        self._stop_clock()

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._left_s = self._deadline.deadline - anyio.current_time()
            self._deadline.deadline = float("inf")

    def go_on(self, word: str | None = None) -> None:
        """From the event loop. `word` is for the bot, before its next turn."""
        if word:
            self.words.append(word)
        if self.held:
            self.held = False
            if self._deadline is not None:
                self._deadline.deadline = anyio.current_time() + self._left_s
            self._go.set()

    async def passed(self, record: Record, clock: Clock) -> None:
        """Returns when the run is not held, with the time that it was on record."""
        while self.held:
            since = clock.monotonic()
            await self._go.wait()
            await record.add(Paused(at=clock.now(), duration_s=clock.monotonic() - since))

    async def said(self, record: Record, clock: Clock, turn: int) -> None:
        """Puts on record what the person said meanwhile."""
        while self.words:
            text = f"The person watching says: {self.words.pop(0)}"
            await record.add(Nudged(at=clock.now(), turn=turn, why="person", text=text))
