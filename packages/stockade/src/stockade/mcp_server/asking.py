"""The user of an MCP client as the one who is asked by a run: about actions, about the network, and what a bot wants to
know. One question at a time, put to whoever holds the call.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

import anyio
from anyio.abc import TaskGroup
from mcp.server.elicitation import render_elicitation_schema
from mcp_types import ElicitRequestFormParams, ElicitResult
from pydantic import BaseModel, Field, ValidationError

from stockade.approval.approver import Authoriser, Question, whole
from stockade.approval.network import NetworkAsker
from stockade.core.errors import UsageError
from stockade.core.secrets import EXACT
from stockade.loop.observe import clip
from stockade.loop.pause import PausingPrompt
from stockade.loop.run_context import Dependencies
from stockade.mcp_server.results import Finished

WAIT_S = 3600.0
"""How long a question waits for a client that has it and holds no call."""
MAX_SHOWN = 200_000
"""Characters of an action: nobody allows what cannot be shown whole."""
_REFUSED = "it was refused, without a word"
_TYPED = {"allow": "y", "allow in this run": "run", "always allow in this folder": "always"}
_TRIES = 3
T = TypeVar("T", bound=BaseModel)


class Decision(BaseModel):
    """On an action."""

    decision: Literal["allow", "allow in this run", "always allow in this folder", "refuse"]
    note: str = Field(default="", max_length=10_000, description="If refused: words for the bot.")


class Answer(BaseModel):
    """To the bot."""

    answer: str = Field(max_length=100_000)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the client shall show: words, and a form of these fields."""

    number: str
    message: str
    form: type[BaseModel]

    @property
    def params(self) -> ElicitRequestFormParams:
        return ElicitRequestFormParams(message=self.message, requested_schema=render_elicitation_schema(self.form))


class User:
    """Of one run, which goes on while no call is there. `asked` is what waits for a reply."""

    def __init__(self) -> None:
        self.heard: Callable[[str], None] = lambda words: None
        self.asked: Asked | None = None
        self._redactor = EXACT
        self._numbered = 0
        self._reply: ElicitResult | str | None = None
        self._turn, self._news, self._replied = anyio.Lock(), anyio.Event(), anyio.Event()
        self._scope, self._over = anyio.CancelScope(), anyio.Event()
        self._end: Finished | BaseException | None = None

    # For the run

    def attach(self, parts: Dependencies) -> None:
        """From now on it asks this user."""
        self._redactor = parts.redactor
        if isinstance(parts.approver, Authoriser):
            parts.approver.ask = self._approve
        if isinstance(parts.network, NetworkAsker):
            parts.network.ask = self._network
        if isinstance(parts.asker, PausingPrompt):
            parts.asker.answer = self._answer

    async def drive(self, work: Callable[[], Awaitable[Finished]]) -> None:
        """The run to its end, whatever becomes of it."""
        try:
            with self._scope:
                self._end = await work()
        except Exception as error:  # noqa: BLE001 (it belongs to who holds the call)
            self._end = error
        finally:
            self._over.set()
            self._news.set()

    async def _approve(self, question: Question, problem: str | None) -> str | None:
        reasons = [f"{one.text.strip()[:200]}: {one.reason}" for one in question.judgements if one.decision != "allow"]
        text = whole(question.action)
        if len(text) > MAX_SHOWN:
            return f"it was refused: {len(text)} characters are too many to be shown to the user"
        return await self._decide("\n".join(("The bot wants to do this:", text, *reasons)), problem)

    async def _network(self, rule: str, problem: str | None) -> str | None:
        typed = await self._decide(f"A program in the sandbox wants to reach {rule}.", problem)
        return typed if typed is None or typed in _TYPED.values() else "n"

    async def _decide(self, message: str, problem: str | None) -> str | None:
        """As a user would have typed it; None ends the run."""
        said = await self._ask(message, Decision, problem)
        if isinstance(said, str):
            return f"it was refused: {said}"
        if isinstance(said, Decision):
            return _TYPED.get(said.decision) or (f"it was refused: {said.note}" if said.note.strip() else _REFUSED)
        return _REFUSED if said else None

    async def _answer(self, question: str) -> str | None:
        said = await self._ask(f"The bot asks: {clip(question, MAX_SHOWN)}", Answer)
        return said.answer if isinstance(said, Answer) and said.answer.strip() else None

    async def _ask(self, message: str, form: type[T], problem: str | None = None) -> T | bool | str:
        """What was filled in; True for a no, False where the user leaves or nobody replies; why nobody could be asked.
        What does not fit the form is asked again.
        """
        async with self._turn:
            for _ in range(_TRIES):
                found = await self._put("\n".join(filter(None, (_shown(self._redactor.text(message)), problem))), form)
                if isinstance(found, str):
                    return found
                if found is None or found.action != "accept":
                    return found is not None and found.action == "decline"
                try:
                    return form.model_validate(found.content)
                except ValidationError as error:
                    problem = f"The reply does not fit the form: {error.errors()[0]['msg']}"
        return "no reply fitted the form"

    async def _put(self, message: str, form: type[BaseModel]) -> ElicitResult | str | None:
        self._numbered += 1
        self._reply, self._replied = None, anyio.Event()
        self.asked = Asked(str(self._numbered), message, form)
        self._news.set()
        try:
            with anyio.move_on_after(WAIT_S):
                await self._replied.wait()
            return self._reply
        finally:
            self.asked = None

    # For who holds the call

    def reply(self, number: str, said: ElicitResult | str) -> None:
        """`said`: what the client came back with, or why it could not ask. Nothing where that is not asked any more."""
        if self.asked is not None and self.asked.number == number:
            self._reply, self.asked = said, None
            self._replied.set()

    async def next(self) -> Asked | None:
        """The question that it has now, or the next one. None: the run is over."""
        while self.asked is None and not self._over.is_set():
            self._news = anyio.Event()
            await self._news.wait()
        return self.asked

    def result(self) -> Finished:
        """What it came to; what it failed with is raised."""
        if isinstance(self._end, Finished):
            return self._end
        raise self._end or UsageError("the run was stopped")

    async def stop(self) -> None:
        """It is on record as stopped when this returns."""
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._over.wait()


class Runs:
    """Under way, or over and not yet told, by names that only their client knows. Leaving `going` stops them."""

    def __init__(self) -> None:
        self.group: TaskGroup
        self._users: dict[str, User] = {}

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as self.group:
            try:
                yield
            finally:
                self.group.cancel_scope.cancel()

    def new(self) -> tuple[str, User]:
        name = secrets.token_urlsafe(16)
        return name, self._users.setdefault(name, User())

    def of(self, name: str) -> User:
        """UsageError when there is none of that name, or it was told."""
        if name not in self._users:
            raise UsageError("there is no such run under way", "runs_list shows what is on record")
        return self._users[name]

    def forget(self, name: str) -> None:
        del self._users[name]


def _shown(text: str) -> str:
    """Of characters that are seen, so that what is allowed is what is read."""
    return "".join(one if one in "\n\t" or one.isprintable() else ascii(one)[1:-1] for one in text)
