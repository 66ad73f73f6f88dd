"""A run that is under way in the server: how it is asked, answered and heard."""

import codecs
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from stockade.approval.approver import Authoriser, Question
from stockade.core.errors import UsageError
from stockade.core.events import ActionFinished, ModelAnswered, RunEvent, SandboxStarted
from stockade.core.ports import OnText
from stockade.core.secrets import EXACT, Redactor
from stockade.loop.pause import PausingPrompt
from stockade.loop.run_context import Dependencies
from stockade.runtime import factory
from stockade.server.models import Asked, Output
from stockade_sandbox.port import Sandbox, ShowsOutput
from stockade_sandbox.results import FolderLayer, Stream

_KEPT_CHARS = 64 << 10


class Conflicting(UsageError):
    """It cannot be done while the run is as it is."""


@asynccontextmanager
async def in_turn(sandbox: Sandbox, turns: anyio.CapacityLimiter) -> AsyncIterator[Sandbox]:
    """It starts when it is its turn: where many are to start at once, whoever asks for something else does not wait."""
    async with AsyncExitStack() as stack:
        async with turns:
            await stack.enter_async_context(sandbox)
        yield sandbox


class LiveOutput:
    """What the command that runs has written, the last of it, without secrets; nothing of it is kept when it ends."""

    def __init__(self, redactor: Redactor, heard: Callable[[], None]) -> None:
        self._redactor, self._heard = redactor, heard
        self._streams: dict[Stream, tuple[codecs.BufferedIncrementalDecoder, OnText]] = {}
        self._pieces = deque[tuple[int, Stream, str]]()
        self._kept = self._written = 0

    def add(self, stream: Stream, data: bytes) -> None:
        if stream not in self._streams:
            decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
            self._streams[stream] = decoder, self._redactor.stream(partial(self._take, stream))
        decoder, hidden = self._streams[stream]
        hidden(decoder.decode(data))
        self._heard()

    def _take(self, stream: Stream, text: str | None) -> None:
        text = (text or "")[-_KEPT_CHARS:]
        if not text:
            return
        self._written += len(text)
        self._kept += len(text)
        self._pieces.append((self._written, stream, text))
        while self._kept > _KEPT_CHARS:
            self._kept -= len(self._pieces.popleft()[2])

    def end(self) -> None:
        """Its end is on record, and what counts of it."""
        self._streams.clear()
        self._pieces.clear()
        self._kept = 0

    def since(self, mark: int) -> tuple[int, list[Output]]:
        """What was written behind `mark`, which is the one of the last answer or 0, and the next mark."""
        found = list[Output]()
        mark = mark if mark <= self._written else 0
        for end, stream, text in self._pieces:
            if end > mark:
                missed = 0 if found else max(0, end - len(text) - mark) if mark else 0
                found.append(Output(stream=stream, text=text[-(end - mark) :], missed=missed))
        return self._written, found


@dataclass(slots=True, eq=False)
class Live:
    """A run that is under way here, or about to be. `allowance`: USD that it may cost beyond the `before` of its record
    then, as its token's bound has it.
    """

    owner: str
    heard: Callable[["Live"], None]
    run_id: str = ""
    prepared: factory.Prepared | None = None
    output: "LiveOutput" = field(default_factory=lambda: LiveOutput(EXACT, lambda: None))
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
            case ActionFinished():
                self.output.end()
            case _:
                pass
        self.begun.set()
        self.heard(self)

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
        """From now on clients are asked, and hear what commands write."""
        if isinstance(sandbox := self.parts.sandbox, ShowsOutput):
            self.output = LiveOutput(self.parts.redactor, lambda: self.heard(self))
            sandbox.on_output = self.output.add
        if isinstance(self.parts.asker, PausingPrompt):
            self.parts.asker.answer = lambda question: self.ask(question=question)
        if isinstance(self.parts.approver, Authoriser):
            self.parts.approver.ask = self._approve

    async def _approve(self, question: Question, problem: str | None) -> str:
        dumped = question.model_dump(mode="json")
        return await self.ask(action=dumped["action"], judgements=dumped["judgements"], problem=problem)
