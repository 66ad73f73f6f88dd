"""Many runs in one process: so many at once, made by the factory as every other, and gone on with where they stopped.

What a run did is in its record and nowhere else; the results say which run it was and what became of it.
"""

import math
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio import from_thread, to_thread

from stockade import changes
from stockade.core.data import Data
from stockade.core.errors import (
    SandboxFailed,
    StockadeError,
    UsageError,
)
from stockade.core.events import (
    ChangesDiscarded,
    ModelAnswered,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    SubRunFinished,
)
from stockade.core.ports import RunStore
from stockade.fleet.known import note
from stockade.fleet.results import (
    FINAL,
    INFRASTRUCTURE,
    Attempt,
    Outcome,
    Results,
    Tried,
    default_results,
    outcome_of,
    writing,
)
from stockade.fleet.tasks import Item, Selection, read_tasks
from stockade.loop.ending import reason_of
from stockade.loop.state import fold
from stockade.models.local.launch_spec import MAX_SLOTS, available_bytes
from stockade.run_lock import cleanup, lock
from stockade.runtime import factory, records, sandboxes
from stockade.runtime.resume import spec_of as spec_again
from stockade.runtime.spec import Objects, spec_of
from stockade_sandbox.results import FolderLayer
from stockade_sandbox.stoppable import unwrap_exception_group

_BACKOFF_S, _BACKOFF_MAX_S = 1.0, 60.0
_BYTES_A_RUN = 256 << 20
RUNS_A_CPU = 4
_OURS = ("auto", "embedded/", "gguf/")


class Plan(Data):
    """How a batch is run. 0 is unlimited. `retries`: of an attempt that the model's server or the machine failed.
    `breaker`: so many equal failures in a row that say nothing about the task, whichever it is, end the batch.
    """

    parallel: int = 0
    retries: int = 2
    breaker: int = 10
    max_cost: float = 0.0
    deadline: float = 0.0
    apply: bool = False
    discard: bool = False
    again: frozenset[Outcome] = frozenset()
    """Outcomes with which a task is done once more, though it was not for lack of a server or a machine."""


