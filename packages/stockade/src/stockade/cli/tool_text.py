"""Components and their answers as text for a person."""

from collections.abc import Iterator
from typing import Any

from stockade.cli.safe import one_line, safe_text
from stockade.core.tools import ToolSpec
from stockade.plugins.wasm.component import Component, Tool
from stockade.plugins.wasm.descriptions import key_of
from stockade.plugins.wasm.worker import Reply

_NOT_GIVEN = ("wasi:sockets/", "wasi:http/")


def names(tool: Tool) -> tuple[str, str]:
    """How a function may be called on the command line: the tool's name, and its own in the component."""
    return tool.spec.name, key_of(tool.path)


def before_call(component: Component, tool: Tool) -> list[str]:
    """What the tool-runner of the llama.cpp agent prints first."""
    metadata = component.metadata
    told = metadata.description if metadata else tool.spec.description
    return [
        f"Component path: {one_line(component.file)}",
        "Tool metadata:",
        f"Name: {one_line(metadata.name if metadata else tool.spec.name)}",
        f"Description: {one_line(told)}",
        f"Version: {one_line(metadata.version) if metadata else '-'}",
        "Parameters:",
        *(f"  - {one_line(line)}" for line in _parameters(tool.spec)),
        "Executing tool...",
    ]


def after_call(reply: Reply) -> str:
    """And last."""
    if reply.status == "error":
        return f"[Error] Tool error: {safe_text(reply.text)}"
    return f"[Success] Tool output: {safe_text(reply.text)}"


def _parameters(spec: ToolSpec) -> Iterator[str]:
    for name, kind in spec.properties.items():
        optional = "" if name in spec.required else ", optional"
        yield f"{name}: {kind.get('description', '')} ({_type(kind)}{optional})".replace(":  (", ": (")


def _type(kind: dict[str, Any]) -> str:
    choices = [one for one in kind.get("anyOf", ()) if one.get("type") != "null"]
    if len(choices) == 1:
        return _type(choices[0])
    if "enum" in kind:
        return "|".join(map(str, kind["enum"]))
    if "oneOf" in kind:
        return "one of " + "|".join(str(one["properties"]["tag"]["const"]) for one in kind["oneOf"])
    if kind.get("type") == "array" and "items" in kind:
        return f"list of {_type(kind['items'])}"
    return str(kind.get("type", "value"))


def inspected(component: Component) -> Iterator[str]:
    """What it is, its tools, what it asks for and gets."""
    yield f"{one_line(component.file)}  {component.size} bytes  sha256 {component.sha256}"
    world = "llama-cpp:tool" if component.metadata else "typed functions"
    yield f"world: {world}" + (f", version {one_line(component.metadata.version)}" if component.metadata else "")
    for tool in component.tools:
        yield f"\n{tool.spec.name}  ({key_of(tool.path)})"
        yield f"  {one_line(tool.spec.description)}"
        for line in _parameters(tool.spec):
            yield f"  - {one_line(line)}"
    for skipped in component.skipped:
        yield f"\nnot a tool: {one_line(key_of(skipped.path))}: {one_line(skipped.reason)}"
    yield ""
    yield from _asked(component)
    yield from _granted(component)


def _asked(component: Component) -> Iterator[str]:
    groups = sorted({name.partition("@")[0] for name in component.imports})
    if not groups:
        yield "asks for: nothing"
        return
    yield f"asks for: {one_line(', '.join(groups))}"
    if refused := [name for name in groups if name.startswith(_NOT_GIVEN)]:
        yield f"never given: {one_line(', '.join(refused))} (most languages link them without using them)"


def _granted(component: Component) -> Iterator[str]:
    rules, limits = component.policy, component.policy.held
    if component.policy_file is None:
        yield "granted: nothing (there is no policy file beside it)"
    else:
        yield f"policy: {one_line(component.policy_file)}"
        for folder in rules.permissions.storage.allow:
            yield f"  folder {one_line(folder.path)}: {', '.join(folder.access)}"
        for host in rules.hosts:
            port = f":{host.port}" if host.port else ""
            yield f"  host {host.host}{port}: {', '.join(host.schemes)}; {', '.join(host.methods)}"
        for name in rules.variables:
            yield f"  variable {name}"
    fuel = f", {limits.fuel} fuel" if limits.fuel else ""
    yield (
        f"limits: {limits.timeout_s:g} s, {limits.memory_bytes >> 20} MiB memory, {limits.stack_bytes >> 10} KiB stack"
        f", {limits.output_bytes} bytes of output{fuel}"
    )


def as_json(component: Component) -> dict[str, Any]:
    """All of it, for programs."""
    found = component.model_dump(exclude={"compiled"})
    found["limits"] = component.policy.held.model_dump()
    return found
