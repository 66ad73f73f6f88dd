"""The record on either database: append-only events, `runs` as an index over them, leases.

Everything about one append is one transaction: that nobody else drives the run, the events, the index.
"""

import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

import anyio

from stockade.core.errors import RunRemoved, RunTaken, StoreFailed, UsageError
from stockade.core.events import (
    AnswerUnreadable,
    ModelAnswered,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    said_of,
)
from stockade.core.summary import NEVER_BEGAN, RunSummary
from stockade.store.database import Database
from stockade.store.index import lease_columns, plain, runs_of
from stockade.store.lease import BEAT_S, Lease, holding
from stockade.store.rows import Row, decode, encode
from stockade.store.writer import Writer

_TASK_SHOWN = 500
_SAID_CHARS = 20_000


@dataclass(slots=True)
class _Append:
    """`first` is where its events went when it was tried last."""

    run_id: str
    events: Sequence[RunEvent]
    rows: list[Row]
    first: int | None = None


class SQLRecord:
    """Implements core.ports.RunStore over one connection, which is the writer thread's alone."""

    def __init__(self, db: Database, beat_s: float = BEAT_S) -> None:
        self._db = db
        self._fences: dict[str, int] = {}
        self._writer = Writer(db, self._beat, lambda: bool(self._fences), beat_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._writer.close()

    async def append(self, run_id: str, events: Sequence[RunEvent], *, durable: bool = True) -> None:
        if events:
            job = _Append(run_id, events, [encode(one) for one in events])
            await self._writer.write(partial(self._append, job), durable=durable)

    async def events(self, run_id: str, *, first: int = 0, limit: int | None = None) -> list[RunEvent]:
        rows = await self._writer.read(partial(self._rows, run_id, first, limit))
        if not rows and first == 0:
            raise await self._writer.read(partial(self._no_run, run_id))
        large = {sha256 for *_, named in rows if named for sha256 in _names(named)}
        loaded = await self._writer.read(lambda: {name: self._db.load(name) for name in large}) if large else {}
        return decode(run_id, rows, loaded.get, self._db.place, first)

    async def length(self, run_id: str) -> int:
        sql = "SELECT count(*) FROM events WHERE run_id=?"
        return int((await self._writer.read(lambda: self._db.execute(sql, (run_id,))))[0][0])

    async def find(self, reference: str) -> str:
        return await self._writer.read(partial(self._find, reference))

    async def runs(
        self, *, folder: str | None = None, words: Sequence[str] = (), limit: int | None = None
    ) -> list[RunSummary]:
        return await self._writer.read(partial(runs_of, self._db, folder=folder, words=words, limit=limit))

    async def said(self, run_id: str, words: Sequence[str]) -> list[tuple[str, str]]:
        any_of = " OR ".join(self._db.matching for _ in words)
        sql = f"SELECT kind, text FROM said WHERE run_id=? AND ({any_of or 'true'}) ORDER BY number LIMIT 20"
        values = (run_id, *map(self._db.phrase, map(plain, words)))
        return [(str(kind), str(text)) for kind, text in await self._writer.read(lambda: self._db.execute(sql, values))]

    async def remove(self, run_id: str) -> None:
        await self._writer.write(partial(self._remove, run_id))

    async def removed(self) -> dict[str, float]:
        return dict(await self._writer.read(lambda: self._db.execute("SELECT run_id, at FROM removed")))

    async def sweep(self) -> None:
        await self._writer.write(lambda: self._db.keep(self._put_aside))

    async def driver(self, run_id: str) -> str | None:
        return await self._writer.read(partial(self._driver, run_id))

    @asynccontextmanager
    async def driving(self, run_id: str) -> AsyncIterator[None]:
        with holding() as holder:
            fence = await self._writer.write(partial(self._take, run_id, holder.json))
            self._fences[run_id] = fence
            try:
                yield
            finally:
                del self._fences[run_id]
                with anyio.CancelScope(shield=True), contextlib.suppress(StoreFailed):  # else it ends with `holding`
                    await self._writer.write(partial(self._let_go, run_id, fence))

    def _append(self, job: _Append) -> None:
        self._check_lease(job.run_id)
        ((last,),) = self._db.execute("SELECT max(seq) FROM events WHERE run_id=?", (job.run_id,))
        following = 0 if last is None else last + 1
        if not following and isinstance(gone := self._no_run(job.run_id), RunRemoved):
            raise gone
        if job.first is not None and job.first < following and self._is_there(job):
            return
        if following and any(isinstance(event, RunStarted) for event in job.events):
            raise StoreFailed(f"run {job.run_id} is already in the record {self._db.place}")
        job.first = following
        aside = [large for row in job.rows for large in row.put_aside]
        if aside:
            sys.audit("stockade.step", "record.large")
            self._db.save(aside)
        sys.audit("stockade.step", "record.append")
        self._db.execute_many(
            "INSERT INTO events (run_id, seq, at, type, body, crc, large) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (job.run_id, seq, row.at, row.type, row.body, row.crc, row.large)
                for seq, row in enumerate(job.rows, following)
            ],
        )
        sys.audit("stockade.step", "record.index")
        for event in job.events:
            self._index(job.run_id, event)

    def _is_there(self, job: _Append) -> bool:
        """A commit whose answer got lost with the connection may have been carried out."""
        result = self._db.execute("SELECT body FROM events WHERE run_id=? AND seq=?", (job.run_id, job.first))
        return bool(result) and result[0][0] == job.rows[0].body

    def _index(self, run_id: str, event: RunEvent) -> None:
        match event:
            case RunStarted():
                folder = event.policy.folder.host if event.policy.folder is not None else ""
                self._db.execute(
                    "INSERT INTO runs (run_id, started, task, bot, model, folder, status, turns)"
                    " VALUES (?, ?, ?, ?, ?, ?, 'running', 0)",
                    (run_id, event.at, plain(event.task[:_TASK_SHOWN]), event.bot, event.model, plain(folder)),
                )
            case ModelAnswered():
                self._db.execute("UPDATE runs SET turns=turns+1 WHERE run_id=?", (run_id,))
            case AnswerUnreadable():  # costs no turn
                self._db.execute("UPDATE runs SET turns=turns-1 WHERE run_id=?", (run_id,))
            case RunResumed():
                self._db.execute("UPDATE runs SET status='running', verified=NULL WHERE run_id=?", (run_id,))
            case RunFinished():
                verified = None if event.verified is None else int(event.verified)
                values = (event.status, event.turns, verified, run_id)
                self._db.execute("UPDATE runs SET status=?, turns=?, verified=? WHERE run_id=?", values)
            case _:
                pass
        if said := said_of(event):
            row = (run_id, said[0], plain(said[1][:_SAID_CHARS]))
            self._db.execute("INSERT INTO said (run_id, kind, text) VALUES (?, ?, ?)", row)

    def _rows(self, run_id: str, first: int, limit: int | None) -> list[tuple[object, ...]]:
        sql = "SELECT seq, body, crc, large FROM events WHERE run_id=? AND seq>=? ORDER BY seq"
        more = (f"{sql} LIMIT ?", (limit,)) if limit is not None else (sql, ())
        return self._db.execute(more[0], (run_id, first, *more[1]))

    def _find(self, reference: str) -> str:
        if reference == "last":
            rows = self._db.execute(
                f"SELECT run_id FROM runs WHERE replace(run_id, '.', '')=run_id AND NOT {NEVER_BEGAN}"
                " ORDER BY number DESC LIMIT 1"
            )
            if not rows:
                raise UsageError("there are no runs yet", "stockade run TASK")
            return str(rows[0][0])
        rows = [] if "\0" in reference or not _is_utf8(reference) else self._db.execute(
            "SELECT run_id FROM runs WHERE substr(run_id, 1, ?)=? ORDER BY run_id LIMIT 60", (len(reference), reference)
        )  # fmt: skip
        names = [str(row[0]) for row in rows]
        if reference in names:
            return reference
        own = [name for name in names if "." not in name]  # BOSS.1 is a helper of BOSS
        names = own or names
        if not names or not reference:
            raise self._no_run(reference)
        if len(names) > 1:
            raise UsageError(f"{reference!r} is the beginning of several runs: {', '.join(names)}")
        return names[0]

    def _no_run(self, reference: str) -> UsageError:
        """Why there is none of that id, or beginning of one."""
        rows = [] if not reference or "\0" in reference or not _is_utf8(reference) else self._db.execute(
            "SELECT run_id, at FROM removed WHERE substr(run_id, 1, ?)=? ORDER BY run_id LIMIT 1",
            (len(reference), reference),
        )  # fmt: skip
        if not rows:
            return UsageError(f"there is no run {reference!r}", "stockade runs list")
        run_id, at = rows[0]
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
        what = f"run {run_id} was removed on {when}: its record is gone, and what it applied cannot be undone any more"
        return RunRemoved(what, "stockade runs list names those that are there")

    def _remove(self, run_id: str) -> None:
        rows = self._db.execute("SELECT run_id FROM runs WHERE substr(run_id, 1, ?)=?", (len(run_id) + 1, f"{run_id}."))
        names = [run_id, *(str(row[0]) for row in rows)]
        for name in names:
            if name not in self._fences and (driver := self._driver_if_legible(name)) is not None:
                raise _taken(name, driver)
        sys.audit("stockade.step", "record.remove")
        for name in names:
            for table in ("events", "runs", "leases", "said"):
                self._db.execute(f"DELETE FROM {table} WHERE run_id=?", (name,))
            self._db.execute(
                f"INSERT INTO removed (run_id, at) VALUES (?, {self._db.now}) ON CONFLICT DO NOTHING", (name,)
            )

    def _driver_if_legible(self, run_id: str) -> str | None:
        """A lease that is damaged is nobody's: its holder cannot append any more either."""
        try:
            return self._driver(run_id)
        except StoreFailed:
            return None

    def _put_aside(self) -> set[str]:
        """Whatever an event names. StoreFailed when one does not say it: then nothing can be told to be nobody's."""
        rows = self._db.execute("SELECT run_id, large FROM events WHERE large IS NOT NULL")
        named = [(run_id, _names(large)) for run_id, large in rows]
        if damaged := [run_id for run_id, names in named if not names]:
            what = f"run {damaged[0]} is damaged in {self._db.place}: large outputs of removed runs stay as long as it"
            raise StoreFailed(what, f"stockade runs rm --force {damaged[0]}")
        return {name for _, names in named for name in names}

    # Leases

    def _lease(self, run_id: str, lock: str = "") -> Lease | None:
        rows = self._db.execute(f"SELECT {lease_columns(self._db)} FROM leases WHERE run_id=?{lock}", (run_id,))
        return Lease.of_row(run_id, rows[0], self._db.place) if rows else None

    def _driver(self, run_id: str) -> str | None:
        result = self._lease(run_id)
        return result.driver if result else None

    def _check_lease(self, run_id: str) -> None:
        """Whoever has no lease may append when nobody drives the run, and shuts out a driver that is gone."""
        mine = self._fences.get(run_id)
        result = self._lease(run_id, self._db.locking)
        if mine is not None:
            if result is None or result.fence != mine:
                raise _taken(run_id, result.driver if result else None)
        elif result is not None and result.holder is not None:
            if result.driver is not None:
                raise _taken(run_id, result.driver)
            self._db.execute("UPDATE leases SET fence=fence+1, holder=NULL WHERE run_id=?", (run_id,))

    def _take(self, run_id: str, holder: str) -> int:
        sys.audit("stockade.step", "lease.take")
        result = self._lease(run_id, self._db.locking)
        if result is not None and result.driver is not None:
            raise _taken(run_id, result.driver)
        fence = (result.fence if result else 0) + 1
        if result is None:
            self._db.execute(
                f"INSERT INTO leases (run_id, fence, holder, seen) VALUES (?, ?, ?, {self._db.now})",
                (run_id, fence, holder),
            )
        else:
            self._db.execute(
                f"UPDATE leases SET fence=?, holder=?, seen={self._db.now} WHERE run_id=?", (fence, holder, run_id)
            )
        return fence

    def _let_go(self, run_id: str, fence: int) -> None:
        sys.audit("stockade.step", "lease.release")
        self._db.execute("UPDATE leases SET holder=NULL WHERE run_id=? AND fence=?", (run_id, fence))

    def _beat(self) -> None:
        for run_id, fence in sorted(self._fences.items()):
            self._db.execute(f"UPDATE leases SET seen={self._db.now} WHERE run_id=? AND fence=?", (run_id, fence))


def _taken(run_id: str, driver: str | None) -> RunTaken:
    who = f"is being driven by {driver}" if driver else "was taken over by another process"
    return RunTaken(f"run {run_id} {who}", "wait for its end, or stop it there")


def _is_utf8(text: str) -> bool:
    return text.encode(errors="replace") == text.encode(errors="surrogatepass")


def _names(large: object) -> list[str]:
    try:
        return [str(sha256) for _, sha256, _, _ in json.loads(str(large))]
    except ValueError:
        return []  # decode says what is wrong


__all__ = ["SQLRecord"]
