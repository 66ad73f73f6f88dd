"""Tools of files (tools/tool_files.py): programs that are installed for a run, and programs of the host."""

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from os.path import expanduser
from pathlib import Path
from typing import Any, TypeVar

import anyio.from_thread

from stockade.core.errors import UsageError
from stockade.core.ports import OnProgress, Sandbox, Toolbox
from stockade.core.tool_plan import ToolPlan, ToolRequest
from stockade.paths import PROJECT_FILE
from stockade.tools.layers import Layers, check_layers, check_variables, prepare_tool
from stockade.tools.program import ExternalTool, InstalledTools
from stockade.tools.tool_files import SUFFIXES, CommandTool, read_tool, shipped
from stockade_sandbox.backends.building import SystemLayers
from stockade_sandbox.policy import Policy
from stockade_sandbox.processes import own_folder

T = TypeVar("T")


def layers(on_progress: OnProgress | None = None) -> Layers:
    """Where installed tools are kept: `$XDG_CACHE_HOME/stockade/layers`."""
    folder = own_folder("cache") / "layers"
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
        external = host_tool(tool, (tool.name,) if request.again else request.allowed_external)
        return replace(plan, makers=(*plan.makers, lambda _: external))
    policy = plan.policy
    if request.again:
        check_layers(policy)
    else:
        policy = _in_loop(partial(prepare_tool, tool, policy, layers(request.on_progress)))
    makers = (*plan.makers, lambda context: InstalledTools((tool,), context.sandbox))
    told = (usage_text(tool),) if request.path.name != PROJECT_FILE else ()
    return replace(plan, policy=policy, makers=makers, usage=(*plan.usage, *told))


def host_tool(tool: CommandTool, allowed: Sequence[str], environ: Mapping[str, str] = os.environ) -> ExternalTool:
    """UsageError unless the user allowed it by name."""
    if tool.name not in allowed:
        what = f"the tool {tool.name} runs `{' '.join(tool.command)}` on this machine, outside of the sandbox"
        raise UsageError(what, f"if that is wanted: --allow-external {tool.name}")
    check_variables(tool, environ)
    return ExternalTool(tool, environ)


def usage_text(tool: CommandTool) -> str:
    """A part of the system prompt."""
    about = f": {tool.description}" if tool.description else ""
    return f"The program {tool.name} is installed{about}\nUse it from the shell:\n{tool.usage.strip()}".rstrip()


async def programs(
    wanted: Sequence[str], policy: Policy, on_progress: OnProgress | None = None
) -> tuple[Policy, Callable[[Sandbox], Toolbox]]:
    """For a sandbox without a model: the policy with these installed tools, and what is entered in it.

    UsageError for a tool that is no program in the sandbox.
    """
    tools = [_program(name) for name in wanted]
    for tool in tools:
        policy = await prepare_tool(tool, policy, layers(on_progress))
    return policy, partial(InstalledTools, tools)


def _program(name: str) -> CommandTool:
    path = shipped().get(name, Path(expanduser(name)))
    tool = read_tool(path) if path.suffix.lower() in SUFFIXES else None
    if tool is None or tool.external:
        raise UsageError(f"--tool {name}: not a program in the sandbox", "without a model there is no use for it")
    return tool


def _in_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """In the event loop whose thread this is; when that is cancelled, so is this."""
    try:
        return anyio.from_thread.run(work)
    except CancelledError:
        anyio.from_thread.check_cancelled()
        raise