def auto_parallel(items: Iterable[Item]) -> int:
    """As many as memory and processors allow, and the slots of a model that we serve ourselves."""
    items, memory = list(items), available_bytes()
    bounds: list[int] = [
        RUNS_A_CPU * len(os.sched_getaffinity(0)),
        *(() if memory is None else (memory // _BYTES_A_RUN,)),
    ]
    if any(item.spec.model.startswith(_OURS) for item in items):
        bounds.append(MAX_SLOTS)
    return max(1, min(bounds) // max((item.spec.best_of or 1 for item in items), default=1))


@dataclass(slots=True, eq=False)
class Running:
    """An attempt that is under way. `allowance`: USD that it may cost beyond what its run had cost before."""

    item: Item
    run_id: str = ""
    model: str = ""
    turns: int = 0
    on_record: bool = False
    allowance: float = 0.0
    finished: RunFinished | None = None
    started: float = field(default_factory=time.time)
    resumed: bool = False
    candidates: dict[str, Tried] = field(default_factory=dict)
    layers: tuple[FolderLayer, ...] = ()


@dataclass(slots=True, eq=False)
class Waiting:
    """An item that is to be begun, not before `at` (monotonic)."""

    item: Item
    tries: int = 0
    at: float = 0.0


class Runner:
    """Drives the items to their ends. `ended` says in a word why some were not: `deadline`, `cost`, `breaker`, `user`.

    `heard` is called with each attempt when it is on disk, and with None when anything else has changed.
    """

    def __init__(
        self, items: Sequence[Item], results: Results, store: RunStore, plan: Plan,
        heard: Callable[[Attempt | None], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.items, self.results, self.store, self.plan, self._heard = items, results, store, plan, heard
        self.parallel = plan.parallel or auto_parallel(items)
        self.running = list[Running]()
        self.ended = ""
        self.done = dict[tuple[str, int], Outcome]()
        """How the attempts of this call ended, the last of each task and epoch."""
        self._scope: anyio.CancelScope | None = None
        self._news = anyio.Event()
        self._in_a_row = 0
        self._is_short = False
        """Whether the money of the batch has ended a run."""
        self._outcome: Outcome | None = None
        self._deciding = anyio.Lock()
        self._costs = dict(results.costs)
        self.cost = sum(self._costs.values())
        """USD, of all attempts on record."""
        self.waiting = deque(Waiting(item) for item in items if self._is_open(item))

    def _is_open(self, item: Item) -> bool:
        last = self.results.last(item)
        return last is None or last not in FINAL or last in self.plan.again

    def no_more(self, why: str = "user") -> None:
        """Nothing is begun any more; what runs comes to its end."""
        self.ended = self.ended or why
        self._wake()

    def stop(self, why: str = "user") -> None:
        """Nor does that: it is closed on record, and goes on the next time."""
        self.no_more(why)
        if self._scope is not None:
            self._scope.cancel()

    def _wake(self) -> None:
        self._news.set()
        self._heard(None)

    async def run(self) -> None:
        """Until all are done or it has `ended`. StoreFailed where the record or the results cannot be written."""
        for waiting in self.waiting:
            if (run_id := self.results.begun(waiting.item)) is not None:
                self._note_cost(run_id, _cost_of(await self._history(run_id)))
        deadline = anyio.current_time() + self.plan.deadline if self.plan.deadline else math.inf
        with anyio.CancelScope(deadline=deadline) as self._scope:
            async with unwrap_exception_group(), anyio.create_task_group() as group:
                while (self.waiting or self.running) and not self.ended:  # what runs may have to be tried again
                    self._news = anyio.Event()
                    next_one, pause_s = self._next()
                    if next_one is None:
                        with anyio.move_on_after(pause_s):
                            await self._news.wait()
                        continue
                    self.waiting.remove(next_one)
                    self.running.append(running := Running(next_one.item, allowance=self._allowance(next_one.item)))
                    self._heard(None)
                    group.start_soon(self._one, next_one, running)
        if self._scope.cancelled_caught and not self.ended:
            self.ended = "deadline"
        if self._is_short and not self.ended:
            self.ended = "cost"

    def _next(self) -> tuple[Waiting | None, float | None]:
        """The one to begin now; or None, and for how long there is none unless something changes."""
        if len(self.running) >= self.parallel:
            return None, None
        now, is_any_due, later = anyio.current_time(), False, math.inf
        for one in self.waiting:
            if one.at > now:
                later = min(later, one.at - now)
                continue
            if not self.plan.max_cost or self._allowance(one.item) > 0:
                return one, None
            is_any_due = True
        if is_any_due and not self.running:
            self.no_more("cost")
        return None, later if later < math.inf else None

    def _allowance(self, item: Item) -> float:
        """USD that are reserved for it: all that it may cost, or its share of what is left; 0 where that is too little.
        Without a bound of the batch there is no such thing.
        """
        if not self.plan.max_cost:
            return 0.0
        left = self.plan.max_cost - self.cost - sum(one.allowance for one in self.running)
        if item.spec.max_cost:
            return item.spec.max_cost if item.spec.max_cost <= left else 0.0
        return max(0.0, left / max(1, self.parallel - len(self.running)))

    async def _one(self, waiting: Waiting, running: Running) -> None:
        attempt: Attempt | None = None
        try:
            attempt = await self._attempt(running)
        except anyio.get_cancelled_exc_class():
            if running.finished is not None:
                attempt = self._line(running, running.finished)
            raise
        finally:
            self.running.remove(running)
            if attempt is not None:
                self._add(attempt)
            self._wake()
        if attempt.outcome in INFRASTRUCTURE and waiting.tries < self.plan.retries and not self.ended:
            pause = min(_BACKOFF_S * 2.0**waiting.tries, _BACKOFF_MAX_S) * random.uniform(0.5, 1.5)
            self.waiting.append(Waiting(waiting.item, waiting.tries + 1, anyio.current_time() + pause))
            self._wake()

    def _add(self, attempt: Attempt) -> None:
        self.results.add(attempt)
        self._note_cost(attempt.run, attempt.cost)
        self.done[attempt.id, attempt.epoch] = attempt.outcome
        self._is_short = self._is_short or (attempt.outcome, attempt.reason) == ("cancelled", "cost")
        before, self._outcome = self._outcome, attempt.outcome
        if attempt.outcome not in (*FINAL, "cancelled"):
            self._in_a_row = self._in_a_row + 1 if before == attempt.outcome else 1
            if self.plan.breaker and self._in_a_row >= self.plan.breaker:
                self.no_more("breaker")
        else:
            self._in_a_row = 0
        self._heard(attempt)

    def _note_cost(self, run_id: str, cost: float) -> None:
        self.cost += cost - self._costs.get(run_id, 0.0)
        self._costs[run_id] = cost

    async def _attempt(self, running: Running) -> Attempt:
        """To its end, whatever that is; only cancelling gets out."""
        finished = await self._driven(running)
        applied, kept = tuple[str, ...](), ""
        with anyio.CancelScope(shield=True):
            try:
                if finished.status == "done" or self.plan.discard:
                    applied, kept = await self._decide(running)
                await to_thread.run_sync(_tidy, running.run_id, (await self._facts(running.run_id)).layers)
            except (SandboxFailed, UsageError) as error:  # of its layers; the other runs have theirs
                kept = kept or str(error)
        return self._line(running, finished, applied, kept)

    async def _driven(self, running: Running) -> RunFinished:
        try:
            return await self._drive(running)
        except StockadeError as error:
            return await self._failed(running, reason_of(error), str(error))
        except Exception as error:  # noqa: BLE001 (of one run; the others go on, and the results say which it was)
            return await self._failed(running, "bug", f"{type(error).__name__}: {error}")

    async def _failed(self, running: Running, reason: Any, detail: str) -> RunFinished:
        """What the record says of its end where it has one; else why it did not begin or broke, on record too."""
        if running.finished is None:
            end = {"reason": reason, "detail": detail, "turns": running.turns}
            running.finished = RunFinished(at=time.time(), status="failed", **end)
            if running.on_record:
                await self.store.append(running.run_id, [running.finished])
        return running.finished

    async def _drive(self, running: Running) -> RunFinished:
        item, bounds = running.item, {}
        running.run_id = self.results.begun(item) or ""
        history = await self._history(running.run_id)
        end = changes.facts(history).finished if history else None
        if end is not None and not self.goes_on(item, end):
            running.resumed, running.finished = True, end
            return end  # it came to its end, and the kill was before its line
        if self.plan.max_cost:
            bounds = {"max_cost": min(_cost_of(history) + running.allowance, item.spec.max_cost or math.inf)}
        elif end is not None and end.reason == "cost":
            bounds = {"max_cost": 0.0}
        if history:
            running.resumed, spec = True, spec_again(history, item.spec)
        else:
            if running.run_id:  # killed before its first event
                await to_thread.run_sync(sandboxes.forget, running.run_id)
            else:
                await self._name(running)
            spec = item.spec.model_copy(update={"objects": Objects(run_id=running.run_id)})
        spec = spec.model_copy(update=bounds)
        with lock(running.run_id, wait=False):
            prepared = await factory.prepare(spec, self.store, partial(self._event, running))
            running.layers = prepared.parts.sandbox.layers
            return await factory.start(prepared)

    def outcome(self, item: Item, finished: RunFinished) -> Outcome:
        """What the money of the batch ended, and no bound of the task's own, is over when that money is."""
        purse = finished.reason == "cost" and self.plan.max_cost and not item.spec.max_cost
        return "cancelled" if purse else outcome_of(finished)

    def goes_on(self, item: Item, finished: RunFinished) -> bool:
        """Whether a run that is at this end is not over."""
        stopped = finished.reason == "cost" and self.results.last(item) == "cancelled"
        return stopped or self.outcome(item, finished) == "cancelled"

    async def _name(self, running: Running) -> None:
        """A new run, on disk as begun."""
        running.run_id = records.new_run_id()
        await to_thread.run_sync(self.results.begin, running.item, running.run_id)

    def _event(self, running: Running, event: RunEvent) -> None:
        match event:
            case RunStarted() | RunResumed():
                running.model, running.on_record = event.model, True
            case ModelAnswered():
                running.turns += 1
            case RunFinished():
                running.finished = event
            case SubRunFinished(number=int()):
                told, cost = event, event.usage.cost
                tried = Tried(run=told.run_id, status=told.status, verified=told.verified, turns=told.turns, cost=cost)
                running.candidates[told.run_id] = tried
            case _:
                pass

    async def _history(self, run_id: str) -> tuple[RunEvent, ...]:
        """Nothing where it never began."""
        try:
            return tuple(await self.store.events(run_id)) if run_id else ()
        except UsageError:
            return ()

    async def _facts(self, run_id: str) -> changes.RunFacts:
        return changes.facts(await self._history(run_id))

    async def _decide(self, running: Running) -> tuple[tuple[str, ...], str]:
        """What was applied of its changes, and why not all of them, where that was asked for."""
        if not (self.plan.apply or self.plan.discard):
            return (), ""
        found = await self._facts(running.run_id)
        if self.plan.discard:
            if changes.kept_layers(found.layers):
                await self.store.append(running.run_id, [ChangesDiscarded(at=time.time())])
                await to_thread.run_sync(changes.discard, sandboxes.reviewer(), found.layers)
            return (), ""
        if found.finished is None or outcome_of(found.finished) != "solved":
            return (), ""
        async with self._deciding:
            return await to_thread.run_sync(self._apply, running.run_id, found)

    def _apply(self, run_id: str, found: changes.RunFacts) -> tuple[tuple[str, ...], str]:
        def record(event: RunEvent) -> None:
            from_thread.run(self.store.append, run_id, [event])

        reviewer, done = sandboxes.reviewer(), changes.Applied()
        try:
            work = changes.pending(reviewer, found.layers)
            changes.apply(reviewer, work, done, flagged=False, record=changes.recording(record))
        except StockadeError as error:
            return tuple(done.paths), str(error)
        left = ", ".join(change.path for change in (*done.refused, *done.held))
        return tuple(done.paths), f"not applied: {left}" if left else ""

    def _line(self, running: Running, finished: RunFinished, applied: tuple[str, ...] = (), kept: str = "") -> Attempt:
        item, usage = running.item, finished.usage
        return Attempt(
            id=item.task.id, epoch=item.epoch, hash=item.digest, attempt=self.results.tries(item) + 1,
            run=running.run_id, outcome=self.outcome(item, finished), reason=finished.reason, detail=finished.detail,
            verified=finished.verified, answer=finished.answer, turns=finished.turns,
            tokens=usage.prompt_tokens + usage.completion_tokens, cost=usage.cost, started=running.started,
            seconds=max(0.0, round(time.time() - running.started, 3)), resumed=running.resumed, applied=applied,
            kept=kept, model=running.model or item.spec.model, tags=item.task.tags, task=item.task.task,
            candidates=tuple(running.candidates[name] for name in sorted(running.candidates)),
        )  # fmt: skip


def _cost_of(history: Sequence[RunEvent]) -> float:
    return fold(history).spent(time.time()).usage.cost if history else 0.0


def _tidy(run_id: str, layers: Iterable[FolderLayer]) -> None:
    """Layers are removed where nothing was written to any."""
    changes.discard_decided(sandboxes.reviewer(), tuple(layers))
    cleanup(run_id)


@contextmanager
def opened(
    tasks: Path | Iterable[Mapping[str, Any]],
    results: Path | None,
    base: Any,
    select: Selection,
    *,
    serving: bool = False,
) -> Iterator[tuple[list[Item], Results]]:
    """The items of a batch and its results, for a Runner. All that is wrong with the tasks is raised first.
    `serving`: this process is a server.
    """
    items = read_tasks(tasks, base, select)
    if results is None:
        results = default_results(tasks) if isinstance(tasks, Path) else Path("results.jsonl")
    with writing(results, serving=serving) as made:
        note(results, len(items))
        yield items, made


class Batch:
    """`Batch("tasks.jsonl", model="...").run()`: the attempts of this call, each of which is on disk.

    `tasks`: a file, a folder of task folders, or mappings with the keys of a line; `settings` by the names of the
    command line, for all of them; `plan` as of Plan.
    """

    def __init__(
        self, tasks: str | Path | Iterable[Mapping[str, Any]], *, results: str | Path | None = None,
        limit: int | None = None, filters: Sequence[str] = (), shuffle: bool = False, epochs: int = 1,
        plan: Plan | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        self._tasks = Path(tasks) if isinstance(tasks, str | Path) else list(tasks)
        self._results = Path(results) if results is not None else None
        self._select = Selection(limit, tuple(filters), shuffle, epochs)
        self._plan, self._base = plan or Plan(), spec_of(settings)

    def run(self) -> list[Attempt]:
        """The last attempt of each task and epoch. Called again, it goes on."""
        return anyio.run(self.run_async)

    async def run_async(self) -> list[Attempt]:
        """The same in an event loop."""
        store = records.open_store(self._base.store)
        try:
            with opened(self._tasks, self._results, self._base, self._select) as (items, results):
                await Runner(items, results, store, self._plan).run()
                last = {one.key: one for one in results.of(items)}
                return [last[item.key] for item in items if item.key in last]
        finally:
            await store.close()
