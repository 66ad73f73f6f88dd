"""Batches that the server drives: asked for by an admin, stopped with the server, gone on with by the next one."""

import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup, TaskStatus
from pydantic import Field

from stockade.core.errors import StoreFailed, UsageError
from stockade.core.ports import RunStore
from stockade.fleet.batch import Plan, Runner, opened
from stockade.fleet.known import find_results
from stockade.fleet.tasks import Selection, read_tasks
from stockade.paths import read_regular, state_dir
from stockade.runtime.roots import Roots
from stockade.runtime.spec import RunSpec
from stockade.server.models import Wire
from stockade.server.runs import SERVER_STOPPED, say, why

_REQUEST, _MAX_BYTES = "request.json", 4 << 20
_NOT_HERE = ("files", "image")


class NewBatch(Wire):
    """`tasks`: each as a line of `stockade batch run`, without `files` and `image`, in the server's folders. The
    others are as its flags: `deadline` in seconds, `max_cost` of all in USD, 0 is unlimited; `parallel` 0 is auto.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = "batch"
    tasks: tuple[dict[str, Any], ...] = Field(min_length=1, max_length=10_000)
    epochs: int = Field(default=1, ge=1, le=1000)
    parallel: int = Field(default=0, ge=0, le=1000)
    retries: int = Field(default=2, ge=0, le=20)
    deadline: float = Field(default=0.0, ge=0)
    max_cost: float = Field(default=0.0, ge=0)


class Batches:
    """Each has a folder in the server's state: what was asked for, as long as it is not over, and its results."""

    def __init__(self, options: RunSpec, roots: Roots, store: RunStore) -> None:
        self._base, self._roots, self._store = options.model_copy(update={"folder": ()}), roots, store
        self._running: dict[str, Runner] = {}
        self._group: TaskGroup

    @asynccontextmanager
    async def serving(self, *, resume: bool) -> AsyncIterator[None]:
        """Inside, batches can be begun; at the end what runs is closed in order. `resume`: those that were cut off."""
        async with anyio.create_task_group() as self._group:
            if resume:
                for request in sorted(_place().glob(f"*/{_REQUEST}")):
                    self._group.start_soon(self._again, request)
            try:
                yield
            finally:
                for runner in self._running.values():
                    runner.stop(SERVER_STOPPED)

    async def begin(self, asked: NewBatch) -> str:
        """Its id. UsageError, and nothing has started, where a task is wrong."""
        await to_thread.run_sync(read_tasks, self._rows(asked), self._base, Selection(epochs=asked.epochs))
        place = _place() / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
        try:
            place.mkdir(parents=True, mode=0o700)
            (place / _REQUEST).write_text(asked.model_dump_json())
        except OSError as error:
            raise StoreFailed(f"{place} cannot be written: {error.strerror}") from None
        return str(await self._group.start(self._drive, place, asked))

    def stop(self, batch: str) -> bool:
        """What runs is closed on record, and nothing more begun. Whether it is driven here."""
        runner = self._running.get(batch)
        if runner is not None:
            runner.stop()
        return runner is not None

    async def _again(self, request: Path) -> None:
        try:
            asked = NewBatch.model_validate_json(read_regular(request, _MAX_BYTES))
            await self._drive(request.parent, asked)
        except Exception as error:  # noqa: BLE001 (as in _drive)
            say(f"the batch in {request.parent} does not go on: {why(error)}")

    async def _drive(
        self, place: Path, asked: NewBatch, *, task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        plan = Plan(parallel=asked.parallel, retries=asked.retries, max_cost=asked.max_cost, deadline=asked.deadline)
        rows, results, select = self._rows(asked), place / f"{asked.name}.results.jsonl", Selection(epochs=asked.epochs)
        with opened(rows, results, self._base, select, serving=True) as (items, made):
            batch = find_results(results).id
            self._running[batch] = runner = Runner(items, made, self._store, plan)
            task_status.started(batch)
            try:
                await runner.run()
                if runner.ended != SERVER_STOPPED:
                    (place / _REQUEST).unlink()
            except Exception as error:  # noqa: BLE001 (of one batch; the server goes on, and the next one with it)
                say(f"batch {batch}: {why(error)}")
            finally:
                del self._running[batch]

    def _rows(self, asked: NewBatch) -> list[dict[str, Any]]:
        """With folders as the server has them."""
        rows = list[dict[str, Any]]()
        for number, row in enumerate(asked.tasks, 1):
            if odd := next((key for key in _NOT_HERE if key in row), None):
                raise UsageError(f"task {number}: a client names no {odd}", "stockade batch run does")
            if str(row.get("bot")).endswith(".toml"):
                raise UsageError(f"task {number}: a bot is a name here, never a file", "GET /v1/bots names them")
            folder = row.get("folder")
            if isinstance(folder, str):
                path, colon, mode = folder.rpartition(":")
                path, mode = (path, mode) if colon and mode in ("ro", "overlay", "rw") else (folder, "overlay")
                if mode == "rw":
                    raise UsageError(f"task {number}: a client may not be given rw", "review it and apply it")
                row = row | {"folder": self._roots.allowed(path, "ro" if mode == "ro" else "overlay")}
            rows.append(row)
        return rows


def _place() -> Path:
    return state_dir() / "serve" / "batches"
