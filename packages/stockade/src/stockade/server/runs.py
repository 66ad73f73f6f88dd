"""The runs of the server: they live in its process, in a task group, and go on whoever looks at them or leaves.

All that there is to know of a run is its record; what is here is only how to reach one that is under way. After a kill
the record says which runs were cut off.
"""

import asyncio
import hashlib
import os
import sys
import time
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from stockade import changes
from stockade.approval.approver import understand
from stockade.bots.spec import BotSpec
from stockade.core.errors import StockadeError, UsageError
from stockade.core.events import RunEvent, RunStarted
from stockade.core.ports import RunStore, RunSummary
from stockade.core.secrets import Redactor, View, build_redactor, view_of
from stockade.loop.state import fold
from stockade.run_lock import cleanup, is_locked, lock
from stockade.runtime import factory, removing, sandboxes
from stockade.runtime.policy import environment_of
from stockade.runtime.resume import make_branch
from stockade.runtime.resume import spec_of as spec_again
from stockade.runtime.roots import Roots
from stockade.runtime.spec import RunSpec
from stockade.server.bounds import Costs, Full, Locks, bounded
from stockade.server.live import Conflicting, Live, in_turn
from stockade.server.models import Approval, Message, NewRun, Output, Rewind
from stockade.server.tokens import Token, Tokens
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
_STARTS = defaultdict(lambda: 4, bubblewrap=1)
"""Sandboxes of a kind that start at once; the others wait, so that requests are answered in between. One of bubblewrap
is this process's own work, the others are waited for.
"""


class NotFound(UsageError):
    """There is none of that name, or it is another token's."""


