"""`stockade tool`: what tools there are, what a component is and may do, calling one, building one."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import click

from stockade.cli import flags, tool_text
from stockade.cli.console import progress
from stockade.cli.failures import INTERRUPTED, say
from stockade.cli.safe import one_line
from stockade.cli.sandbox import in_sandbox, sandbox_redactor
from stockade.cli.tool_arguments import parsed
from stockade.core.errors import UsageError
from stockade.core.ports import Sandbox
from stockade.plugins.wasm.build import build as build_component
from stockade.plugins.wasm.build import scaffold
from stockade.plugins.wasm.component import Component, Tool
from stockade.plugins.wasm.policy import beside
from stockade.plugins.wasm.prepare import prepared
from stockade.plugins.wasm.toolbox import WasmToolbox, with_tool
from stockade.plugins.wasm.worker import Reply
from stockade.runtime.policies import make_policy
from stockade.runtime.sandboxes import own_sandbox
from stockade.runtime.tools import known_tools

_POLICY = click.option(
    "--policy",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE",
    help="What the component may do; without it NAME.policy.yaml beside it.",
)


@click.group("tool", short_help="Tools: listing, trying and building them.")
def command() -> None:
    """Tools of bots: what there are, and WebAssembly components: looking at, calling, building them (docs/wasm.md)."""


@command.command("list")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path), metavar="[FOLDER ...]")
@flags.offered(flags.JSON)
def list_tools(folders: tuple[Path, ...], **values: Any) -> int:
    """Names that --tool and --no-tool take, and the components in each FOLDER (by default in this one)."""
    front = flags.load(flags.given(values)).front
    for row in [*known_tools(), *_components(folders or (Path(),))]:
        if front.json_lines:
            print(json.dumps({"name": row[0], "kind": row[1], "about": row[2]}))
        else:
            print(f"{one_line(row[0]):<28} {row[1]:<10} {one_line(row[2])}".rstrip())
    return 0


def _components(folders: Sequence[Path]) -> Iterator[tuple[str, str, str]]:
    """Those in the folders, as `known_tools`; they are not looked into, which may mean compiling them."""
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder}: there is no such folder")
        for path in sorted(folder.glob("*.wasm")):
            policy = beside(path)
            yield str(path), "component", f"held to {policy.name}" if policy else "may do nothing: no policy"


@command.command("inspect")
@click.argument("file", type=click.Path(path_type=Path))
@_POLICY
@flags.offered(flags.JSON)
def inspect(file: Path, policy: Path | None, **values: Any) -> int:
    """What a component exports as tools, what it asks for, what it is granted, and what of it cannot be a tool."""
    front = flags.load(flags.given(values)).front
    component = _opened(file, policy)
    if front.json_lines:
        print(json.dumps(tool_text.as_json(component)))
    else:
        print("\n".join(tool_text.inspected(component)))
    return 0


@command.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[FUNCTION] [--PARAMETER VALUE ...]")
@_POLICY
@flags.offered(flags.SANDBOX, flags.JSON, (flags.SHOWN[1],))
def run(file: Path, rest: tuple[str, ...], policy: Path | None, **values: Any) -> int:
    """Calls a component's function in the sandbox; its parameters are flags after FILE (FILE --help lists them).

    What it writes to an overlay folder is thrown away. Exit status 1 when the tool fails.
    """
    settings = flags.load(flags.given(values))
    component = _opened(file, policy)
    tool, words = _function(component, rest)
    arguments = parsed(tool.spec, words, f"stockade tool run {file}")
    if arguments is None:
        return 0
    run_policy = with_tool(component)(make_policy(settings.options, "overlay"))
    silent = settings.front.json_lines or settings.front.quiet
    if not silent:
        print("\n".join(tool_text.before_call(component, tool)), flush=True)

    async def work(sandbox: Sandbox) -> Reply:
        async with WasmToolbox((component,), sandbox, run_policy) as box:
            return await box.ask(tool.spec.name, arguments)

    redactor = sandbox_redactor(settings.options)
    reply = in_sandbox(settings.options, work, run_policy)
    if reply is None:
        return INTERRUPTED
    reply = reply.model_copy(update={"text": redactor.text(reply.text)})
    if settings.front.json_lines:
        print(json.dumps(reply.model_dump()))
    elif settings.front.quiet and reply.status != "error":
        print(reply.text)
    else:
        print(tool_text.after_call(reply))
    return 1 if reply.status == "error" else 0


@command.command("build")
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
    component, manifest = build_component(source, output, wit, world, adapter)
    opened = _opened(component, None)
    print(f"{component} ({opened.size} bytes): {', '.join(tool.spec.name for tool in opened.tools)}")
    if manifest is not None:
        print(f"{manifest}: names and descriptions from the comments of the WIT")
    return 0


@command.command("new")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--lang", default="python", metavar="python|js|c|rust", help="Its language.")
def new(folder: Path, lang: str) -> int:
    """A new FOLDER, named as the tool, with its beginning: source, WIT and a policy that grants nothing."""
    files = scaffold(folder.name, lang, folder.parent)
    print("\n".join(str(file) for file in files))
    source = next(file for file in files if file.suffix in (".py", ".js", ".c", ".rs"))
    say(f"next: stockade tool build {source}")
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
            if rest[0] in tool_text.names(tool):
                return tool, rest[1:]
        wanted = f"{component.name} has no function {rest[0]!r}"
    elif len(component.tools) == 1:
        return component.tools[0], rest
    else:
        wanted = f"{component.name} has {len(component.tools)} functions: say which one"
    raise UsageError(wanted, "it has " + ", ".join(tool_text.names(tool)[0] for tool in component.tools))
