"""`stockade tool`: what tools there are, what a component is and may do, calling one, building one."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from os.path import isdir
from pathlib import Path
from typing import Any

import anyio
import click

from stockade.cli import flags
from stockade.cli.commands import NamedGroup
from stockade.cli.sandbox import in_sandbox, sandbox_redactor
from stockade.cli.ui.console import progress
from stockade.cli.ui.failures import INTERRUPTED
from stockade.cli.ui.safe import one_line, result_text
from stockade.core.errors import UsageError
from stockade.core.ports import Sandbox
from stockade.core.tools import ToolSpec
from stockade.plugins.wasm.build import build as build_component
from stockade.plugins.wasm.component import Component, Tool, key_of
from stockade.plugins.wasm.policy import beside
from stockade.plugins.wasm.prepare import prepared
from stockade.plugins.wasm.toolbox import WasmToolbox, with_tool
from stockade.plugins.wasm.worker import Reply
from stockade.runtime.policy import make_policy
from stockade.runtime.sandboxes import own_sandbox
from stockade.runtime.tools import known_tools

_POLICY = click.option(
    "--policy",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE",
    help="What the component may do; without it NAME.policy.yaml beside it.",
)


@click.group("tool", cls=NamedGroup, short_help="Tools: list, try and build them.")
def command() -> None:
    """Tools of bots: what there are, and WebAssembly components: looking at, calling, building them (docs/wasm.md)."""


@command.command("list", short_help="List the tools for --tool and --no-tool, and components in a folder.")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path), metavar="[FOLDER ...]")
@flags.offered(flags.JSON)
def list_tools(folders: tuple[Path, ...], **values: Any) -> int:
    """Names that --tool and --no-tool take, and the components in each FOLDER (by default in this one)."""
    front = flags.settings(flags.given(values)).front
    for row in [*known_tools(), *_components(folders or (Path(),))]:
        if front.json_lines:
            print(json.dumps({"name": row[0], "kind": row[1], "about": row[2]}))
        else:
            print(f"{one_line(row[0]):<14} {row[1]:<9} {one_line(row[2])}".rstrip())
    return 0


_MOST_COMPONENTS = 1000


def _components(folders: Sequence[Path]) -> Iterator[tuple[str, str, str]]:
    """Those in the folders, as `known_tools`; they are not looked into, which may mean compiling them."""
    for folder in folders:
        if not isdir(folder):
            raise UsageError(f"{folder}: there is no such folder")
        for path in _below(folder):
            policy = beside(path)
            yield str(path), "component", f"held to {policy.name}" if policy else "may do nothing: no policy"


def _below(folder: Path) -> list[Path]:
    """The components in a folder and below it, but for hidden folders and links."""
    found = list[Path]()
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        found += [Path(place, name) for name in sorted(files) if name.endswith(".wasm")]
        if len(found) > _MOST_COMPONENTS:
            raise UsageError(f"there are more than {_MOST_COMPONENTS} components below {folder}", "name a folder")
    return found


@command.command("inspect", short_help="Show what a component exports, asks for and is granted.")
@click.argument("file", type=click.Path(path_type=Path))
@_POLICY
@flags.offered(flags.JSON)
def inspect(file: Path, policy: Path | None, **values: Any) -> int:
    """What a component exports as tools, what it asks for, what it is granted, and what of it cannot be a tool."""
    front = flags.settings(flags.given(values)).front
    component = _opened(file, policy)
    if front.json_lines:
        print(json.dumps(as_json(component)))
    else:
        print(result_text("\n".join(inspected(component))))
    return 0


@command.command(
    "run", short_help="Call a component's function in the sandbox.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)  # fmt: skip
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[FUNCTION] [--PARAMETER VALUE ...]")
@_POLICY
@flags.offered(flags.SANDBOX, flags.JSON, (flags.SHOWN[1],))
def run(file: Path, rest: tuple[str, ...], policy: Path | None, **values: Any) -> int:
    """Calls a component's function in the sandbox; its parameters are flags after FILE (FILE --help lists them).

    What it writes to an overlay folder is thrown away. Exit status 1 when the tool fails.
    """
    settings = flags.settings(flags.given(values))
    component = _opened(file, policy)
    tool, words = _function(component, rest)
    arguments = parsed(tool.spec, words, f"stockade tool run {file}")
    if arguments is None:
        return 0
    run_policy = with_tool(component, make_policy(settings.options, "overlay"))
    silent = settings.front.json_lines or settings.front.quiet
    if not silent:
        print(result_text("\n".join(before_call(component, tool))), flush=True)

    async def work(sandbox: Sandbox) -> Reply:
        async with WasmToolbox((component,), sandbox, run_policy) as box:
            return await box.ask(tool.spec.name, arguments)

    redactor = sandbox_redactor(settings.options)
    reply = in_sandbox(settings.options, work, run_policy)
    if reply is None:
        return INTERRUPTED
    hidden = {"text": redactor.text(reply.text), "printed": redactor.text(reply.printed)}
    reply = reply.model_copy(update=hidden)
    if reply.printed and not silent:
        print(f"[Printed] {result_text(reply.printed)}")
    if settings.front.json_lines:
        print(json.dumps(reply.model_dump()))
    elif settings.front.quiet and reply.status != "error":
        print(result_text(reply.text))
    else:
        print(result_text(after_call(reply)))
    return 1 if reply.status == "error" else 0


@command.command("build", short_help="Build a WebAssembly component from source.")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--output", "-o", type=click.Path(path_type=Path), default=None, metavar="FILE", help="The component.")
@click.option(
    "--wit",
    type=click.Path(path_type=Path),
    default=None,
    metavar="PATH",
    help="Its WIT, a file or folder; by default *.wit or wit/ beside SOURCE, else the tool world of llama.cpp's agent.",
)
@click.option("--world", default=None, metavar="NAME", help="The world of the WIT, where it has several.")
@click.option(
    "--adapter",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE",
    help="The reactor adapter for C and Rust that use WASI; by default jco's.",
)
def build(source: Path, output: Path | None, wit: Path | None, world: str | None, adapter: Path | None) -> int:
    """A component from SOURCE: .py (componentize-py), .js (jco, QuickJS), .c (clang) or .rs (rustc for WASI).

    The compilers are yours and run unsealed, on what you give them.
    """
    component = build_component(source, output, wit, world, adapter)
    opened = _opened(component, None)
    names = ", ".join(tool.spec.name for tool in opened.tools)
    print(result_text(f"{component} ({opened.size} bytes): {names}"))
    return 0


def _opened(file: Path, policy: Path | None) -> Component:
    """With a line on stderr while it is compiled, which takes long for some languages."""

    def told(words: str, done: int, total: int) -> None:
        progress().print(one_line(words), style="dim")

    async def work() -> Component:
        return await prepared(file, own_sandbox, policy, told)

    return anyio.run(work)


def _function(component: Component, rest: tuple[str, ...]) -> tuple[Tool, tuple[str, ...]]:
    """Which function is meant, and the words after it. UsageError when that is not said and there are several."""
    if rest and not rest[0].startswith("-"):
        for tool in component.tools:
            if rest[0] in names(tool):
                return tool, rest[1:]
        wanted = f"{component.name} has no function {rest[0]!r}"
    elif len(component.tools) == 1:
        return component.tools[0], rest
    else:
        wanted = f"{component.name} has {len(component.tools)} functions: say which one"
    raise UsageError(wanted, "it has " + ", ".join(names(tool)[0] for tool in component.tools))


_METAVARS = {
    "string": "TEXT",
    "integer": "N",
    "number": "NUMBER",
    "boolean": "true|false",
    "array": "JSON",
    "object": "JSON",
}


def parsed(spec: ToolSpec, words: Sequence[str], program: str) -> dict[str, Any] | None:
    """The arguments; None when only --help was asked for, and shown. UsageError and click's own errors otherwise."""
    options: list[click.Parameter] = [
        click.Option(
            [f"--{name}", f"p{number}"],
            required=name in spec.required,
            metavar=_metavar(kind),
            help=one_line(str(kind.get("description", ""))) or None,
        )
        for number, (name, kind) in enumerate(spec.properties.items())
    ]
    made = click.Command(spec.name, params=options, help=one_line(spec.description), add_help_option=True)
    try:
        with made.make_context(program, list(words)) as context:
            given = dict(context.params)
    except click.exceptions.Exit:
        return None
    found: dict[str, Any] = {}
    for number, (name, kind) in enumerate(spec.properties.items()):
        if (text := given[f"p{number}"]) is not None:
            found[name] = _value(name, kind, text)
    return found


def _metavar(kind: Mapping[str, Any]) -> str:
    inner = _inner(kind)
    if "enum" in inner:
        return "|".join(str(one) for one in inner["enum"])
    return _METAVARS.get(str(inner.get("type")), "JSON")


def _inner(kind: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of an option, what it holds."""
    choices = [one for one in kind.get("anyOf", ()) if one.get("type") != "null"]
    return choices[0] if len(choices) == 1 else kind


def _value(name: str, kind: Mapping[str, Any], text: str) -> Any:
    if _inner(kind).get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"--{name} {one_line(text, 60)!r} is not {_metavar(kind)}") from None


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
        return f"[Error] Tool error: {reply.text}"
    return f"[Success] Tool output: {reply.text}"


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
    rules, limits = component.policy, component.policy.limits
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
    found["limits"] = component.policy.limits.model_dump()
    return found
