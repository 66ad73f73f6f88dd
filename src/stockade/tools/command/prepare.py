"""A tool made ready for a run: what it changes in the policy, what the bot is told, and what works beside the loop."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stockade.core.errors import UsageError
from stockade.core.policy import Network, Policy
from stockade.core.ports import Sandbox, Toolbox
from stockade.tools.command.definition import CommandTool
from stockade.tools.command.external import ExternalTool
from stockade.tools.command.inside import InstalledTools
from stockade.tools.command.layers import Layers


@dataclass(frozen=True, slots=True)
class Ready:
    """`usage` is a part of the system prompt, empty for a tool that the model has as one."""

    policy: Policy
    usage: str
    make: Callable[[Sandbox], Toolbox]


async def prepare_tool(
    tool: CommandTool, policy: Policy, layers: Layers, *, environ: Mapping[str, str] = os.environ
) -> Ready:
    """Installs what is not installed. UsageError when the tool cannot be had, naming the command that failed."""
    environment = _environment(tool, policy, environ)
    system = policy.system
    if tool.needs_layer:
        system = (*system, await layers.layer(tool, system))
    network = _network(policy.network, tool.runtime_hosts)
    wider = policy.model_copy(update={"environment": environment, "system": system, "network": network})
    return prepare_again(tool, wider)


def prepare_again(tool: CommandTool, policy: Policy) -> Ready:
    """For a run on record, whose policy has all that the tool needs. UsageError when its layer is gone."""
    for layer in policy.system:
        if not Path(layer).is_dir():
            raise UsageError(f"a tool of this run is not installed any more: {layer}", "start a new run with --tool")
    return Ready(policy, usage_text(tool), lambda box: InstalledTools((tool,), box))


def prepare_external(tool: CommandTool, policy: Policy, allowed: Sequence[str], *,
                     environ: Mapping[str, str] = os.environ) -> Ready:  # fmt: skip
    """UsageError unless the person allowed it by name."""
    if tool.name not in allowed:
        raise UsageError(
            f"the tool {tool.name} runs `{' '.join(tool.command)}` on this machine, outside of the sandbox",
            f"if that is wanted: --allow-external {tool.name}",
        )
    _present(tool, environ)
    return Ready(policy, "", lambda _box: ExternalTool(tool, environ))


def usage_text(tool: CommandTool) -> str:
    about = f": {tool.description}" if tool.description else ""
    return f"The program {tool.name} is installed{about}\nUse it from the shell:\n{tool.usage.strip()}".rstrip()


def _present(tool: CommandTool, environ: Mapping[str, str]) -> None:
    missing = [name for name in tool.pass_environment if not environ.get(name)]
    if missing:
        raise UsageError(f"the tool {tool.name} needs variables that are not set here: {', '.join(missing)}")


def _environment(tool: CommandTool, policy: Policy, environ: Mapping[str, str]) -> dict[str, str]:
    """What is set already counts: by the person, or by a tool before this one."""
    _present(tool, environ)
    return {**tool.environment, **{name: environ[name] for name in tool.pass_environment}, **policy.environment}


def _network(network: Network, hosts: Sequence[str]) -> Network:
    if not hosts or network.mode == "open":
        return network
    return Network(mode="allow", hosts=tuple(dict.fromkeys((*network.hosts, *hosts))))
