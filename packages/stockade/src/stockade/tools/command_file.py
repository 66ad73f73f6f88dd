"""Tools of files (tools/tool_files.py): programs that are installed for a run, and programs of the host."""

from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import anyio.from_thread
import platformdirs

from stockade.core.errors import UsageError
from stockade.core.ports import OnProgress, Sandbox, Toolbox
from stockade.core.tool_plan import ToolPlan, ToolRequest
from stockade.tools.layers import Layers, Ready, prepare_again, prepare_external, prepare_tool
from stockade.tools.tool_files import SUFFIXES, CommandTool, read_tool, shipped
from stockade_sandbox.backends.building import SystemLayers
from stockade_sandbox.policy import Policy

T = TypeVar("T")


def layers(on_progress: OnProgress | None = None) -> Layers:
    """Where installed tools are kept: `$XDG_CACHE_HOME/stockade/layers`."""
    folder = Path(platformdirs.user_cache_dir("stockade", appauthor=False)) / "layers"
    return Layers(folder, SystemLayers(), on_progress)


def command_file(request: ToolRequest) -> ToolPlan:
    """The plan with the tool of a file in it; installs it when it is not. Implements core.tool_plan.ToolFile."""
    tool = read_tool(request.path)
    for path in map(Path, request.plan.asked):
        if path.suffix.lower() in SUFFIXES and read_tool(path).name == tool.name:
            raise UsageError(f"two tools have the name {tool.name}: {path} and {request.path}", "rename one of them")
    return plan_command(tool, request)


def plan_command(tool: CommandTool, request: ToolRequest) -> ToolPlan:
    """The same for a tool that is there as data; blocks, in a worker thread of an event loop."""
    plan = request.plan
    if tool.external:
        allowed = (tool.name,) if request.again else request.allowed_external
        ready = prepare_external(tool, plan.policy, allowed)
    elif request.again:
        ready = prepare_again(tool, plan.policy)
    else:
        ready = _installed(tool, plan.policy, request.on_progress)
    return replace(
        plan,
        policy=ready.policy,
        makers=(*plan.makers, lambda context: ready.make(context.sandbox)),
        usage=(*plan.usage, ready.usage) if ready.usage else plan.usage,
    )


async def programs(
    wanted: Sequence[str], policy: Policy, on_progress: OnProgress | None = None
) -> tuple[Policy, tuple[Callable[[Sandbox], Toolbox], ...]]:
    """For a sandbox without a model: the policy with these installed tools, and what is entered in it.

    UsageError for a tool that is no program in the sandbox.
    """
    makers = []
    for tool in [_program(name) for name in wanted]:
        ready = await prepare_tool(tool, policy, layers(on_progress))
        policy = ready.policy
        makers.append(ready.make)
    return policy, tuple(makers)


def _program(name: str) -> CommandTool:
    path = shipped().get(name, Path(name).expanduser())
    tool = read_tool(path) if path.suffix.lower() in SUFFIXES else None
    if tool is None or tool.external:
        raise UsageError(f"--tool {name}: not a program in the sandbox", "without a model there is no use for it")
    return tool


def _installed(tool: CommandTool, policy: Policy, on_progress: OnProgress | None) -> Ready:
    async def install() -> Ready:
        return await prepare_tool(tool, policy, layers(on_progress))

    return _in_loop(install)


def _in_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """In the event loop whose thread this is; when that is cancelled, so is this."""
    try:
        return anyio.from_thread.run(work)
    except CancelledError:
        anyio.from_thread.check_cancelled()
        raise
