"""Implements core.ports.Asker: questions to the person, while the run's time stands still."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stockade.loop.pause import Pause


@dataclass(slots=True)
class Person:
    """Nobody, until somebody sets `answer`, which shows a question and returns what was typed, None for nothing."""

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
