"""Runs of a batch on Ray: each is one of its tasks, on whichever node has room. What a run did is in the record, so a
task that Ray begins anew, as its worker or node was lost, goes on behind the last event.

The driver keeps nothing of a run but its id, which is on disk before its task is given to Ray.
"""

import contextlib
import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import anyio
from anyio import to_thread

from stockade.core.errors import StockadeError, StoreFailed, UsageError, to_install
from stockade.core.events import RunFinished
from stockade.core.ports import RunStore
from stockade.fleet.batch import RUNS_A_CPU, Plan, Runner, Running
from stockade.fleet.elsewhere import at_hand, by_place, paths_of
from stockade.fleet.results import FINAL, Outcome, Results, Tried
from stockade.fleet.tasks import Item
from stockade.fleet.workspaces import Workspaces, point_of_end
from stockade.paths import current_folder
from stockade.runtime import records
from stockade_sandbox.results import FolderLayer

_LOOK_S = 0.5
_CANCEL_S = 60.0
_CONNECT_S = 10.0
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_OBJECTS_BYTES = 100 << 20
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else loopback is not taken as an address
}


@dataclass(frozen=True, slots=True)
class Job:
    """What a task is given. `allowance` is that of Running, `max_cost` that of Plan. `workspaces`: the address of the
    store that has the run's folders; empty where each machine has them itself. `last`: that of Results. `place`: the
    driver's current folder, which relative paths of settings are seen from.
    """

    item: Item
    run_id: str
    allowance: float
    max_cost: float
    place: str
    workspaces: str = ""
    last: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What a task gives back: the end of its run, and what its line in the results wants beside."""

    finished: RunFinished
    model: str
    turns: int
    resumed: bool
    candidates: dict[str, Tried]
    layers: tuple[FolderLayer, ...]


@contextlib.contextmanager
def connected(address: str, store: str | None, parallel: int) -> Iterator[Any]:
    """Inside, this process drives tasks of the cluster at `address`; where that is empty, of one on this machine for it
    alone, with room for `parallel` runs. UsageError when there is none, or the record is not for all of its machines.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    ray = _ray()
    how: dict[str, Any] = {"address": address} if address else {
        "address": "local", "include_dashboard": False, "object_store_memory": _OBJECTS_BYTES,
        "num_cpus": max(len(os.sched_getaffinity(0)), math.ceil(parallel / RUNS_A_CPU)),
    }  # fmt: skip
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    try:
        _check_listens(address)
        ray.init(**how, log_to_driver=False, configure_logging=False, namespace="stockade")
    except (ConnectionError, OSError, RuntimeError, ValueError, TimeoutError) as error:
        where = f"at {address}" if address else "on this machine"
        words = " ".join(str(error).split())[:300]
        raise UsageError(
            f"there is no Ray {where}: {words}", "ray start --head begins one; --on ray:HOST:PORT"
        ) from None
    try:
        machines = {node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
        if machines != {os.uname().nodename} and not (store or "").startswith(("postgres://", "postgresql://")):
            where = ", ".join(sorted(machines))
            raise UsageError(f"the cluster is more than this machine ({where}), and the record is a file of this one",
                             "--store postgresql://USER@HOST/DATABASE")  # fmt: skip
        yield ray
    finally:
        ray.shutdown()


def _check_listens(address: str) -> None:
    """OSError where nobody does: Ray itself would try for minutes. Of `auto` and `ray://...` it says nothing."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "//" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()


def _ray() -> Any:
    try:
        import ray  # noqa: PLC0415 (an optional extra)
    except ImportError:
        raise UsageError("--on ray needs the package ray", to_install("ray")) from None
    return ray


class RayRunner(Runner):
    """A Runner whose runs are driven by the workers of a cluster that is `connected`."""

    def __init__(self, ray: Any, workspaces: Workspaces | None, *given: Any) -> None:
        super().__init__(*given)
        self._ray, self._workspaces, self._place = ray, workspaces, str(current_folder())
        if workspaces is not None:
            for item in self.items:
                by_place(item.spec)  # its UsageError before anything starts
        self._task = ray.remote(num_cpus=1 / RUNS_A_CPU, max_retries=self.plan.retries)(drive)
        if not self.plan.parallel:
            self.parallel = max(1, int(ray.cluster_resources().get("CPU", 1) * RUNS_A_CPU))

    async def _drive(self, running: Running) -> RunFinished:
        running.run_id = self.results.begun(running.item) or ""
        if not running.run_id:
            await self._name(running)
        last = self.results.last(running.item)
        job = Job(running.item, running.run_id, running.allowance, self.plan.max_cost, self._place, last=last)
        if self._workspaces is not None:
            spec = by_place(running.item.spec)
            await to_thread.run_sync(self._workspaces.begin, running.run_id, paths_of(spec))
            job = replace(job, item=replace(running.item, spec=spec), workspaces=self._workspaces.url)
        reference = self._task.remote(job)
        try:
            done: Done = await reference
            await self._bring(running, done)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._stopped(running, reference)
            raise
        except self._ray.exceptions.RayError as error:
            words = str(error).strip().splitlines()
            return await self._failed(running, "sandbox", f"its worker was lost: {words[0] if words else ''}")
        return self._told(running, done)

    async def _stopped(self, running: Running, reference: Any) -> None:
        """The worker closes the run on record, and says so; one that does not in time is ended."""
        self._ray.cancel(reference, force=False)
        with contextlib.suppress(self._ray.exceptions.RayError, TimeoutError), anyio.fail_after(_CANCEL_S):
            done: Done = await reference
            self._told(running, done)
            await self._bring(running, done)
            return
        with contextlib.suppress(ValueError):
            self._ray.cancel(reference, force=True)

    async def _bring(self, running: Running, done: Done) -> None:
        """What it wrote, to this machine; the store has it as long as the run may go on elsewhere."""
        if (workspaces := self._workspaces) is None:
            return
        run_id, found = running.run_id, await self._facts(running.run_id)

        def bring() -> None:
            since_ns = workspaces.begun(run_id).since_ns
            workspaces.bring(run_id, found.layers, point_of_end(done.finished), since_ns)
            if self.outcome(running.item, done.finished) in FINAL:
                workspaces.forget(run_id)

        await to_thread.run_sync(bring)

    def _told(self, running: Running, done: Done) -> RunFinished:
        running.model, running.turns, running.resumed = done.model, done.turns, done.resumed
        running.candidates, running.layers, running.finished = done.candidates, done.layers, done.finished
        running.on_record = True
        return done.finished


class _Begun(Results):
    """Of one run that the driver has begun, and writes the line of."""

    def __init__(self, job: Job) -> None:
        self._job, self.costs, self._known = job, {}, {}

    def begun(self, item: Item) -> str | None:
        return self._job.run_id

    def last(self, item: Item) -> Outcome | None:
        return self._job.last


class _Worker(Runner):
    async def to_end(self, running: Running) -> Done:
        """Also to the end that cancelling is, where the run had begun."""
        try:
            finished = await self._driven(running)
        except anyio.get_cancelled_exc_class():
            if running.finished is None:
                raise
            finished = running.finished
        return Done(finished, running.model, running.turns, running.resumed, running.candidates, running.layers)


def drive(job: Job) -> Done:
    """The task of a run, in a worker. Cancelled as by Ctrl-C, it closes the run on record."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by Ray, and would be in the sandbox too
    asked = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: asked.set())
    with contextlib.suppress(OSError):  # of another machine, which may not have it
        os.chdir(job.place)
    try:
        return anyio.run(_drive, job, asked)
    finally:
        signal.signal(signal.SIGINT, before)


