"""What a client may ask for, how often, and what its token may spend: never more than the server's user set."""

import time
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from stockade.bots.spec import BotSpec
from stockade.core.errors import UsageError
from stockade.core.events import HistoryCompacted, ModelAnswered, RunEvent, RunStarted
from stockade.core.ports import RunStore
from stockade.runtime.bots import find_bot, with_defaults
from stockade.runtime.roots import DEFAULT_TIMEOUT_S
from stockade.runtime.spec import RunSpec, spec_of
from stockade.server.models import NewRun
from stockade.server.tokens import Token


class Full(UsageError):
    """The token has as much under way, or has spent as much, as it may."""


class Rate:
    """Requests of a token: `per_s` in the long run, `burst` at once (generic cell rate algorithm)."""

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._each_s, self._ahead_s, self._clock = 1 / per_s, (burst - 1) / per_s, clock
        self._due: dict[str, float] = {}

    def wait_s(self, key: str) -> float:
        """0: it may now, and is counted. Else how long until it may."""
        now = self._clock()
        due = max(self._due.get(key, now), now)
        if (wait := due - now - self._ahead_s) > 0:
            return wait
        self._due[key] = due + self._each_s
        return 0.0


class Locks:
    """One for each key, as long as somebody has or awaits it."""

    def __init__(self) -> None:
        self._known: dict[Hashable, anyio.Lock] = {}

    @asynccontextmanager
    async def of(self, *key: Hashable) -> AsyncIterator[None]:
        lock = self._known.setdefault(key, anyio.Lock())
        async with lock:
            try:
                yield
            finally:
                if not lock.statistics().tasks_waiting:
                    self._known.pop(key, None)


class Costs:
    """What runs on record have cost, in USD, each read on from where it was read last. Those of a run's helpers are on
    their own records.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._read: dict[str, tuple[int, float]] = {}

    async def of(self, started: RunStarted) -> float:
        """Also of a run that is under way, or was killed."""
        run_id = started.run_id
        number, cost = self._read.get(run_id, (0, 0.0))
        events = await self._store.events(run_id, first=number)
        cost += _cost(started, events)
        self._read[run_id] = number + len(events), cost
        return cost


def _cost(started: RunStarted, events: Iterable[RunEvent]) -> float:
    """What is in a branch from before it was made is its parent's."""
    total = 0.0
    for event in events:
        match event:
            case RunStarted() if event.parent is None:
                total += event.used.cost
            case ModelAnswered() if event.at >= started.at:
                total += event.answer.usage.cost
            case HistoryCompacted() if event.at >= started.at:
                total += event.usage.cost
            case _:
                pass
    return total


def bounded(
    own: RunSpec, models: Collection[str], token: Token, asked: NewRun, folder: str | None, bot: BotSpec | None
) -> RunSpec:
    """What is `asked` for, within the server's `own` settings and those of the bot. UsageError for more than those."""
    own, limits = with_defaults(own, bot or find_bot(asked.bot or own.bot)), asked.limits
    if asked.model is not None and asked.model not in {own.model, *models} and not token.may("admin"):
        known = ", ".join(sorted({own.model, *models}))
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
