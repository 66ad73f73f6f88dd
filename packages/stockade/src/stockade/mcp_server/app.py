"""The service as MCP tools and resources."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial, wraps
from inspect import cleandoc
from typing import Annotated, Any, ParamSpec

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitResult, InputRequiredResult, Resource
from mcp_types.version import is_version_at_least
from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python

from stockade import __version__
from stockade.core.errors import StockadeError
from stockade.core.events import ActionStarted, ModelStarted, RunEvent, RunStarted, SandboxStarted
from stockade.mcp_server.asking import Asked, Runs
from stockade.mcp_server.boxes import Box, Boxes
from stockade.mcp_server.results import Applied, Executed, Finished, described
from stockade.mcp_server.service import Command, Folder, Mode, Run, Seconds, Service
from stockade_sandbox.stoppable import unwrap_exception_group

INSTRUCTIONS = (
    "Runs LLM agents and commands in sealed sandboxes on this machine. run_bot gives a task to a bot; what it writes "
    "stays in a layer of its own until run_apply. Look at run_diff first. sandbox_exec runs one command and throws "
    "away what it wrote; sandbox_open gives a sandbox that lives on, for sandbox_run, sandbox_start and the others."
)
_EVENTS_KEPT = 64
_ASKS_BY_RESULT = "2026-07-28"
"""From this version of the protocol on a call ends with its question, and the next one brings the reply."""
RUNS = "stockade://runs"
P = ParamSpec("P")
Task = Annotated[str, Field(min_length=1, max_length=1_000_000, description="What the bot shall do.")]
Bot = Annotated[str | None, Field(max_length=64, description="Which bot: writing, reading, ...")]
Check = Annotated[str | None, Field(max_length=10_000, description="A command that must succeed at the end.")]
Turns = Annotated[int | None, Field(ge=1, le=10_000)]


class Approval(BaseModel):
    """The user's word."""

    apply: bool = Field(description="Write these changes to the folder?")


async def _ours(service: Service, work: Awaitable[Any]) -> Any:
    """What it gives, as JSON has it; our errors as the tool's: one line, with the way out. Whatever leaves is without
    secrets.
    """
    try:
        found = await work
        if isinstance(found, InputRequiredResult):
            return found  # a question, whose words are those of the run's own redactor
        return service.redactor.data(to_jsonable_python(found))
    except StockadeError as error:
        raise ToolError(service.redactor.text(str(error))) from None


class _Server(MCPServer[Any]):
    """`runs`: whose record is offered as resources."""

    def __init__(self, runs: Service | None, **more: Any) -> None:
        super().__init__("stockade", version=__version__, instructions=INSTRUCTIONS, log_level="ERROR", **more)
        self._runs = runs

    async def list_resources(self) -> list[Resource]:
        found = await super().list_resources()
        if self._runs is not None:
            for run in await _ours(self._runs, self._runs.runs_list()):
                words = {"title": run["task"], "description": f"{run['bot']}, {run['model']}: {run['status']}"}
                found.append(Resource(uri=f"{RUNS}/{run['run']}", name=run["run"], mime_type="text/plain", **words))
        return found


def make_server(service: Service, *, allow_apply: bool = False, only_sandbox: bool = False) -> MCPServer[Any]:
    """`allow_apply`: clients apply changes without asking the user; else only where the client can ask. `only_sandbox`:
    neither bots nor the record.
    """
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    boxes, runs = Boxes(service), Runs()

    @asynccontextmanager
    async def with_client(_: MCPServer[Any]) -> AsyncIterator[None]:
        async with unwrap_exception_group(), boxes, runs.going():
            yield

    server = _Server(None if only_sandbox else service, lifespan=with_client)

    def add(tool: Callable[..., Awaitable[Any]]) -> None:
        name, told = tool.__name__, described(tool.__name__, reaches=service.reaches)
        server.add_tool(_ours_of(service, tool), name, description=cleandoc(tool.__doc__ or ""), **told)
        _refuse_unknown(server, name)

    for method in (service.sandbox_exec, *boxes.tools(), _sandbox_run(boxes)):
        add(method)
    if only_sandbox:
        return server
    for method in (service.runs_list, service.run_show, service.run_diff, _run_bot(service, runs),
                   _run_apply(service, allow_apply=allow_apply)):  # fmt: skip
        add(method)
    _add_resources(server, service)
    return server


def _refuse_unknown(server: MCPServer[Any], tool: str) -> None:
    """An argument that is misspelt is said, where the library would leave it out."""
    made = server._tool_manager.get_tool(tool)
    assert made is not None
    arguments = made.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    made.parameters = arguments.model_json_schema(by_alias=True)


def _sandbox_run(boxes: Boxes) -> Callable[..., Awaitable[Executed]]:
    async def sandbox_run(sandbox: Box, command: Command, ctx: Context[Any], timeout_s: Seconds = None) -> Executed:
        """Run a command in an open sandbox's shell, whose folder, variables and functions stay from call to call. What
        it writes is told line by line as progress.
        """
        async with _progress(ctx) as told:
            return await boxes.run(told, sandbox, command, timeout_s)

    return sandbox_run


def _ours_of(service: Service, method: Callable[P, Awaitable[Any]]) -> Callable[P, Awaitable[Any]]:
    @wraps(method)
    async def told(*args: P.args, **kwargs: P.kwargs) -> Any:
        return await _ours(service, method(*args, **kwargs))

    return told