async def _drive(job: Job, asked: threading.Event) -> Done:
    store, item = await _opened(job.item.spec.store), job.item
    async with anyio.create_task_group() as looking, anyio.create_task_group() as work:
        looking.start_soon(_stop_when, asked, work.cancel_scope)
        while await store.driver(job.run_id) is not None:  # noqa: ASYNC110 (a worker that Ray thinks lost may not be)
            await anyio.sleep(_LOOK_S)
        runner = _Worker((item,), _Begun(job), store, Plan(parallel=1, max_cost=job.max_cost))
        async with AsyncExitStack() as stack:
            if job.workspaces:
                try:
                    there = at_hand(item, job.run_id, store, _workspaces(job.workspaces), runner.goes_on)
                    item, runner.store = await stack.enter_async_context(there)
                except StockadeError as error:
                    looking.cancel_scope.cancel()
                    return _not_begun(item, error)
            done = await runner.to_end(Running(item, allowance=job.allowance))
        looking.cancel_scope.cancel()
        return done
    raise KeyboardInterrupt  # before it had begun


def _not_begun(item: Item, error: StockadeError) -> Done:
    """What it needs is not to be had here."""
    finished = RunFinished(at=time.time(), status="failed", reason="sandbox", detail=str(error), turns=0)
    return Done(finished, item.spec.model, 0, resumed=False, candidates={}, layers=())


async def _stop_when(asked: threading.Event, scope: anyio.CancelScope) -> None:
    """A signal to a worker wakes no event loop: it is looked for."""
    while not asked.is_set():  # noqa: ASYNC110 (the same)
        await anyio.sleep(_LOOK_S)
    scope.cancel()


async def _opened(address: str | None) -> RunStore:
    """StoreFailed where the record is out of reach for half a minute: a server that is restarted is back before."""
    for pause_s in _PAUSES_S:
        try:
            return _store(address)
        except StoreFailed:
            await anyio.sleep(pause_s)
    return _store(address)


@cache
def _workspaces(address: str) -> Workspaces:
    """One of each worker."""
    return Workspaces(address)


@cache
def _store(address: str | None) -> RunStore:
    """One of each worker, for all runs that it has, one after the other."""
    return records.open_store(address)
