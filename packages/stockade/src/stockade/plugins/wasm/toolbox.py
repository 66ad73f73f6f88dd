"""Components as a bot's tools: implements core.ports.Toolbox. Every call is a fresh instance in the run's sandbox."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import anyio

from stockade.core.actions import ToolResult
from stockade.core.errors import UsageError
from stockade.core.ports import Sandbox, Toolbox
from stockade.core.tool_plan import ToolContext, ToolPlan, ToolRequest
from stockade.core.tools import ToolSpec
from stockade.plugins.wasm.component import Component, Tool, squats
from stockade.plugins.wasm.policy import check_network, environment_of, folders_of
from stockade.plugins.wasm.prepare import prepared
from stockade.plugins.wasm.worker import Reply, Worker, check_place, inside_of, lent, worker_in
from stockade_sandbox.policy import Policy


class WasmToolbox:
    """The tools of one or several components, granted what their policies and the run both give."""

    def __init__(self, components: Sequence[Component], sandbox: Sandbox, policy: Policy) -> None:
        self._sandbox, self._image = sandbox, policy.rootfs
        self._calls: dict[str, tuple[Tool, dict[str, Any]]] = {}
        for component in components:
            fixed = granted(component, policy)
            for tool in component.tools:
                if tool.spec.name in self._calls or squats(tool.spec.name):
                    raise UsageError(
                        f"{component.name}: there is a tool {tool.spec.name!r} already",
                        "give it another name in its policy file",
                    )
                self._calls[tool.spec.name] = tool, fixed
        self._worker: Worker | None = None
        self._stack = AsyncExitStack()

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool, _ in self._calls.values())

    async def __aenter__(self) -> Self:
        programs = await check_place(self._sandbox, self._image)
        self._worker = await self._stack.enter_async_context(worker_in(programs))
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._worker = None
        await self._stack.__aexit__(*error)

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        """See core.ports.Toolbox. The policy's time limit holds when `timeout_s` is longer."""
        reply = await self.ask(name, arguments, timeout_s)
        if not reply.printed:
            return ToolResult(status=reply.status, text=reply.text)
        return ToolResult(status=reply.status, text=f"{reply.text}\nThe tool printed:\n{reply.printed}".lstrip())

    async def ask(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> Reply:
        """The same with what kind of error it was and how long it took."""
        tool, fixed = self._calls[name]
        assert self._worker is not None
        if tool.strings and (wrong := _missing(tool.spec, arguments)) is not None:
            return Reply(status="error", kind="arguments", text=wrong)
        limits = dict(fixed["limits"])
        if timeout_s is not None:
            limits["timeout_s"] = min(limits["timeout_s"], max(timeout_s, 0.001))
        request = {**fixed, "limits": limits, "path": tool.path, "strings": tool.strings, "arguments": dict(arguments)}
        return await self._worker.ask(request, limits["timeout_s"], limits["output_bytes"])


def _missing(spec: ToolSpec, arguments: Mapping[str, Any]) -> str | None:
    """What a component of strings is not asked to find out by itself."""
    if missing := [name for name in spec.required if arguments.get(name) is None]:
        return f"missing: {', '.join(missing)}"
    if unknown := [name for name in arguments if name not in spec.properties]:
        return f"there is no argument {unknown[0][:40]!r}; the arguments are: {', '.join(spec.properties) or 'none'}"
    return None


def granted(component: Component, policy: Policy) -> dict[str, Any]:
    """What is the same in every call of a component. UsageError when the run does not have what its policy names."""
    rules, what = component.policy, component.name
    check_network(rules, policy, what)
    compiled = Path(component.compiled)
    return {
        "op": "call",
        "compiled": f"{inside_of(compiled.parent)}/{compiled.name}",
        "limits": rules.limits.model_dump(),
        "grants": {
            "folders": folders_of(rules, policy, what),
            "environment": environment_of(rules, policy, what),
            "hosts": [host.model_dump() for host in rules.hosts],
        },
    }


def wasm_file(request: ToolRequest) -> ToolPlan:
    """`--tool FILE.wasm`: its functions as tools, held to the policy file beside it.

    Implements core.tool_plan.ToolFile. Blocks while it is compiled.
    """
    assert request.open_sandbox is not None
    component = anyio.run(prepared, request.path, request.open_sandbox, None, request.on_progress)
    folder = Path(component.compiled).parent
    if request.again and inside_of(folder) not in {rule.inside for rule in request.plan.policy.lent}:
        raise UsageError(f"{request.path} is not what it was when the run began", "put the component of then there")
    policy = with_tool(component, request.plan.policy)

    def make(context: ToolContext) -> Toolbox:
        return WasmToolbox((component,), context.sandbox, context.policy)

    return replace(request.plan, policy=policy, makers=(*request.plan.makers, make))


def with_tool(component: Component, policy: Policy) -> Policy:
    """With what a sandbox must see for this component to be called in it. UsageError as for `--tool`."""
    extended = lent(policy, (Path(component.compiled).parent,))
    granted(component, extended)
    return extended
