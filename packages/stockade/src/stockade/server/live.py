"""A run that is under way in the server: how it is asked, answered and heard."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from stockade.approval.approver import Authoriser, Question
from stockade.core.errors import UsageError
from stockade.core.events import ModelAnswered, RunEvent, SandboxStarted
from stockade.loop.pause import PausingPrompt
from stockade.loop.run_context import Dependencies
from stockade.runtime import factory
from stockade.server.models import Asked
from stockade_sandbox.results import FolderLayer


class Conflicting(UsageError):
    """It cannot be done while the run is as it is."""


@dataclass(slots=True, eq=False)
class Live:
    """A run that is under way here, or about to be. `allowance`: USD that it may cost beyond the `before` of its record
    then, as its token's bound has it.
    """

    owner: str
    heard: Callable[["Live", RunEvent], None]
    run_id: str = ""
    prepared: factory.Prepared | None = None
    asked: dict[int, Asked] = field(default_factory=dict)
    replies: dict[int, str] = field(default_factory=dict)
    news: anyio.Event = field(default_factory=anyio.Event)
    begun: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    failed: BaseException | None = None
    layers: tuple[FolderLayer, ...] = ()
    turns: int = 0
    numbered: int = 0
    before: float = 0.0
    allowance: float = 0.0

    @property
    def parts(self) -> Dependencies:
        assert self.prepared is not None
        return self.prepared.parts

    def event(self, event: RunEvent) -> None:
        """In the event loop, when it is on record."""
        match event:
            case SandboxStarted():
                self.layers = event.layers
            case ModelAnswered():
                self.turns += 1
            case _:
                pass
        self.begun.set()
        self.heard(self, event)

    async def ask(self, **what: Any) -> str:
        """The reply, as a user would have typed it. Nobody needs to be there."""
        self.numbered += 1
        number = self.numbered
        self.asked[number] = Asked(number=number, at=time.time(), **self.parts.redactor.data(what))
        try:
            while number not in self.replies:
                self.news = anyio.Event()
                await self.news.wait()
            return self.replies.pop(number)
        finally:
            del self.asked[number]

    def reply(self, number: int, typed: str) -> None:
        """Conflicting when that is not asked, or not any more."""
        if number not in self.asked or number in self.replies:
            raise Conflicting(f"run {self.run_id} does not ask number {number} any more", "look at its approvals")
        self.replies[number] = typed
        self.news.set()

    def attach(self) -> None:
        """From now on clients are asked."""
        if isinstance(self.parts.asker, PausingPrompt):
            self.parts.asker.answer = lambda question: self.ask(question=question)
        if isinstance(self.parts.approver, Authoriser):
            self.parts.approver.ask = self._approve

    async def _approve(self, question: Question, problem: str | None) -> str:
        dumped = question.model_dump(mode="json")
        return await self.ask(action=dumped["action"], judgements=dumped["judgements"], problem=problem)
