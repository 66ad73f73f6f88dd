"""The runs of the server: they live in its process, in a task group, and go on whoever looks at them or leaves.

All that there is to know of a run is its record; what is here is only how to reach one that is under way. After a kill
the record says which runs were cut off.
"""

import asyncio
import hashlib
import os
import sys
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from stockade import changes
from stockade.approval.approver import Authoriser, Question, understand
from stockade.core.budget import Budget
from stockade.core.errors import StockadeError, UsageError
from stockade.core.events import ModelAnswered, RunEvent, RunStarted, SandboxStarted
from stockade.core.ports import RunStore
from stockade.core.secrets import Redactor, View, build_redactor, view_of
from stockade.loop.pause import PausingPrompt
from stockade.loop.run_context import Dependencies
from stockade.mcp_server.service import DEFAULT_TIMEOUT_S, Roots
from stockade.run_lock import cleanup, is_locked, lock
from stockade.runtime import factory, sandboxes
from stockade.runtime.policy import environment_of
from stockade.runtime.resume import make_branch
from stockade.runtime.resume import spec_of as spec_again
from stockade.runtime.spec import RunSpec, spec_of
from stockade.server.models import Approval, Asked, Message, NewRun, Rewind
from stockade.server.tokens import Token
from stockade_sandbox.results import FolderLayer

OWNER, REQUEST = "owner", "request"
"""Among the options of a run's first event: whose it is, and the Idempotency-Key that it was asked for by."""
SERVER_STOPPED = "the server was stopped"
"""The detail of a run that ended because of that: it may go on when there is a server again."""
_PAGE = 8
_LARGE = 100_000
"""Events that are read at once for a reader, who may take his time: one, behind one of so many bytes."""
_LOOK_S = 1.0
"""How often a run that another process drives is looked at."""
_KNOWN = 10_000


class NotFound(UsageError):
    """There is none of that name, or it is another token's."""


class Full(UsageError):
    """The token has as much under way, or has spent as much, as it may."""


class Conflicting(UsageError):
    """It cannot be done while the run is as it is."""


@dataclass(slots=True)
class Live:
    """A run that is under way here."""

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

    @property
    def parts(self) -> Dependencies:
        assert self.prepared is not None
        return self.prepared.parts

    @property
    def budget(self) -> Budget:
        """Of what is being done now."""
        assert self.prepared is not None
        return (self.prepared.resumed or self.prepared.started).budget

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


