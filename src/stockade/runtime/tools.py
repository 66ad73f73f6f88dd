"""The tools of a run: from the names and files that a person or a bot gave to what the loop calls.

Two steps, because some tools change the sandbox they are for: `plan_tools` before there is one, `Plan.toolboxes`
with it.
A tool is a built-in action (`shell`), one of an installed package (`memory` is one of ours), or a file: what its suffix
says.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from stockade.bots.model_profiles import FILES
from stockade.core.actions import BUILT_IN_TOOLS
from stockade.core.errors import UsageError
from stockade.core.policy import Policy
from stockade.core.ports import Asker, OnNetwork, OnProgress, Sandbox, Toolbox
from stockade.runtime import registry

GROUP: registry.Group = "stockade.tools"
"""A name that begins with a dot is the suffix of files that are tools."""
IN_PROCESS = "python:"
"""On record before the name of a tool that is an object of the program that began the run."""
_NEAR = 0.75
"""How like a tool's name a word must be to be taken for a slip."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool is made with: the run's sandbox, its policy, and what it may say to the record."""

    sandbox: Sandbox
    policy: Policy
    bot: str
    state: Path
    """The state folder of Stockade, for what lasts longer than a run."""

    asker: Asker | None = None
    """Who asks the person what a toolbox must know."""
    search: str | None = None
    """The search engine that the person named."""

    @property
    def on_network(self) -> OnNetwork | None:
        """The hearer of network requests, set by the loop before the sandbox is entered."""
        return self.sandbox.on_network


MakeToolbox = Callable[[ToolContext], Toolbox]


@dataclass(frozen=True, slots=True)
class Plan:
    """`actions`: the built-in ones that are offered. `asked`: names and files, for a run that goes on. `usage`: what
    the bot is told of tools that it calls by the shell. `policy`: with what the tools need in the sandbox."""

    policy: Policy
    actions: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    makers: tuple[MakeToolbox, ...] = ()
    usage: tuple[str, ...] = ()

    def toolboxes(self, place: ToolContext) -> tuple[Toolbox, ...]:
        return tuple(make(place) for make in self.makers)

    def with_objects(self, boxes: Sequence[Toolbox]) -> "Plan":
        """With tools that are objects of the program that begins the run."""
        names = tuple(f"{IN_PROCESS}{getattr(box, '__name__', type(box).__name__)}" for box in boxes)
        return replace(
            self, makers=(*self.makers, *(partial(_given, box) for box in boxes)), asked=(*self.asked, *names)
        )


def _given(box: Toolbox, _: ToolContext) -> Toolbox:
    return box


@dataclass(frozen=True, slots=True)
class Request:
    """A file that was given as a tool, and how the run is set up so far."""

    path: Path
    plan: Plan
    allowed_external: Sequence[str] = ()
    no_input: bool = True
    on_progress: OnProgress | None = None
    mcp_accept: Sequence[str] = ()
    redact: Sequence[str] = ()
    """Variables of the host whose values stay out of the sandbox and of the record."""
    again: bool = False
    """The run goes on: what the tool needs in the sandbox is in its policy already."""


FileTool = Callable[[Request], Plan]
"""The plan with the tools of one file in it. Blocks. Raises UsageError, naming the file, when it cannot be used."""


def named() -> tuple[str, ...]:
    """Tools of packages by name, ours first."""
    return tuple(name for name in registry.names(GROUP) if not name.startswith("."))


def files() -> tuple[str, ...]:
    """The suffixes of tool files that something reads."""
    return tuple(name for name in registry.names(GROUP) if name.startswith("."))


def _maker(name: str) -> MakeToolbox:
    """Makes the tool of that name with the run's sandbox: an object that is one already, or what makes one."""
    found = registry.load(GROUP, name)
    if isinstance(found, Toolbox) and not isinstance(found, type):
        return partial(_given, found)
    if not callable(found):
        raise registry.wrong(GROUP, name, "is neither a tool nor a function that makes one")

    def make(context: ToolContext) -> Toolbox:
        box = registry.make(GROUP, name, context)
        if not isinstance(box, Toolbox):
            raise registry.wrong(GROUP, name, f"made {type(box).__name__}, which is no toolbox")
        return box

    return make