def _run_bot(service: Service, runs: Runs) -> Callable[..., Awaitable[Finished | InputRequiredResult]]:
    async def run_bot(
        task: Task, ctx: Context[Any], folder: Folder = None, mode: Mode = "overlay", bot: Bot = None,
        check: Check = None, max_turns: Turns = None, timeout_s: Seconds = None,
    ) -> Finished | InputRequiredResult:  # fmt: skip
        """Give a task to a bot in a sandbox and wait for its end. Its changes wait for run_apply. Where its actions are
        the user's to allow, the user is asked.
        """
        if ctx.request_state is None:
            name, user = runs.new()
            attach = user.attach if _can_ask(ctx) else None
            runs.group.start_soon(user.drive, partial(
                service.run_bot, lambda event: user.heard(_told(event)), task, folder, mode, bot, check, max_turns,
                timeout_s, attach,
            ))  # fmt: skip
        else:
            name, user = ctx.request_state, runs.of(ctx.request_state)
            for number, said in (ctx.input_responses or {}).items():
                user.reply(number, said if isinstance(said, ElicitResult) else "the client's reply is none")
        try:
            async with _progress(ctx) as user.heard:
                while (asked := await user.next()) is not None:
                    if is_version_at_least(ctx.protocol_version or "", _ASKS_BY_RESULT):
                        request = ElicitRequest(params=asked.params)
                        return InputRequiredResult(input_requests={asked.number: request}, request_state=name)
                    user.reply(asked.number, await _elicited(ctx, asked))
        except BaseException:
            await user.stop()
            runs.forget(name)
            raise
        runs.forget(name)
        return user.result()

    return run_bot


def _can_ask(ctx: Context[Any]) -> bool:
    able = ctx.client_capabilities
    return able is not None and able.elicitation is not None


async def _elicited(ctx: Context[Any], asked: Asked) -> ElicitResult | str:
    """What the client came back with, or why it could not ask."""
    try:
        params = asked.params
        found: ElicitResult = await ctx.session.elicit_form(params.message, params.requested_schema, ctx.request_id)
    except (MCPError, ValueError) as error:
        return f"the client could not ask the user: {error}"
    return found


def _run_apply(service: Service, *, allow_apply: bool) -> Callable[..., Awaitable[Applied]]:
    async def approval(run: str, ctx: Context[Any]) -> Approval | Elicit[Approval]:
        if allow_apply:
            return Approval(apply=True)
        if not _can_ask(ctx):
            raise ToolError(
                "this client cannot ask the user, so nothing is applied "
                "(stockade runs apply, or start the server with --allow-apply)"
            )
        return Elicit(await _ours(service, service.summary(run)), Approval)

    async def run_apply(
        run: Run,
        said: Annotated[ElicitationResult[Approval], Resolve(approval)],
        flagged: Annotated[bool, Field(description="Also what could run on this machine later.")] = False,
    ) -> Applied:
        """Write a run's changes to its folder, when the user agrees."""
        if not isinstance(said, AcceptedElicitation) or not said.data.apply:
            raise ToolError("the user did not agree; nothing was applied")
        return await service.run_apply(run, flagged=flagged)

    return run_apply


def _add_resources(server: MCPServer[Any], service: Service) -> None:
    """The record, for clients that let their user choose what the model reads."""

    async def read(work: Awaitable[Any]) -> Any:
        try:
            return await _ours(service, work)
        except ToolError as error:
            raise ResourceNotFoundError(str(error)) from None

    @server.resource(RUNS, name="runs", title="The newest runs on record", mime_type="application/json")
    async def runs() -> Any:
        return await read(service.runs_list())

    @server.resource(f"{RUNS}/{{run}}", name="run", title="What a run did, step by step", mime_type="text/plain")
    async def run(run: Run) -> Any:
        return await read(service.run_show(run))

    @server.resource(f"{RUNS}/{{run}}/diff", name="diff", title="A run's pending changes", mime_type="text/x-diff")
    async def diff(run: Run) -> Any:
        return await read(service.run_diff(run))


@asynccontextmanager
async def _progress(ctx: Context[Any]) -> AsyncIterator[Any]:
    """What takes words for the client, from any thread. A client may be slow: then some are not told."""
    sending, receiving = anyio.create_memory_object_stream[str](_EVENTS_KEPT)
    loop = asyncio.get_running_loop()

    def send(words: str) -> None:
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            sending.send_nowait(words)

    def heard(words: str) -> None:
        if not words:
            return
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(send, words)

    async with unwrap_exception_group(), anyio.create_task_group() as group:
        group.start_soon(_tell, ctx, receiving)
        try:
            yield heard
        finally:
            sending.close()
            group.cancel_scope.cancel()


async def _tell(ctx: Context[Any], receiving: MemoryObjectReceiveStream[str]) -> None:
    told = 0
    async with receiving:
        async for words in receiving:
            told += 1
            await ctx.report_progress(told, None, words)


def _told(event: RunEvent) -> str:
    match event:
        case RunStarted():
            return f"run {event.run_id} has begun"
        case SandboxStarted():
            return f"sandbox: {event.backend}"
        case ModelStarted():
            return f"model: {event.info.name}"
        case ActionStarted():
            return f"turn {event.turn}: {event.action.action.tool}"
        case _:
            return ""