class Runs:
    """`options`: what the user who started the server set; a client may ask for less, never for more. `models`: those
    that may be named beside the server's.
    """

    def __init__(self, options: RunSpec, roots: Roots, store: RunStore, models: Iterable[str] = ()) -> None:
        self.options, self.roots, self.store, self.models = options, roots, store, frozenset(models)
        self.live: dict[str, Live] = {}
        self.closing = False
        self.readers = 0
        self._starting: list[str] = []
        self._events: dict[str, anyio.Event] = {}
        self._known: OrderedDict[str, tuple[RunStarted, View]] = OrderedDict()
        self._asking: dict[tuple[str, str], anyio.Lock] = {}
        self._group: TaskGroup

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Inside, runs can be begun; at the end each is closed in order, and on record as stopped by this."""
        async with anyio.create_task_group() as self._group:
            try:
                yield
            finally:
                self.closing = True
                for live in self.live.values():
                    live.parts.pause.stop(SERVER_STOPPED)
                    live.scope.cancel()

    @property
    def redactor(self) -> Redactor:
        """For words that are of no run on record."""
        return build_redactor(os.environ, environment_of(self.options), self.options.redact)

    # Whose

    async def started(self, run_id: str) -> RunStarted:
        """Its first event. NotFound when there is none of exactly this id."""
        return (await self._first(run_id))[0]

    async def view(self, run_id: str) -> View:
        """How what is on record may be shown."""
        return (await self._first(run_id))[1]

    async def _first(self, run_id: str) -> tuple[RunStarted, View]:
        if run_id not in self._known:
            try:
                (event,) = await self.store.events(run_id, limit=1)
            except UsageError:
                raise NotFound(f"there is no run {run_id!r}", "GET /v1/runs lists those that there are") from None
            assert isinstance(event, RunStarted)
            environ = {**os.environ, **environment_of(self.options)}
            self._known[run_id] = event, view_of(event, environ, self.options.redact)
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        return self._known[run_id]

    async def of(self, token: Token, run_id: str) -> RunStarted:
        """NotFound for another token's, as for one that there is not."""
        started = await self.started(run_id)
        if not (token.may("admin") or started.options.get(OWNER) == token.id):
            raise NotFound(f"there is no run {run_id!r}", "GET /v1/runs lists those that there are")
        return started

    # Beginning

    async def begin(self, token: Token, asked: NewRun, folder: str | None, key: str | None) -> tuple[str, bool]:
        """The run, which is on record, and whether it is new: the same `key` with the same words is the same run."""
        if key is None:
            return await self._begin(token, asked, folder, None), True
        alone = self._asking.setdefault((token.id, key), anyio.Lock())
        try:
            async with alone:
                mine = hashlib.sha256(asked.model_dump_json().encode()).hexdigest()
                if (before := await self._asked_before(token, key)) is None:
                    return await self._begin(token, asked, folder, [key, mine]), True
                if before[1] != mine:
                    raise Conflicting("this Idempotency-Key was used for another run", "take a new one")
                return before[0], False
        finally:
            if not alone.statistics().tasks_waiting:
                self._asking.pop((token.id, key), None)

    async def _asked_before(self, token: Token, key: str) -> tuple[str, str] | None:
        """The run that was begun by this key, and the digest of what was asked for then; of the last thousand runs."""
        for summary in await self.store.runs(limit=1000):
            if summary.problem is None:
                options = (await self.started(summary.run_id)).options
                if options.get(OWNER) == token.id and options.get(REQUEST, [None])[0] == key:
                    return summary.run_id, options[REQUEST][1]
        return None

    async def _begin(self, token: Token, asked: NewRun, folder: str | None, request: list[str] | None) -> str:
        spec = self._spec(token, asked, folder)
        await self._check_room(token)
        self._starting.append(token.id)
        try:
            if token.max_cost is not None:
                left = token.max_cost - await self.spent(token.id)
                if left <= 0:
                    raise Full(f"the runs of this token have cost the {token.max_cost:g} USD that it has")
                spec = spec.model_copy(update={"max_cost": min(left, spec.max_cost or left)})
            live = Live(token.id, self._heard)
            prepared = await factory.prepare(spec, self.store, self._listening(live))
            prepared.started.options[OWNER] = token.id
            if request is not None:
                prepared.started.options[REQUEST] = request
            await self._start(live, prepared)
        finally:
            self._starting.remove(token.id)
        return live.run_id

    async def resume(self, run_id: str, task: str = "") -> None:
        """A run that is over or was cut off goes on, with a new task or without. It is on record when this returns."""
        started = await self.started(run_id)
        if run_id in self.live or is_locked(run_id) or await self.store.driver(run_id) is not None:
            raise Conflicting(f"run {run_id} is under way", "wait for its end, or cancel it")
        history = await self.store.events(run_id)
        spec = spec_again(history, self.options, factory.check_task(task) if task else "")
        live = Live(str(started.options.get(OWNER, "")), self._heard)
        await self._start(live, await factory.prepare(spec, self.store, self._listening(live)))

    async def rewind(self, token: Token, run_id: str, to: Rewind) -> str:
        """The new run."""
        if run_id in self.live or is_locked(run_id):
            raise Conflicting(f"run {run_id} is under way", "wait for its end, or cancel it")
        await self._check_room(token)
        branch, _ = await make_branch(self.store, await self.store.events(run_id), to.turn)
        await self.resume(branch, to.task or "")
        return branch

    async def resume_all(self) -> list[str]:
        """Those of clients that a kill or a stop of the server cut off; the ones that cannot go on are said."""
        gone = list[str]()
        for summary in await self.store.runs():
            run_id = summary.run_id
            if summary.problem is not None or summary.status not in ("running", "stopped"):
                continue
            if OWNER not in (await self.started(run_id)).options or summary.driver is not None or is_locked(run_id):
                continue
            end = changes.facts(await self.store.events(run_id)).finished
            if end is None or (end.reason == "user" and end.detail == SERVER_STOPPED):
                try:
                    await self.resume(run_id)
                    gone.append(run_id)
                except StockadeError as error:
                    say(f"run {run_id} does not go on: {error}")
        return gone

    def _spec(self, token: Token, asked: NewRun, folder: str | None) -> RunSpec:
        own, limits = self.options, asked.limits
        if asked.model is not None and asked.model not in {own.model, *self.models} and not token.may("admin"):
            known = ", ".join(sorted({own.model, *self.models}))
            raise UsageError(f"this server does not ask the model {asked.model}", f"it may be {known}")
        values: dict[str, Any] = {
            "task": asked.task,
            "bot": asked.bot,
            "model": asked.model,
            "program_model": asked.model,
            "folder": () if folder is None else (folder,),
            "check": asked.check or None,
            "protect": (*own.protect, *asked.protect),
            "output_schema": asked.output_schema,
            "approve": _approve(own.approve, asked.approve),
            "timeout": _least(limits.timeout, own.timeout or DEFAULT_TIMEOUT_S),
            "max_turns": _least(limits.max_turns, own.max_turns),
            "max_tokens": _least(limits.max_tokens, own.max_tokens),
            "max_cost": _least(limits.max_cost, own.max_cost),
        }
        given = own.model_dump(by_alias=True, exclude_unset=True)
        new = {key: value for key, value in values.items() if value is not None}
        return spec_of({**given, **new})

    async def _check_room(self, token: Token) -> None:
        count = self._starting.count(token.id) + sum(live.owner == token.id for live in self.live.values())
        if count >= token.at_once:
            raise Full(f"{count} runs of this token are under way", "wait for one of them, or cancel one")

    async def spent(self, owner: str) -> float:
        """USD that the runs of a token have cost, and that those under way may come to cost."""
        total = 0.0
        for summary in await self.store.runs():
            if summary.problem is None and (await self.started(summary.run_id)).options.get(OWNER) == owner:
                if (live := self.live.get(summary.run_id)) is not None:
                    total += live.budget.max_cost or 0.0
                elif (end := changes.facts(await self.store.events(summary.run_id)).finished) is not None:
                    total += end.usage.cost
        return total

    # Under way

    def _listening(self, live: Live) -> Callable[[RunEvent], None]:
        loop = asyncio.get_running_loop()

        def heard(event: RunEvent) -> None:
            loop.call_soon_threadsafe(live.event, event)

        return heard

    def _heard(self, live: Live, _event: RunEvent) -> None:
        self.wake(live.run_id)

    def wake(self, run_id: str) -> None:
        """Whoever reads this run's events looks again."""
        if (news := self._events.pop(run_id, None)) is not None:
            news.set()

    async def _start(self, live: Live, prepared: factory.Prepared) -> None:
        live.prepared, live.run_id = prepared, prepared.started.run_id
        live.attach()
        self.live[live.run_id] = live
        self._group.start_soon(self._drive, live, prepared)
        await live.begun.wait()
        if live.failed is not None:
            raise live.failed

    async def _drive(self, live: Live, prepared: factory.Prepared) -> None:
        run_id = live.run_id
        try:
            with live.scope, lock(run_id):
                await factory.start(prepared)
        except Exception as error:  # noqa: BLE001 (of one run; the others go on, and it is on record where it can be)
            live.failed = error
            say(f"run {run_id}: {error if isinstance(error, StockadeError) else f'{type(error).__name__}: {error}'}")
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(_tidy, run_id, live.layers)
            del self.live[run_id]
            live.begun.set()
            live.ended.set()
            self.wake(run_id)

    def here(self, run_id: str) -> Live:
        """Conflicting when it is not under way in this server."""
        if (live := self.live.get(run_id)) is None:
            raise Conflicting(f"run {run_id} is not under way here", "POST .../resume goes on with it")
        return live

    def approve(self, run_id: str, number: int, reply: Approval) -> None:
        """UsageError for a note that would be understood as something else than words for the bot."""
        live = self.here(run_id)
        if (asked := live.asked.get(number)) is not None and asked.question is not None:
            raise Conflicting(f"number {number} is a question of the bot's", "POST .../messages answers it")
        if reply.allow:
            live.reply(number, {"once": "y", "session": "run", "always": "always"}[reply.scope])
        elif reply.note is None:
            live.reply(number, "n")
        else:
            try:
                words = understand(reply.note).words
            except ValueError:
                words = ""
            if not words:
                raise UsageError(f"the note {reply.note!r} is none: it would allow or end", "say it in a sentence")
            live.reply(number, reply.note)

    async def tell(self, run_id: str, message: Message) -> str:
        """`answer`, `steer` or `task`: what the words became."""
        live = self.live.get(run_id)
        if message.question is not None:
            live = self.here(run_id)
            if (asked := live.asked.get(message.question)) is not None and asked.question is None:
                raise Conflicting(f"number {message.question} is an action", "POST .../approvals/N allows it or not")
            live.reply(message.question, message.text)
            return "answer"
        if live is None:
            await self.resume(run_id, message.text)
            return "task"
        live.parts.pause.words.append(message.text)
        return "steer"

    async def cancel(self, run_id: str) -> None:
        """Its end is on record when this returns."""
        live = self.here(run_id)
        live.parts.pause.stop("cancelled")
        live.scope.cancel()
        await live.ended.wait()

    def forget(self, run_id: str) -> None:
        """It was removed."""
        self._known.pop(run_id, None)
        self.wake(run_id)

    # Reading

    async def events(self, run_id: str, first: int) -> AsyncIterator[tuple[int, RunEvent]]:
        """From number `first` on, each once, until nobody drives the run any more. A reader takes its own time: what
        it has not read yet is in the record and nowhere else.
        """
        redactor = (await self.view(run_id)).redactor
        self.readers += 1
        try:
            async for number, event in self._read(run_id, first):
                yield number, redactor.event(event)
        finally:
            self.readers -= 1

    async def _read(self, run_id: str, first: int) -> AsyncIterator[tuple[int, RunEvent]]:
        limit = _PAGE
        while True:
            news = self._events.setdefault(run_id, anyio.Event())
            here = run_id in self.live
            there = not here and await self.store.driver(run_id) is not None
            page = await self.store.events(run_id, first=first, limit=limit)
            if page:
                while page:
                    event = page.pop(0)
                    limit = 1 if len(event.line) > _LARGE else _PAGE
                    yield first, event
                    first += 1
                continue
            if self.closing or not (here or there):
                self._events.pop(run_id, news).set()
                return
            with anyio.move_on_after(None if here else _LOOK_S):
                await news.wait()


def say(line: str) -> None:
    """On the server's standard error, in one line whatever it holds."""
    print(f"stockade: {' '.join(line.split())[:1000]!s}", file=sys.stderr, flush=True)


def _tidy(run_id: str, layers: tuple[FolderLayer, ...]) -> None:
    """Layers are removed where nothing was written to any."""
    try:
        changes.discard_decided(sandboxes.reviewer(), layers)
    except StockadeError as error:
        say(f"run {run_id}: {error}")
    cleanup(run_id)


def _least(asked: Any, most: Any) -> Any:
    return most if asked is None else asked if most is None else min(asked, most)


def _approve(own: str, asked: str | None) -> str:
    """UsageError for less than the server's."""
    order = ("never", "rules", "ask")
    mine = own.partition("=")[0]
    if asked is None or asked == mine:
        return own
    if order.index(asked) < order.index(mine):
        raise UsageError(f"this server asks before what bots do: approve={own}", "leave `approve` out")
    return asked
