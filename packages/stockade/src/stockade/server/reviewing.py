"""What a run changed and what it sees: the diff with its tag, files, apply, undo, discard."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from starlette.responses import PlainTextResponse

from stockade.server.api import DECIDING, OF_TOKEN, Approves, Here, Reads
from stockade.server.deciding import decide, look
from stockade.server.models import Chosen, Decided, Diff, FileList
from stockade.server.openapi import OCTETS, RAW, TAG, errors

review = APIRouter(prefix="/v1/runs/{run}", responses={**OF_TOKEN, **errors(404)})
IfMatch = Annotated[str | None, Header()]


@review.get("/diff", responses={200: {"headers": TAG}, **DECIDING})
async def diff(
    run: str, response: Response, here: Here, token: Reads, colours: bool = False, host: bool = False
) -> Diff:
    """What is still to be decided on, or has changed so far; the ETag of the answer is what an apply means. `host`:
    what else than the run changed in the folder since, of what the run changed too.
    """
    await here.runs.of(token, run)
    view = await here.runs.view(run)
    found = await look(here.runs, run, lambda work: work.host_diff(view) if host else work.diff(view, colours=colours))
    response.headers["ETag"] = f'"{found.etag}"'
    return found


@review.get("/files", responses=DECIDING)
async def files(
    run: str, here: Here, token: Reads, folder: Annotated[str, Query(max_length=4096, pattern=r"^[^\x00]*$")] = ""
) -> FileList:
    """What is in a folder as the bot sees it, changed or not."""
    await here.runs.of(token, run)
    return await look(here.runs, run, lambda work: work.files(folder))


@review.get("/files/{path:path}", response_class=PlainTextResponse, responses={**DECIDING, 200: RAW})
async def file(run: str, path: str, here: Here, token: Reads, raw: bool = False) -> Response:
    """A file as the run sees it, as plain text whatever it is; what is hidden is masked in it. `raw`: its bytes, of up
    to 64 MiB; 422 where something would be masked.
    """
    await here.runs.of(token, run)
    view = await here.runs.view(run)
    data = await look(here.runs, run, lambda work: work.file(path, view, raw=raw))
    return Response(data, media_type=OCTETS) if raw else PlainTextResponse(data.decode(errors="replace"))


@review.post("/apply", responses={**DECIDING, **errors(412, 428)})
async def apply(run: str, chosen: Chosen, here: Here, token: Approves, if_match: IfMatch = None) -> Decided:
    """Into the folder; again, where it was undone. 412 when the changes are not those of If-Match."""
    await here.runs.of(token, run)
    return await decide(here.runs, run, lambda work: work.apply(_etag(if_match), chosen))


@review.post("/undo", responses=DECIDING)
async def undo(run: str, chosen: Chosen, here: Here, token: Approves) -> Decided:
    """What was applied is taken back, all or what is at `paths`; what was edited since stays, unless `force`."""
    await here.runs.of(token, run)
    return await decide(here.runs, run, lambda work: work.undo(chosen.paths, force=chosen.force))


@review.post("/discard", responses={**DECIDING, **errors(412)})
async def discard(
    run: str, here: Here, token: Approves, chosen: Chosen | None = None, if_match: IfMatch = None
) -> Decided:
    """The changes are thrown away, all or what is at `paths`; the folder stays as it is, and the run goes on without
    them. 412 when they are not those of If-Match.
    """
    await here.runs.of(token, run)
    only = None if chosen is None else chosen.paths
    return await decide(here.runs, run, lambda work: work.discard(_etag(if_match), only))


def _etag(if_match: str | None) -> str | None:
    return if_match.strip().removeprefix("W/").strip('"') if if_match is not None else None
