"""One thread that owns the connection. What waits for it is written together: many appends, at most one sync to disk.

A hop to this thread and back costs half of one to anyio's worker threads, and nobody ever waits for a lock.
What it is about to do is an audit event, `stockade.step`, with a name.
"""

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import anyio
import anyio.lowlevel
import anyio.to_thread

from stockade.core.errors import StockadeError, StoreFailed
from stockade.store.database import Database

_TOGETHER = 256
_TRIES = 5
T = TypeVar("T")


@dataclass(slots=True)
class _Job:
    work: Callable[[], Any]
    writes: bool
    durable: bool
    token: anyio.lowlevel.EventLoopToken
    done: anyio.Event = field(default_factory=anyio.Event)
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Work for the thread. `beat` is called in it every `beat_s` seconds while `beating` says so."""

    def __init__(self, db: Database, beat: Callable[[], None], beating: Callable[[], bool], beat_s: float) -> None:
        self._db = db
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._beat, self._beating, self._beat_s = beat, beating, beat_s
        self._beaten_at = time.monotonic()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="stockade-record", daemon=True)
        self._thread.start()

    async def read(self, work: Callable[[], T]) -> T:
        """What `work` returns, run in the thread outside of a transaction. StoreFailed for the database's errors."""
        return cast(T, await self._do(work, writes=False))

    async def write(self, work: Callable[[], T], *, durable: bool = True) -> T:
        """The same inside a transaction that is on disk when this returns, and in which others may write too.

        Without `durable` it need not be synced, and is where another wants that.

        `work` may be called again when that failed, and raises a StockadeError only before it has written anything.
        Cannot be cancelled: what is on disk and what the caller knows must not differ.
        """
        with anyio.CancelScope(shield=True):
            result = await self._do(work, writes=True, durable=durable)
        return cast(T, result)

    async def close(self) -> None:
        """After what is under way."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._thread.join)

    async def _do(self, work: Callable[[], Any], *, writes: bool, durable: bool = True) -> Any:
        if self._closed:
            raise StoreFailed(f"the record {self._db.place} is closed")
        job = _Job(work, writes, durable, anyio.lowlevel.current_token())
        self._jobs.put(job)
        await job.done.wait()
        if job.error is not None:
            raise job.error
        return job.result

    def _run(self) -> None:
        while True:
            jobs, last = self._waiting()
            writing = [job for job in jobs if job.writes]
            for job in jobs:
                if not job.writes:
                    self._one(job)
                    _tell([job])
            if writing:
                self._together(writing)
                _tell(writing)
            if self._beating() and time.monotonic() - self._beaten_at >= self._beat_s:
                self._beaten_at = time.monotonic()
                self._heartbeat()
            if last:
                break
        sys.audit("stockade.step", "record.close")
        self._db.close()

    def _waiting(self) -> tuple[list[_Job], bool]:
        """At least one, or none when it is time for a heartbeat; and whether this was the last."""
        jobs: list[_Job] = []
        try:
            job = self._jobs.get(timeout=self._beat_s if self._beating() else None)
            while job is not None:
                jobs.append(job)
                if len(jobs) == _TOGETHER:
                    return jobs, False
                job = self._jobs.get_nowait()
        except queue.Empty:
            return jobs, False
        return jobs, True

    def _together(self, jobs: list[_Job], tries: int = _TRIES) -> None:
        """One transaction. When it fails, one for each, so that nobody fails for what another wanted."""
        for job in jobs:
            job.result = job.error = None
        try:
            self._transaction(jobs)
        except self._db.errors as error:
            self._db.rollback()
            again = self._db.try_again(error) and tries > 1
            if len(jobs) > 1:
                for job in jobs:
                    self._together([job])
            elif again:
                self._together(jobs, tries - 1)
            else:
                jobs[0].error = self._db.mapped(error)
        except BaseException as bug:  # noqa: BLE001 (it belongs to those who wait for it)
            self._db.rollback()
            for job in jobs:
                job.error = bug

    def _transaction(self, jobs: list[_Job]) -> None:
        durable = any(job.durable for job in jobs)
        sys.audit("stockade.step", "record.begin")
        self._db.begin(durable=durable)
        for job in jobs:
            try:
                job.result = job.work()
            except StockadeError as error:
                job.error = error
        sys.audit("stockade.step", "record.sync" if durable else "record.commit")
        self._db.commit()
        sys.audit("stockade.step", "record.acknowledge")

    def _one(self, job: _Job) -> None:
        try:
            try:
                job.result = job.work()
            except self._db.errors as error:
                if not self._db.try_again(error):
                    raise
                job.result = job.work()
        except self._db.errors as error:
            job.error = self._db.mapped(error)
        except BaseException as error:  # noqa: BLE001 (it belongs to whoever waits for it)
            job.error = error

    def _heartbeat(self) -> None:
        """One that cannot be written is not an error: the next append says what is wrong."""
        try:
            self._db.begin(durable=False)
            self._beat()
            sys.audit("stockade.step", "lease.beat")
            self._db.commit()
        except self._db.errors as error:
            self._db.rollback()
            self._db.try_again(error)


def _tell(jobs: list[_Job]) -> None:
    """Wake those who wait: one call into each event loop, whose end is not waited for."""
    loops: dict[anyio.lowlevel.EventLoopToken, list[_Job]] = {}
    for job in jobs:
        loops.setdefault(job.token, []).append(job)
    for token, waiting in loops.items():
        loop: Any = token.native_token
        soon = loop.call_soon_threadsafe if hasattr(loop, "call_soon_threadsafe") else loop.run_sync_soon
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is left to be told
            soon(_wake, waiting)


def _wake(jobs: list[_Job]) -> None:
    for job in jobs:
        job.done.set()
