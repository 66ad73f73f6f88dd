"""The routes. Each says what it needs of a token, and answers with the values of `models` or the record's own."""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Query, Request, Response, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import PlainTextResponse

from stockade import changes
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, RunFinished, RunStarted
from stockade.core.ports import RunStore
from stockade.run_lock import status_now
from stockade.runtime import bots
from stockade.runtime.model_state import ModelState, model_state
from stockade.runtime.tools import known_tools
from stockade.server.batching import Batches
from stockade.server.bounds import Rate
from stockade.server.models import (
    RUNS_A_PAGE,
    Approval,
    Asked,
    Login,
    Message,
    NewRun,
    Output,
    Rewind,
    Run,
    RunLine,
    RunPage,
    State,
    Told,
    ToolLine,
    Upload,
    Who,
)
from stockade.server.openapi import EVENT, TAR, errors
from stockade.server.runs import OWNER, NotFound, Runs
from stockade.server.tokens import SESSION_S, Scope, Token, Tokens
from stockade.server.uploads import Uploads
from stockade_sandbox.doctor.probe import probe
from stockade_sandbox.results import Finding

T = TypeVar("T")
_PING_S = 15
_STUCK_S = 60
"""After which a reader of events that takes none is let go; it comes back with the last id that it has."""
_TAIL = 32
RATE, BURST = 100, 300
SESSION = "stockade_session"
_BEARER = HTTPBearer(scheme_name="token", auto_error=False, description="stockade serve token new NAME")
_COOKIE = APIKeyCookie(scheme_name="session", name=SESSION, auto_error=False, description="Of POST /login.")


@dataclass(frozen=True, slots=True)
class Served:
    """All that a request may need."""

    runs: Runs
    tokens: Tokens
    uploads: Uploads
    rate: Rate = field(default_factory=lambda: Rate(RATE, BURST))
    batches: Batches | None = None