class Runs:
    """`options`: what the user who started the server set; a client may ask for less, never for more. `models`: those
    that may be named beside the server's.
    """

    def __init__(
        self, options: RunSpec, roots: Roots, store: RunStore, tokens: Tokens, models: Iterable[str] = ()
    ) -> None:
        self.options, self.roots, self.store, self.models = options, roots, store, frozenset(models)
        self.tokens, self.costs = tokens, Costs(store)
        self.live: dict[str, Live] = {}
        self.closing = False
        self.readers = 0
        self._preparing = anyio.CapacityLimiter(1)
        self._entering: dict[str, anyio.CapacityLimiter] = {}
        self._starting: list[Live] = []
        self._locks = Locks()
        self._events: dict[str, anyio.Event] = {}
        self._known: OrderedDict[str, tuple[RunStarted, View]] = OrderedDict()
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
            self._know(event)
        return self._known[run_id]

    def _know(self, started: RunStarted) -> None:
        environ = {**os.environ, **environment_of(self.options)}
        self._known[started.run_id] = started, view_of(started, environ, self.options.redact)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)

    async def of(self, token: Token, run_id: str) -> RunStarted:
        """NotFound for another token's, as for one that there is not."""
        started = await self.started(run_id)
        if not (token.may("admin") or started.options.get(OWNER) == token.id):
            raise NotFound(f"there is no run {run_id!r}", "GET /v1/runs lists those that there are")
        return started

    async def newest(self, **which: Any) -> AsyncIterator[RunSummary]:
        """A few are read first, all only for who goes on to the end."""
        most, told = 64, set[str]()
        while True:
            found = await self.store.runs(limit=most, **which)
            for one in found:
                if one.run_id not in told:
                    told.add(one.run_id)
                    yield one
            if len(found) < most:
                return
            most *= 4

    # Beginning

    async def begin(
        self, token: Token, asked: NewRun, folder: str | None, key: str | None, bot: BotSpec | None = None
    ) -> tuple[str, bool]:
        """The run, which is on record, and whether it is new: the same `key` with the same words is the same run.
        `bot`: one that is none by name.
        """
        if key is None:
            return await self._begin(token, asked, folder, None, bot), True
        async with self._locks.of("key", token.id, key):
            mine = hashlib.sha256(asked.model_dump_json().encode()).hexdigest()
            if (before := await self._asked_before(token, key)) is None:
                return await self._begin(token, asked, folder, [key, mine]), True
            if before[1] != mine:
                raise Conflicting("this Idempotency-Key was used for another run", "take a new one")
            return before[0], False

    async def _asked_before(self, token: Token, key: str) -> tuple[str, str] | None:
        """The run that was begun by this key, and the digest of what was asked for then; of the last thousand runs."""
        for summary in await self.store.runs(limit=1000):
            if summary.problem is None:
                started = await self.started(summary.run_id)
                if started.parent is not None or started.boss is not None:  # made of another, with its options
                    continue
                options = started.options
                if options.get(OWNER) == token.id and options.get(REQUEST, [None])[0] == key:
                    return summary.run_id, options[REQUEST][1]
        return None

    async def _begin(
        self, token: Token, asked: NewRun, folder: str | None, request: list[str] | None, bot: BotSpec | None = None
    ) -> str:
        spec = bounded(self.options, self.models, token, asked, folder, bot)
        spec = spec.model_copy(update={"objects": spec.objects.but(bot=bot)})
        async with self._room(token, token.id) as live:
            spec = await self._afford(token, live, spec)
            async with self._preparing:
                prepared = await factory.prepare(spec, self.store, self._listening(live))
            prepared.started.options[OWNER] = token.id
            if request is not None:
                prepared.started.options[REQUEST] = request
            await self._start(live, prepared)
        return live.run_id

    async def resume(self, token: Token | None, run_id: str, task: str = "") -> None:
        """A run that is over or was cut off goes on, with a new task or without. It is on record when this returns.

        Within the bounds of whose it is; those of `token`, who asks, where that one was removed.
        """
        owner = str((await self.started(run_id)).options.get(OWNER, ""))
        bounds = self.tokens.known(owner) or token
        async with self._room(bounds, owner, run_id) as live:
            await self._go_on(live, bounds, run_id, task)

    async def _go_on(self, live: Live, bounds: Token | None, run_id: str, task: str) -> None:
        history = await self.store.events(run_id)
        spec = spec_again(history, self.options, factory.check_task(task) if task else "")
        used = 0.0 if task else fold(history).spent(time.time()).usage.cost
        spec = await self._afford(bounds, live, spec, used)
        await self._start(live, await factory.prepare(spec, self.store, self._listening(live)))

    async def rewind(self, token: Token, run_id: str, to: Rewind) -> str:
        """The new run. Nothing is left of it when it cannot go on."""
        owner = str((await self.started(run_id)).options.get(OWNER, ""))
        bounds = self.tokens.known(owner) or token
        async with self._room(bounds, owner, run_id) as live:
            live.run_id, _ = await make_branch(self.store, await self.store.events(run_id), to.turn)
            try:
                await self._go_on(live, bounds, live.run_id, to.task or "")
            except StockadeError:
                await removing.take_back(self.store, sandboxes.reviewer(), live.run_id)
                raise
        return live.run_id

    async def resume_all(self) -> list[str]:
        """Those of clients that a kill or a stop of the server cut off; the ones that cannot go on are said."""
        gone = list[str]()
        for summary in await self.store.runs():
            run_id = summary.run_id
            if summary.problem is not None or summary.status not in ("running", "stopped"):
                continue
            started = await self.started(run_id)
            if OWNER not in started.options or started.boss is not None:
                continue
            if summary.driver is not None or is_locked(run_id):
                continue
            end = changes.facts(await self.store.events(run_id)).finished
            if end is None or (end.reason == "user" and end.detail == SERVER_STOPPED):
                try:
                    await self.resume(None, run_id)
                    gone.append(run_id)
                except StockadeError as error:
                    say(f"run {run_id} does not go on: {error}")
        return gone

    # Room

    def check_over(self, run_id: str) -> None:
        """Conflicting while it is under way, or about to be."""
        if run_id in self.live or any(one.run_id == run_id for one in self._starting) or is_locked(run_id):
            raise Conflicting(f"run {run_id} is under way", "wait for its end, or cancel it")

    @asynccontextmanager
    async def alone(self, run_id: str) -> AsyncIterator[None]:
        """Inside, nobody else goes on with this run or decides on its changes. Conflicting while it is under way."""
        self.check_over(run_id)
        async with self._locks.of("run", run_id):
            self.check_over(run_id)
            yield

    @asynccontextmanager
    async def _room(self, token: Token | None, owner: str, run_id: str = "") -> AsyncIterator[Live]:
        """A run that is about to be under way; it counts, and nobody else begins or resumes it, from the first moment
        on. Conflicting while it is under way already, Full when the token has as many as it may.
        """
        if run_id:
            self.check_over(run_id)
        count = len(self._of_owner(owner))
        if token is not None and count >= token.at_once:
            raise Full(f"{count} runs of this token are under way", "wait for one of them, or cancel one")
        live = Live(owner, self._heard, run_id)
        self._starting.append(live)
        try:
            async with self._locks.of("run", run_id or live):
                if run_id and await self.store.driver(run_id) is not None:
                    raise Conflicting(f"run {run_id} is under way", "wait for its end, or cancel it")
                yield live
        finally:
            if live in self._starting:
                self._starting.remove(live)

    def _of_owner(self, owner: str) -> list[Live]:
        return [live for live in (*self.live.values(), *self._starting) if live.owner == owner]

    async def _afford(self, token: Token | None, live: Live, spec: RunSpec, used: float = 0.0) -> RunSpec:
        """No more than is left to the token, of which nobody else gets the same. `used`: what counts for the budget of
        the run already. Full when nothing is left.
        """
        if token is None or token.max_cost is None:
            return spec
        async with self._locks.of("cost", token.id):
            others = [one for one in self._of_owner(token.id) if one is not live]
            costs = await self._costs(token.id)
            may = sum(max(0.0, one.before + one.allowance - costs[one.run_id]) for one in others)
            left = token.max_cost - token.charged - sum(costs.values()) - may
            if left <= 0:
                raise Full(f"the runs of this token have cost, or may yet cost, the {token.max_cost:g} USD that it has")
            live.before = costs[live.run_id]
            live.allowance = min(left, max(0.0, spec.max_cost - used)) if spec.max_cost else left
        return spec.model_copy(update={"max_cost": used + live.allowance})

    async def _costs(self, owner: str) -> defaultdict[str, float]:
        """USD, by run, its helpers with it."""
        costs = defaultdict[str, float](float)
        for summary in await self.store.runs():
            if summary.problem is None and (started := await self.started(summary.run_id)).options.get(OWNER) == owner:
                costs[summary.run_id.partition(".")[0]] += await self.costs.of(started)
        return costs

    async def remove(self, run_id: str, *, force: bool) -> None:
        """Away with its record and folders; what it cost stays with its token. Conflicting when it has changes that
        nobody has decided on and not `force`.
        """
        async with self.alone(run_id):
            owner = str((await self.started(run_id)).options.get(OWNER, ""))
            cost = (await self._costs(owner))[run_id] if self.tokens.known(owner) else 0.0
            try:
                await removing.remove(self.store, sandboxes.reviewer(), run_id, force=force)
            except UsageError as error:
                raise Conflicting(error.message, "apply or discard them, or DELETE with ?force=true") from None
            if cost:
                await to_thread.run_sync(self.tokens.charge, owner, cost)
        await removing.sweep_removed(self.store)
        self._known.pop(run_id, None)
        self.wake(run_id)

    # Under way

    def _listening(self, live: Live) -> Callable[[RunEvent], None]:
        loop = asyncio.get_running_loop()

        def recorded(event: RunEvent) -> None:
            if isinstance(event, RunStarted):
                self._know(event)
            live.event(event)

        def heard(event: RunEvent) -> None:
            loop.call_soon_threadsafe(recorded, event)

        return heard

    def _heard(self, live: Live) -> None:
        self.wake(live.run_id)

    def wake(self, run_id: str) -> None:
        """Whoever reads this run's events looks again."""
        if (news := self._events.pop(run_id, None)) is not None:
            news.set()

    async def _start(self, live: Live, prepared: factory.Prepared) -> None:
        box = prepared.parts.sandbox
        turns = self._entering.setdefault(box.backend, anyio.CapacityLimiter(_STARTS[box.backend]))
        prepared = replace(prepared, parts=replace(prepared.parts, entered=in_turn(box, turns)))
        live.prepared, live.run_id = prepared, prepared.started.run_id
        live.attach()
        self._starting.remove(live)
        self.live[live.run_id] = live
        self._group.start_soon(self._drive, live, prepared)
        await live.begun.wait()
        if live.failed is not None:
            raise live.failed

    async def _drive(self, live: Live, prepared: factory.Prepared) -> None:
        run_id = live.run_id
        try:
            with live.scope:
                async with _locked(run_id):
                    await factory.start(prepared)
        except Exception as error:  # noqa: BLE001 (of one run; the others go on, and it is on record where it can be)
            live.failed = error
            say(f"run {run_id}: {live.parts.redactor.text(why(error))}")
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

    async def tell(self, token: Token, run_id: str, message: Message) -> str:
        """`answer`, `steer` or `task`: what the words became."""
        live = self.live.get(run_id)
        if message.question is not None:
            live = self.here(run_id)
            if (asked := live.asked.get(message.question)) is not None and asked.question is None:
                raise Conflicting(f"number {message.question} is an action", "POST .../approvals/N allows it or not")
            live.reply(message.question, message.text)
            return "answer"
        if live is None:
            await self.resume(token, run_id, message.text)
            return "task"
        live.parts.pause.words.append(message.text)
        return "steer"

    async def cancel(self, run_id: str) -> None:
        """Its end is on record when this returns."""
        live = self.here(run_id)
        live.parts.pause.stop("cancelled")
        live.scope.cancel()
        await live.ended.wait()

    # Reading

    async def events(
        self, run_id: str, first: int, *, output: bool = False
    ) -> AsyncIterator[tuple[int, RunEvent | Output]]:
        """From number `first` on, each once, until nobody drives the run any more. A reader takes its own time: what
        it has not read yet is in the record and nowhere else. `output`: with what a command has written since.
        """
        redactor = (await self.view(run_id)).redactor
        self.readers += 1
        try:
            async for number, event in self._read(run_id, first, output=output):
                yield number, event if isinstance(event, Output) else redactor.event(event)
        finally:
            self.readers -= 1

    async def _read(self, run_id: str, first: int, *, output: bool) -> AsyncIterator[tuple[int, RunEvent | Output]]:
        limit, mark = _PAGE, 0
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
            if output and (live := self.live.get(run_id)) is not None:
                mark, pieces = live.output.since(mark)
                for piece in pieces:
                    yield first, piece
                if pieces:
                    continue
            if self.closing or not (here or there):
                self._events.pop(run_id, news).set()
                return
            with anyio.move_on_after(None if here else _LOOK_S):
                await news.wait()


def say(line: str) -> None:
    """On the server's standard error, in one line of characters that are seen, whatever it holds."""
    line = " ".join(line.split())[:1000]
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
    print(f"stockade: {shown}", file=sys.stderr, flush=True)


def why(error: Exception) -> str:
    """For a line of the server's; the name of the error too where it is none that was foreseen."""
    return f"{error}" if isinstance(error, StockadeError) else f"{type(error).__name__}: {error}"


@asynccontextmanager
async def _locked(run_id: str) -> AsyncIterator[None]:
    """RunTaken while another process has it."""
    with ExitStack() as stack:
        try:
            await to_thread.run_sync(stack.enter_context, lock(run_id, wait=False))
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(stack.close)


def _tidy(run_id: str, layers: tuple[FolderLayer, ...]) -> None:
    """Layers are removed where nothing was written to any."""
    try:
        changes.discard_decided(sandboxes.reviewer(), layers)
    except StockadeError as error:
        say(f"run {run_id}: {error}")
    cleanup(run_id)
