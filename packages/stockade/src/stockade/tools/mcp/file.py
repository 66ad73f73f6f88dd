"""`--mcp FILE` and the `.mcp.json` of a folder: MCP servers as a toolbox, with what they need in the sandbox."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from os.path import expanduser, isdir, isfile, realpath
from pathlib import Path, PurePosixPath

from stockade.core.errors import UsageError, to_install
from stockade.core.ports import Toolbox
from stockade.core.tool_plan import ToolContext, ToolPlan, ToolRequest
from stockade.paths import is_trusted
from stockade.tools.mcp.config import ServerConfig, read_config
from stockade_sandbox.policy import FolderRule

try:
    from stockade.tools.mcp.server import McpToolbox, Note, Rules
except ModuleNotFoundError:
    raise UsageError("MCP servers need the package mcp", to_install("mcp")) from None

FOLDER_FILE = ".mcp.json"
"""In a folder: has to be trusted, and what cannot be used of it is left out."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc")


def mcp_file(request: ToolRequest) -> ToolPlan:
    """The plan with the servers of a file in it. Implements core.tool_plan.ToolFile."""
    path, plan = request.path, request.plan
    of_folder = path.name == FOLDER_FILE
    if of_folder and not is_trusted(path):
        raise UsageError(f"{path} is not trusted as it stands", f"look at it: stockade trust {path}")
    secrets = {name: os.environ[name] for name in request.redact if name in os.environ}
    servers = read_config(path, plan.policy.environment, secrets)
    policy = plan.policy
    if not request.again:
        known = {rule.inside for rule in policy.lent}
        lent = [rule for rule in _lent(servers, path.parent) if rule.inside not in known]
        policy = replace(policy, lent=(*policy.lent, *lent))

    say = request.on_progress

    def make(context: ToolContext) -> Toolbox:
        note: Note = (lambda words: say(words, 0, 0)) if say is not None else (lambda words: None)
        timeout_s = context.policy.limits.command_timeout_s or 3600.0
        return McpToolbox(servers, context.sandbox, Rules(note, required=not of_folder, timeout_s=timeout_s))

    return replace(plan, policy=policy, makers=(*plan.makers, make))


def _lent(servers: Sequence[ServerConfig], folder: Path) -> Iterable[FolderRule]:
    """What the servers' programs are made of, seen inside where it lies here, read-only; each once."""
    found: dict[str, FolderRule] = {}
    for server in servers:
        for text in server.lend:
            path = Path(realpath(folder / expanduser(text)))
            if not isdir(path):
                raise UsageError(f"the MCP server {server.name}: lend: there is no folder {path}")
            found |= _rule(path)
        if server.command and (environment := _environment_of(Path(server.command[0]))) is not None:
            for path in environment:
                found |= _rule(path)
    return found.values()


def _rule(path: Path) -> dict[str, FolderRule]:
    if any(PurePosixPath(path).is_relative_to(system) for system in _SYSTEM):
        return {}  # a sandbox sees that anyway
    return {str(path): FolderRule(host=str(path), mode="ro", inside=str(path))}


def _environment_of(command: Path) -> tuple[Path, ...] | None:
    """The virtual environment that a program belongs to, and the Python that it is made of."""
    config = command.parent.parent / "pyvenv.cfg"
    if not command.is_absolute() or not isfile(command) or not isfile(config):
        return None
    homes = [
        value.strip()
        for key, _, value in (line.partition("=") for line in config.read_text(errors="replace").splitlines())
        if key.strip() == "home"
    ]
    pythons = [Path(home).resolve().parent for home in homes if isdir(home)]
    return (config.parent.absolute(), *pythons)