class Denied(Exception):
    """Nobody's token (401), one without the scope (403), or one that asks too often (429)."""

    def __init__(self, status: int, title: str, detail: str, hint: str, again_s: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.title, self.detail, self.hint, self.again_s = status, title, detail, hint, again_s


async def served(request: Request) -> Served:
    found = request.app.state.served
    assert isinstance(found, Served)
    return found


Here = Annotated[Served, Depends(served)]


def needs(scope: Scope) -> Any:
    """The token of a request, which has this scope."""

    async def token(
        here: Here,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
        session: Annotated[str | None, Depends(_COOKIE)],
    ) -> Token:
        if bearer is not None:
            found = here.tokens.check(bearer.credentials.strip())
        else:
            found = here.tokens.of_session(session) if session else None
        if found is None:
            raise Denied(
                401, "Unauthorized", "this needs a token", "Authorization: Bearer TOKEN (stockade serve token new)"
            )
        if not found.may(scope):
            raise Denied(
                403, "Forbidden", f"this needs a token with the scope {scope}", "stockade serve token new --scope"
            )
        if wait_s := here.rate.wait_s(found.id):
            detail = f"this token may ask {RATE} times a second, and {BURST} times at once"
            raise Denied(429, "Too Many Requests", detail, "wait as long as Retry-After says", math.ceil(wait_s))
        return found

    return Security(token, scopes=[scope])


OF_TOKEN = errors(401, 403, 422, 429, "default")
BUSY, DECIDING = errors(409), errors(409, 410)
Reads = Annotated[Token, needs("read")]
Starts = Annotated[Token, needs("run")]
Approves = Annotated[Token, needs("approve")]
Admin = Annotated[Token, needs("admin")]
open_to_all, api = APIRouter(responses=errors("default")), APIRouter(prefix="/v1", responses=OF_TOKEN)
of_run = APIRouter(prefix="/runs/{run}", responses=errors(404))


@open_to_all.get("/healthz")
@open_to_all.get("/health", include_in_schema=False)
async def healthz() -> dict[str, Any]:
    """The server answers, and has sandboxes too."""
    return {"status": "ok", "sandboxes": True}


@open_to_all.get("/readyz")
async def readyz(here: Here) -> dict[str, str]:
    """The record can be read."""
    await here.runs.store.runs(limit=1)
    return {"status": "ready"}


@open_to_all.get("/metrics", response_class=PlainTextResponse, responses=OF_TOKEN)
async def metrics(here: Here, _: Admin) -> str:
    """For Prometheus."""
    live = here.runs.live.values()
    counts = dict[str, int]()
    for one in await here.runs.store.runs():
        status = status_now(one.run_id, one.status, one.driver)
        counts[status] = counts.get(status, 0) + 1
    return "\n".join((
        "# HELP stockade_runs Runs on record, by status.",
        "# TYPE stockade_runs gauge",
        *(f'stockade_runs{{status="{status}"}} {count}' for status, count in sorted(counts.items())),
        "# HELP stockade_runs_live Runs under way in this server.",
        "# TYPE stockade_runs_live gauge",
        f"stockade_runs_live {len(live)}",
        "# HELP stockade_runs_waiting Open questions to users.",
        "# TYPE stockade_runs_waiting gauge",
        f"stockade_runs_waiting {sum(len(one.asked) for one in live)}",
        "# HELP stockade_event_readers Clients that read events.",
        "# TYPE stockade_event_readers gauge",
        f"stockade_event_readers {here.runs.readers}",
        "",
    ))  # fmt: skip


@open_to_all.post("/login", status_code=204, response_class=Response, responses=errors(401, 422))
async def log_in(asked: Login, request: Request, here: Here) -> Response:
    """A browser is that token from now on, by a cookie. 401 for a key that was used, is over, or never was one."""
    if (found := here.tokens.log_in(asked.key)) is None:
        raise Denied(401, "Unauthorized", "this link was used, or is too old", "stockade serve token login NAME")
    answer = Response(status_code=204)
    answer.set_cookie(
        SESSION, here.tokens.session(found), max_age=SESSION_S, httponly=True, samesite="strict",
        secure=request.url.scheme == "https",
    )  # fmt: skip
    return answer


@open_to_all.post("/logout", status_code=204, response_class=Response)
async def log_out() -> Response:
    """The browser forgets it."""
    answer = Response(status_code=204)
    answer.delete_cookie(SESSION, httponly=True, samesite="strict")
    return answer


@api.get("/token")
async def who(token: Reads) -> Who:
    """Whose token this is, and what it may."""
    return Who(name=token.name, scopes=token.scopes, at_once=token.at_once, max_cost=token.max_cost)


@api.post("/uploads", status_code=201, responses=errors(413), openapi_extra=TAR)
async def upload(request: Request, here: Here, token: Starts) -> Upload:
    """A folder as a tar, as the body of the request; a run takes it by its id."""
    return await here.uploads.take(token, request.stream())


@api.delete("/uploads/{upload}", status_code=204, response_class=Response, responses=errors(404))
async def remove_upload(upload: str, here: Here, token: Starts) -> None:
    """The folder is gone, with what was applied to it."""
    await here.uploads.remove(token, upload)


@api.post("/runs", status_code=201, responses={200: {"model": Run}, **errors(404, 409, 502)})
async def begin(
    asked: NewRun,
    response: Response,
    here: Here,
    token: Starts,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> Run:
    """A run, which is on record when this answers. 200 where the Idempotency-Key had begun it before."""
    if asked.folder is not None and asked.upload is not None:
        raise UsageError("folder and upload are both the folder", "give one of them")
    folder = None
    if asked.upload is not None:
        folder = f"{here.uploads.path(token, asked.upload)}:{asked.mode}"
    elif asked.folder is not None:
        folder = here.runs.roots.allowed(asked.folder, asked.mode)
    run_id, new = await here.runs.begin(token, asked, folder, idempotency_key)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/runs/{run_id}"
    return await _run(here.runs, run_id)


@api.get("/runs")
async def list_runs(
    here: Here,
    token: Reads,
    status: State | None = None,
    folder: Annotated[str | None, Query(max_length=4096)] = None,
    words: Annotated[str, Query(max_length=200)] = "",
    cursor: Annotated[str | None, Query(max_length=200, pattern=r"^[\w.-]+:[0-9.e+]+$")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = RUNS_A_PAGE,
) -> RunPage:
    """Newest first: this token's, of an admin all. `words` stand in the task, the answer or a command, each of them."""
    lines, past = list[RunLine](), cursor is None
    last, _, since = (cursor or "").rpartition(":")
    async for one in here.runs.newest(folder=folder, words=words.split()):
        if not past:
            past = one.run_id == last or one.started < float(since)  # the one that it names may be removed
            if not past or one.run_id == last:
                continue
        if one.problem is not None:
            continue
        if not (token.may("admin") or (await here.runs.started(one.run_id)).options.get(OWNER) == token.id):
            continue
        live = here.runs.live.get(one.run_id)
        state = _live_state(here.runs, one.run_id) or status_now(one.run_id, one.status, one.driver)
        if status in (None, state):
            if len(lines) == limit:
                return RunPage(runs=tuple(lines), next=f"{lines[-1].id}:{lines[-1].started}")
            text = (await here.runs.view(one.run_id)).redactor.text(one.task)
            lines.append(RunLine(
                id=one.run_id, status=state, started=one.started, task=text, bot=one.bot,
                model=one.model, folder=one.folder or None, turns=one.turns, waiting=len(live.asked) if live else 0,
                verified=one.verified,
            ))  # fmt: skip
    return RunPage(runs=tuple(lines))


@of_run.get("")
async def show(run: str, here: Here, token: Reads) -> Run:
    """What it came to, or how far it is."""
    await here.runs.of(token, run)
    return await _run(here.runs, run)


@of_run.delete("", status_code=204, response_class=Response, responses=BUSY)
async def remove(run: str, here: Here, token: Starts, force: bool = False) -> None:
    """Away with its record and folders. 409 while it is under way, or its changes are undecided and not `force`."""
    await here.runs.of(token, run)
    await here.runs.remove(run, force=force)


@of_run.get(
    "/events", response_class=EventSourceResponse,
    responses={200: {"content": {"text/event-stream": {"schema": EVENT}}}},
)  # fmt: skip
async def events(
    run: str,
    here: Here,
    token: Reads,
    output: bool = False,
    last_event_id: Annotated[str | None, Header(pattern=r"^\d{1,12}$")] = None,
) -> EventSourceResponse:
    """Server-sent events: the record's, each with its number as id and its type as name, live while the run is under
    way. Last-Event-ID goes on behind that number. When nobody drives the run the last one is `end`, without an id.

    `output`: what a command writes comes too while it runs, as `output` without an id: `stream`, `text`, and in
    `missed` how many characters came too fast. What counts of it is in the record when the command has ended.
    """
    await here.runs.of(token, run)
    first = 0 if last_event_id is None else int(last_event_id) + 1

    async def told() -> AsyncIterator[ServerSentEvent]:
        async for number, event in here.runs.events(run, first, output=output):
            if isinstance(event, Output):
                yield ServerSentEvent(event.model_dump_json(), event="output")
            else:
                yield ServerSentEvent(event.line, event=event.type, id=str(number))
        if not here.runs.closing:
            yield ServerSentEvent("{}", event="end")

    return EventSourceResponse(told(), ping=_PING_S, send_timeout=_STUCK_S)


@of_run.get("/approvals")
async def approvals(run: str, here: Here, token: Reads) -> list[Asked]:
    """What it waits for."""
    await here.runs.of(token, run)
    live = here.runs.live.get(run)
    return list(live.asked.values()) if live else []


@of_run.post("/approvals/{number}", responses=BUSY)
async def approve(run: str, number: int, reply: Approval, here: Here, token: Approves) -> Run:
    """The user's word on an action. 409 when it is not asked any more."""
    await here.runs.of(token, run)
    here.runs.approve(run, number, reply)
    return await _run(here.runs, run)


@of_run.post("/messages", status_code=202, responses={**DECIDING, **errors(502)})
async def message(run: str, words: Message, here: Here, token: Starts) -> Told:
    """An answer to a question; words for the bot before its next turn; or, to a run that is over, its next task."""
    await here.runs.of(token, run)
    return Told(as_=await here.runs.tell(token, run, words))


@of_run.post("/pause", responses=BUSY)
async def pause(run: str, here: Here, token: Starts) -> Run:
    """What is under way goes on to its end; nothing new begins until it is resumed."""
    await here.runs.of(token, run)
    here.runs.here(run).parts.pause.hold()
    return await _run(here.runs, run)


@of_run.post("/resume", responses={**DECIDING, **errors(502)})
async def resume(run: str, here: Here, token: Starts) -> Run:
    """A run that is paused goes on, or one that was stopped or cut off."""
    await here.runs.of(token, run)
    if (live := here.runs.live.get(run)) is not None:
        live.parts.pause.go_on()
    else:
        await here.runs.resume(token, run)
    return await _run(here.runs, run)


@of_run.post("/rewind", status_code=201, responses={**DECIDING, **errors(502)})
async def rewind(run: str, to: Rewind, here: Here, token: Starts) -> Run:
    """A new run that is what this one was after a turn, files included, and goes on from there."""
    await here.runs.of(token, run)
    return await _run(here.runs, await here.runs.rewind(token, run, to))


@of_run.post("/cancel", responses=BUSY)
async def cancel(run: str, here: Here, token: Starts) -> Run:
    """It ends in order, and its changes are kept to be decided on."""
    await here.runs.of(token, run)
    await here.runs.cancel(run)
    return await _run(here.runs, run)


@api.get("/bots")
async def list_bots(_: Reads) -> list[str]:
    """Names that a run may have as `bot`."""
    return sorted(await to_thread.run_sync(bots.bot_list))


@api.get("/tools")
async def list_tools(_: Reads) -> list[ToolLine]:
    """Tools that bots of this server may have."""
    return [ToolLine(name=name, kind=kind, about=about) for name, kind, about in await to_thread.run_sync(known_tools)]


@api.get("/doctor")
async def doctor(_: Admin) -> list[Finding]:
    """What the server's machine can enforce, tried now: takes a second or two."""
    return await to_thread.run_sync(probe)


@api.get("/models")
async def list_models(here: Here, _: Reads) -> list[str]:
    """Names that a run may have as `model`; the first is what it has otherwise."""
    runs = here.runs
    return [runs.options.model, *sorted(runs.models - {runs.options.model})]


@api.get("/models/{name:path}", responses=errors(404))
async def show_model(name: str, here: Here, _: Reads) -> ModelState:
    """Whether one of them would answer now; nothing is started for it. A server that it runs on is asked."""
    if name not in {here.runs.options.model, *here.runs.models}:
        raise NotFound(f"this server offers no model {name}", "GET /v1/models names them")
    return await model_state(name)


api.include_router(of_run)


def _live_state(runs: Runs, run_id: str) -> State | None:
    if (live := runs.live.get(run_id)) is None:
        return None
    return "asking" if live.asked else "paused" if live.parts.pause.held else "running"


async def _last_events(store: RunStore, run_id: str) -> Sequence[RunEvent]:
    """As far back as its end, where that is near; else all."""
    tail = await store.events(run_id, first=max(0, await store.length(run_id) - _TAIL))
    return tail if any(isinstance(event, RunFinished) for event in tail) else await store.events(run_id)


async def _run(runs: Runs, run_id: str) -> Run:
    """As the record has it, of which the end is enough."""
    started, view, live = await runs.started(run_id), await runs.view(run_id), runs.live.get(run_id)
    found = changes.facts([] if live else await _last_events(runs.store, run_id))
    end = found.finished
    state: Any = end.status if end else status_now(run_id, "running", await runs.store.driver(run_id))
    values: dict[str, Any] = {}
    if end is not None:
        cleaned = view.redactor.event(end)
        assert isinstance(cleaned, RunFinished)
        kept = ("reason", "detail", "verified", "answer", "usage", "changes", "changed_tests", "turns")
        values = {name: getattr(cleaned, name) for name in kept}
        whole = (("discarded", found.discarded), ("applied", found.applied), ("undone", found.undone))
        values["decided"] = next((word for word, event in whole if event is not None), None)
    elif live is not None:
        values = {"turns": live.turns, "waiting": len(live.asked)}
    return _described(started, view.redactor.text, _live_state(runs, run_id) or state, values)


def _described(started: RunStarted, hide: Callable[[str], str], state: State, values: dict[str, Any]) -> Run:
    folder = started.policy.folder
    return Run(
        id=started.run_id, status=state, started=started.at, task=hide(started.task), bot=started.bot,
        model=started.model, folder=folder.host if folder is not None else None, **values,
    )  # fmt: skip