def mcp_files(given: Sequence[str]) -> tuple[str, ...]:
    """What `--mcp` named, as tools. UsageError for what is no such file."""
    for name in given:
        if Path(name).suffix.lower() != ".json":
            raise UsageError(f"--mcp {name}: a list of MCP servers is a file that ends in .json", "see docs/mcp.md")
        if "\0" in name or not Path(name).expanduser().is_file():
            raise UsageError(f"--mcp {name}: there is no such file")
    return tuple(given)


async def programs(
    wanted: Sequence[str], policy: Policy, on_progress: OnProgress | None = None
) -> tuple[Policy, tuple[Callable[[Sandbox], Toolbox], ...]]:
    """For a sandbox without a model: the policy with these installed tools, and what is entered in it.

    UsageError for a tool that is no program in the sandbox.
    """
    if not wanted:
        return policy, ()
    from stockade.runtime.old_commands import programs as found

    return await found(wanted, policy, on_progress)


def shipped() -> Mapping[str, Path]:
    """The tool files that come with Stockade, by name."""
    from stockade.runtime.old_commands import shipped as found

    return found()


def plan_tools(
    wanted: Sequence[str],
    policy: Policy,
    *,
    allowed_external: Sequence[str] = (),
    mcp_accept: Sequence[str] = (),
    redact: Sequence[str] = (),
    on_progress: OnProgress | None = None,
    again: bool = False,
) -> Plan:
    """The tools of a bot and of the person, in order. UsageError names what there is instead of an unknown one.

    `again`: for a run on record, whose policy holds already what its tools need. Blocks while tools are installed.
    """
    plan = Plan(policy=policy)
    for name in dict.fromkeys(wanted):
        if name in BUILT_IN_TOOLS and name != "tool_call":
            plan = replace(plan, actions=(*plan.actions, name))
        elif name in named():
            plan = replace(plan, makers=(*plan.makers, _maker(name)), asked=(*plan.asked, name))
        else:
            path = _file(name)
            more = Request(path, plan, allowed_external, on_progress=on_progress, again=again)
            request = replace(more, mcp_accept=mcp_accept, redact=redact)
            reader: FileTool = registry.load(GROUP, path.suffix.lower())
            planned = reader(request)
            plan = replace(planned, asked=(*plan.asked, str(path)))
    return plan


def _file(name: str) -> Path:
    """The tool file of that name. UsageError when there is none, or of a kind that nothing reads."""
    if name.startswith(IN_PROCESS):
        what = f"the tool {name.removeprefix(IN_PROCESS)!r} is a part of the Python program that began the run"
        raise UsageError(what, "a run with it goes on only there")
    path = Path(name).expanduser().absolute()
    readable, ours = files(), shipped()
    if name in ours:
        return ours[name]
    if path.suffix.lower() not in readable or "\0" in name:
        known = [*(tool for tool in BUILT_IN_TOOLS if tool != "tool_call"), *named(), *ours]
        near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
        kinds = ", ".join(sorted(readable))
        way_out = (
            f"did you mean {near[0]}?" if near else f"`stockade tool list` names them all; or give a file ({kinds})"
        )
        raise UsageError(f"there is no tool {name!r}", way_out)
    if not path.is_file():
        raise UsageError(f"there is no tool file {name}", "check the path")
    return path


def check_tools(file: str, names: Sequence[str]) -> None:
    """UsageError that names the bot's file, for a tool in it that there is not."""
    for name in names:
        if name == FILES:
            continue
        if name == "tool_call" or name not in (*BUILT_IN_TOOLS, *named()):
            try:
                _file(name)
            except UsageError as error:
                raise UsageError(f"{file}: tools: {error.message}", error.hint) from None


def chosen(of_bot: Sequence[str], more: Sequence[str], without: Sequence[str]) -> tuple[str, ...]:
    """What the bot has, and what the user adds and takes away. UsageError for a `--no-tool` that is not there."""
    tools = [*of_bot, *(name for name in more if name not in of_bot)]
    for name in without:
        if name not in tools:
            raise UsageError(f"--no-tool {name}: the bot does not have it", f"it has {', '.join(tools)}")
        if name == "finish":
            raise UsageError("--no-tool finish: without it no run comes to its end")
        tools.remove(name)
    # `finish` stays the last that is named: small models take what they read last.
    return tuple(sorted(tools, key=lambda name: name == "finish"))


__all__ = [
    "FileTool",
    "MakeToolbox",
    "OnProgress",
    "Plan",
    "Request",
    "ToolContext",
    "check_tools",
    "chosen",
    "mcp_files",
    "plan_tools",
]
