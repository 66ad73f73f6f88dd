"""`/v1/batches`: those of this machine, as they are now, and new ones. For an admin alone: they are no token's."""

from pathlib import Path

from anyio import to_thread
from fastapi import APIRouter

from stockade.core.errors import StoreFailed, UsageError
from stockade.fleet.known import Known, find, known
from stockade.fleet.results import Attempt, Outcome, latest, read_results
from stockade.fleet.statistics import summary
from stockade.server.api import OF_TOKEN, Admin, Here
from stockade.server.batching import NewBatch
from stockade.server.live import Conflicting
from stockade.server.models import Wire
from stockade.server.openapi import errors
from stockade.server.runs import NotFound

batches = APIRouter(prefix="/v1/batches", responses=OF_TOKEN)


class BatchLine(Wire):
    """`done` of `tasks` have an outcome, `solved` of `counted` say something about the task, at 95 % within `interval`.
    `results`: their file; `begun`: UNIX s; `cost` in USD. `problem`: why they cannot be read.
    """

    id: str
    results: str
    running: bool
    begun: float
    tasks: int
    done: int
    outcomes: dict[Outcome, int]
    solved: int
    counted: int
    interval: tuple[float, float]
    tokens: int
    cost: float
    problem: str | None = None


class BatchTold(BatchLine):
    """`attempts`: of each task and epoch the last, in the order in which they were seen. Runs have their answers."""

    attempts: tuple[Attempt, ...]


@batches.get("")
async def list_batches(_: Admin) -> list[BatchLine]:
    """The last begun first."""
    return await to_thread.run_sync(lambda: [_line(one, *_read(one)) for one in known()])


@batches.post("", status_code=201)
async def begin_batch(asked: NewBatch, here: Here, _: Admin) -> BatchLine:
    """It is under way when this answers, in this server; what its runs change waits to be reviewed."""
    assert here.batches is not None
    return await to_thread.run_sync(_of, await here.batches.begin(asked))


@batches.post("/{batch}/stop", responses=errors(404, 409))
async def stop_batch(batch: str, here: Here, _: Admin) -> BatchLine:
    """What runs is closed on record, and nothing more is begun. 409 when this server does not drive it."""
    assert here.batches is not None
    found = await to_thread.run_sync(_of, batch)
    if not here.batches.stop(batch):
        raise Conflicting("this server does not drive the batch", "stockade batch stop, for one of a terminal")
    return found


@batches.get("/{batch}", responses=errors(404))
async def batch(batch: str, here: Here, _: Admin) -> BatchTold:
    """How far it is, and what became of each of its tasks."""
    hide = here.runs.redactor.text

    def told() -> BatchTold:
        one = _known(batch)
        attempts, problem = _read(one)
        shown = (last.model_copy(update={"answer": None, "detail": hide(last.detail)}) for last in latest(attempts))
        return BatchTold(**dict(_line(one, attempts, problem)), attempts=tuple(shown))

    return await to_thread.run_sync(told)


def _known(batch: str) -> Known:
    try:
        return find(batch)
    except UsageError as error:
        raise NotFound(error.message, "GET /v1/batches lists them") from None


def _of(batch: str) -> BatchLine:
    one = _known(batch)
    return _line(one, *_read(one))


def _read(one: Known) -> tuple[list[Attempt], str | None]:
    try:
        return read_results(Path(one.results)), None
    except StoreFailed as error:
        return [], error.message


def _line(one: Known, attempts: list[Attempt], problem: str | None) -> BatchLine:
    told = summary(attempts)
    solved, counted = told.solved_of
    return BatchLine(
        id=one.id, results=one.results, running=one.is_running, begun=one.begun, tasks=one.tasks,
        done=sum(told.outcomes.values()), outcomes=dict(told.outcomes), solved=solved, counted=counted,
        interval=told.interval, tokens=told.tokens, cost=told.cost, problem=problem,
    )  # fmt: skip
