"""The service as MCP tools, over this process's standard streams: nothing but the protocol reaches standard output."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from pydantic import BaseModel, Field

from stockade import __version__
from stockade.core.errors import StockadeError
from stockade.core.events import ActionStarted, ModelStarted, RunEvent, RunStarted, SandboxStarted
from stockade.mcp_server.boxes import Box, Boxes
from stockade.mcp_server.service import Command, Folder, Mode, Run, Seconds, Service
from stockade_sandbox.stoppable import unwrap_exception_group

INSTRUCTIONS = (
    "Runs LLM agents and commands in sealed sandboxes on this machine. run_bot gives a task to a bot; what it writes "
    "stays in a layer of its own until run_apply. Look at run_diff first. sandbox_exec runs one command and throws "
    "away what it wrote; sandbox_open gives a sandbox that lives on, for sandbox_run, sandbox_start and the others."
)
_EVENTS_KEPT = 64
MAX_LINE_BYTES = 8 << 20
_PIECE = 1 << 16
T = TypeVar("T")
P = ParamSpec("P")
Task = Annotated[str, Field(min_length=1, max_length=1_000_000, description="What the bot shall do.")]
Bot = Annotated[str | None, Field(max_length=64, description="Which bot: writing, reading, ...")]
Check = Annotated[str | None, Field(max_length=10_000, description="A command that must succeed at the end.")]
Turns = Annotated[int | None, Field(ge=1, le=10_000)]


class Approval(BaseModel):
    """The user's word."""

    apply: bool = Field(description="Write these changes to the folder?")


async def _ours(service: Service, work: Awaitable[T]) -> T:
    """Our errors as the tool's: one line, with the way out. Whatever leaves is without secrets."""
    try:
        return service.redactor.data(await work)
    except StockadeError as error:
        raise ToolError(service.redactor.text(str(error))) from None


def make_server(service: Service, *, allow_apply: bool = False, only_sandbox: bool = False) -> MCPServer[Any]:
    """`allow_apply`: clients apply changes without asking the user; else only where the client can ask. `only_sandbox`:
    neither bots nor the record.
    """
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    boxes = Boxes(service)

    @asynccontextmanager
    async def with_boxes(_: MCPServer[Any]) -> AsyncIterator[None]:
        async with unwrap_exception_group(), boxes:
            yield

    server: MCPServer[Any] = MCPServer(
        "stockade", version=__version__, instructions=INSTRUCTIONS, log_level="ERROR", lifespan=with_boxes
    )
    for method in (service.sandbox_exec, *boxes.tools()):
        server.add_tool(_ours_of(service, method))
    _add_sandbox_run(server, service, boxes)
    if only_sandbox:
        return server
    for method in (service.runs_list, service.run_show, service.run_diff):
        server.add_tool(_ours_of(service, method))
    _add_run(server, service)
    _add_apply(server, service, allow_apply=allow_apply)
    return server


def _add_sandbox_run(server: MCPServer[Any], service: Service, boxes: Boxes) -> None:
    @server.tool()
    async def sandbox_run(
        sandbox: Box, command: Command, ctx: Context[Any], timeout_s: Seconds = None
    ) -> dict[str, Any]:
        """Run a command in an open sandbox's shell, whose folder, variables and functions stay from call to call. What
        it writes is told line by line as progress.
        """
        async with _progress(ctx) as told:
            return await _ours(service, boxes.run(told, sandbox, command, timeout_s))


def _ours_of(service: Service, method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    @wraps(method)
    async def told(*args: P.args, **kwargs: P.kwargs) -> T:
        return await _ours(service, method(*args, **kwargs))

    return told


def _add_run(server: MCPServer[Any], service: Service) -> None:
    @server.tool()
    async def run_bot(
        task: Task, ctx: Context[Any], folder: Folder = None, mode: Mode = "overlay", bot: Bot = None,
        check: Check = None, max_turns: Turns = None, timeout_s: Seconds = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Give a task to a bot in a sandbox and wait for its end. Its changes wait for run_apply."""
        async with _progress(ctx) as heard:
            work = service.run_bot(
                lambda event: heard(_told(event)), task, folder, mode, bot, check, max_turns, timeout_s
            )
            return await _ours(service, work)


def _add_apply(server: MCPServer[Any], service: Service, *, allow_apply: bool) -> None:
    async def approval(run: str, ctx: Context[Any]) -> Approval | Elicit[Approval]:
        if allow_apply:
            return Approval(apply=True)
        able = ctx.client_capabilities
        if able is None or able.elicitation is None:
            raise ToolError(
                "this client cannot ask the user, so nothing is applied "
                "(stockade runs apply, or start the server with --allow-apply)"
            )
        return Elicit(await _ours(service, service.summary(run)), Approval)

    @server.tool()
    async def run_apply(
        run: Run,
        said: Annotated[ElicitationResult[Approval], Resolve(approval)],
        flagged: Annotated[bool, Field(description="Also what could run on this machine later.")] = False,
    ) -> dict[str, Any]:
        """Write a run's changes to its folder, when the user agrees."""
        if not isinstance(said, AcceptedElicitation) or not said.data.apply:
            raise ToolError("the user did not agree; nothing was applied")
        return await _ours(service, service.run_apply(run, flagged=flagged))


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


async def bounded_lines(descriptor: int) -> AsyncIterator[str]:
    """Lines of text from a descriptor, each of a bounded length: a longer one becomes one that is no message.

    No thread waits for it, which would outlive the event loop and hold up the end of the process.
    """
    buffer, too_long = bytearray(), False
    while True:
        with suppress(PermissionError):  # a file, which never lets wait
            await anyio.wait_readable(descriptor)
        if not (data := os.read(descriptor, _PIECE)):
            break
        *ended, rest = data.split(b"\n")
        for piece in ended:
            buffer += piece
            too_long = too_long or len(buffer) > MAX_LINE_BYTES
            yield "too long\n" if too_long else buffer.decode(errors="replace") + "\n"
            buffer, too_long = bytearray(), False
        buffer += rest
        if len(buffer) > MAX_LINE_BYTES:
            buffer, too_long = bytearray(), True
    if buffer:
        yield buffer.decode(errors="replace")


async def serve_stdio(server: MCPServer[Any]) -> None:
    """Until the client ends its side; what is under way then is cancelled."""
    lowlevel = server._lowlevel_server  # run_stdio_async, with input that is bounded
    lines = cast("anyio.AsyncFile[str]", bounded_lines(sys.stdin.fileno()))
    async with stdio_server(stdin=lines) as (received, sent):
        await lowlevel.run(received, sent, lowlevel.create_initialization_options())
