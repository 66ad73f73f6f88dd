"""`POST /query`, as CoSMIC's clients ask a coder: a run of the bot `coder`, and what came of it; `GET /health` is there
already.
"""

import anyio
from fastapi import APIRouter, Request
from pydantic import Field

from stockade.core.events import RunFinished
from stockade.plugins.coder.bot import CODER, CoderBot, Wanted, result_of
from stockade.server.api import OF_TOKEN, Here, Starts
from stockade.server.models import NewRun, Text, Wire
from stockade.server.openapi import errors
from stockade.server.runs import SERVER_STOPPED

queries = APIRouter(responses=OF_TOKEN)


class Query(Wire):
    """What is asked. `tests` is the text of a test file, `examples` are like `f(1) == 2`, `stdin` is what it reads."""

    query: Text
    tests: str = Field(default="", max_length=200_000)
    examples: tuple[str, ...] = Field(default=(), max_length=100)
    stdin: str = Field(default="", max_length=200_000)


class Answer(Wire):
    """What comes back, always with all fields. `response`: what the program printed; `status`: success or error."""

    response: str = ""
    error: str = ""
    code: str = ""
    status: str
    attempts: int = 0
    run: str = ""


@queries.post("/query", responses=errors(429, 502))
async def query(asked: Query, request: Request, here: Here, token: Starts) -> list[Answer]:
    """A program for the query, when it is there: a list of one. A client that goes away ends its run."""
    wanted = Wanted(tests=asked.tests, examples=asked.examples, stdin=asked.stdin)
    wanted.job(asked.query)  # what is wrong with the checks is said before anything starts
    bot = CODER.model_copy(update={"bot": CoderBot(wanted)})
    runs = here.runs
    run_id, _ = await runs.begin(token, NewRun(task=asked.query), None, None, bot)
    if (live := runs.live.get(run_id)) is not None:
        async with anyio.create_task_group() as group:

            async def until_gone() -> None:
                while (await request.receive())["type"] != "http.disconnect":
                    pass
                live.parts.pause.stop(SERVER_STOPPED if runs.closing else "cancelled")
                live.scope.cancel()

            group.start_soon(until_gone)
            await live.ended.wait()
            group.cancel_scope.cancel()
    events = await runs.store.events(run_id)
    end = next((event for event in reversed(events) if isinstance(event, RunFinished)), None)
    failed = end.detail if end is not None and end.status == "failed" else ""
    found = (await runs.view(run_id)).redactor.data(result_of(events, failed).model_dump())
    return [
        Answer(
            response=found["stdout"],
            error=found["error"],
            code=found["code"],
            status=found["status"],
            attempts=len(found["attempts"]),
            run=run_id,
        )
    ]
