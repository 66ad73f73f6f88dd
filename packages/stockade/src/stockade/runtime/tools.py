"""The tools of a run: from the names and files that a person or a bot gave to what the loop calls.

A tool is a built-in action (`shell`), one of an installed package (`memory` is one of ours), or a file: what its suffix
says.
"""

import difflib
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from os.path import expanduser, isfile
from pathlib import Path

from stockade.answers.action_codec import DESCRIPTIONS
from stockade.bots.model_profiles import FILES
from stockade.core.actions import BUILT_IN_TOOLS
from stockade.core.errors import UsageError
from stockade.core.ports import OnProgress, Toolbox
from stockade.core.tool_plan import IN_PROCESS, MakeToolbox, ToolContext, ToolFile, ToolPlan, ToolRequest, given
from stockade.runtime import registry
from stockade.runtime.sandboxes import own_sandbox
from stockade.tools.tool_files import shipped
from stockade_sandbox.policy import Policy

GROUP: registry.Group = "stockade.tools"
"""A name that begins with a dot is the suffix of files that are tools."""
_NEAR = 0.75
"""How like a tool's name a word must be to be taken for a slip."""


def named() -> tuple[str, ...]:
    """Tools of packages by name, ours first."""
    return tuple(name for name in registry.names(GROUP) if not name.startswith("."))


def files() -> tuple[str, ...]:
    """The suffixes of tool files that something reads."""
    return tuple(name for name in registry.names(GROUP) if name.startswith("."))


def _maker(name: str) -> MakeToolbox:
    """Makes the tool of that name with the run's sandbox: an object that is one already, or what makes one."""
    result = registry.load(GROUP, name)
    if isinstance(result, Toolbox) and not isinstance(result, type):
        return partial(given, result)
    if not callable(result):
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
        if not isfile(expanduser(name)):
            raise UsageError(f"--mcp {name}: there is no such file")
    return tuple(given)


def plan_tools(
    wanted: Sequence[str],
    policy: Policy,
    *,
    allowed_external: Sequence[str] = (),
    redact: Sequence[str] = (),
    on_progress: OnProgress | None = None,
    again: bool = False,
) -> ToolPlan:
    """The tools of a bot and of the user, in order. UsageError names what there is instead of an unknown one.

    `again`: for a run on record, whose policy holds already what its tools need. Blocks while tools are installed.
    """
    plan = ToolPlan(policy=policy)
    for name in dict.fromkeys(wanted):
        if name in BUILT_IN_TOOLS and name != "tool_call":
            plan = replace(plan, actions=(*plan.actions, name))
        elif name in named():
            plan = replace(plan, makers=(*plan.makers, _maker(name)), asked=(*plan.asked, name))
        else:
            path = _file(name)
            request = ToolRequest(
                path, plan, allowed_external, on_progress, redact, again=again, open_sandbox=own_sandbox
            )
            reader: ToolFile = registry.load(GROUP, path.suffix.lower())
            planned = reader(request)
            plan = replace(planned, asked=(*plan.asked, str(path)))
    return plan


def _file(name: str) -> Path:
    """The tool file of that name. UsageError when there is none, or of a kind that nothing reads."""
    if name.startswith(IN_PROCESS):
        what = f"the tool {name.removeprefix(IN_PROCESS)!r} is a part of the Python program that began the run"
        raise UsageError(what, "a run with it goes on only there")
    path = Path(expanduser(name)).absolute()
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
    if not isfile(path):
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


def known_tools() -> list[tuple[str, str, str]]:
    """(name, kind, what it is) of what `--tool` takes by name."""
    rows = [(name, "built in", DESCRIPTIONS[name]) for name in BUILT_IN_TOOLS if name != "tool_call"]
    rows += [(name, *_owner(name)) for name in sorted(named())]
    for name, path in sorted(shipped().items()):
        about = tomllib.loads(path.read_text())["description"]
        rows.append((name, "bundled", f"{about[:1].upper()}{about[1:]}; {path.name}"))
    return rows


_BUNDLED = {
    "memory": "Notes of a bot that stay from run to run.",
    "read_document": "Read PDF, DOCX, HTML and notebooks as text.",
    "read_page": "Read a web page as text, by the rules of --net.",
    "web_search": "Search the web with the engine of --search.",
    "python": "Run Python in a fresh interpreter in the sandbox.",
    "browser": "Use a web browser in the sandbox.",
}


def _owner(name: str) -> tuple[str, str]:
    """Kind and description of a tool of a package."""
    part = registry.owner(GROUP, name)
    if part is None or part.ours:
        return "bundled" if part else "broken", _BUNDLED.get(name, "") if part else "two packages have it"
    return "package", f"{part.package} {part.version}"
