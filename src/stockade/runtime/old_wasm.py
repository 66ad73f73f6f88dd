"""What `stockade tool` does and what `--tool FILE.wasm` needs, beside runtime/factory.py: components in sandboxes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from stockade.core.actions import BUILT_IN_TOOLS
from stockade.core.errors import UsageError
from stockade.core.policy import Policy
from stockade.core.ports import Sandbox, Toolbox
from stockade.plugins.wasm.build import build as build_component
from stockade.plugins.wasm.build import scaffold
from stockade.plugins.wasm.component import Component, Tool
from stockade.plugins.wasm.descriptions import key_of
from stockade.plugins.wasm.policy import beside
from stockade.plugins.wasm.prepare import prepared
from stockade.plugins.wasm.toolbox import WasmToolbox, granted
from stockade.plugins.wasm.worker import Reply, inside_of, lent
from stockade.runtime import registry
from stockade.runtime.sandboxes import own_sandbox
from stockade.runtime.tools import GROUP, OnProgress, Plan, Request, ToolContext, named, shipped


async def open_component(path: Path, policy: Path | None = None, on_progress: OnProgress | None = None) -> Component:
    """A component, compiled and looked at. UsageError when it cannot be used; SandboxFailed."""
    return await prepared(path, own_sandbox, policy, on_progress)


def wasm_tool(request: Request) -> Plan:
    """`--tool FILE.wasm`: its functions as tools, held to the policy file beside it. Blocks while it is compiled."""
    component = anyio.run(open_component, request.path, None, request.on_progress)
    folder = Path(component.compiled).parent
    if request.again and inside_of(folder) not in {rule.inside for rule in request.plan.policy.lent}:
        raise UsageError(f"{request.path} is not what it was when the run began", "put the component of then there")
    policy = lent(request.plan.policy, (folder,))
    granted(component, policy)

    def make(place: ToolContext) -> Toolbox:
        return WasmToolbox((component,), place.sandbox, place.policy)

    return replace(request.plan, policy=policy, makers=(*request.plan.makers, make))


def with_tool(component: Component) -> Callable[[Policy], Policy]:
    """What a sandbox must see for this component to be called in it. UsageError as for `--tool`."""

    def more(policy: Policy) -> Policy:
        extended = lent(policy, (Path(component.compiled).parent,))
        granted(component, extended)
        return extended

    return more


async def call_tool(
    component: Component, sandbox: Sandbox, policy: Policy, name: str, given: Mapping[str, Any]
) -> Reply:
    """One call in a sandbox that sees it (with_tool)."""
    async with WasmToolbox((component,), sandbox, policy) as box:
        return await box.ask(name, given)


def known_tools(folders: Sequence[Path]) -> list[tuple[str, str, str]]:
    """(name, kind, what it is) of what `--tool` takes. Components are not looked into: that may mean compiling them."""
    rows = [(name, "built in", "") for name in BUILT_IN_TOOLS if name != "tool_call"]
    rows += [(name, *_owner(name)) for name in sorted(named())]
    rows += [(name, "file", str(path)) for name, path in sorted(shipped().items())]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder}: there is no such folder")
        for path in sorted(folder.glob("*.wasm")):
            policy = beside(path)
            rows.append((str(path), "component", f"held to {policy.name}" if policy else "may do nothing: no policy"))
    return rows


def _owner(name: str) -> tuple[str, str]:
    """Kind and description of a tool of a package."""
    part = registry.owner(GROUP, name)
    if part is None or part.ours:
        return "ours" if part else "broken", "" if part else "two packages have it"
    return "package", f"{part.package} {part.version}"


__all__ = ["Component", "Reply", "Tool", "build_component", "call_tool", "key_of", "known_tools", "open_component",
           "scaffold", "wasm_tool", "with_tool"]  # fmt: skip
