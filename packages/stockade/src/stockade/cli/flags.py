"""The flags that commands share. Their names are those of the TOML keys; what was not given is None."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from stockade.cli.lazy import load
from stockade.cli.model_flags import LOADING_MORE, SAMPLING
from stockade.cli.ui.safe import hide_named

if TYPE_CHECKING:
    from stockade.runtime.settings import Settings

Command = Callable[..., Any]


def _flag(*names: str, **how: Any) -> Callable[[Command], Command]:
    return click.option(*names, default=None, **how)


def _redacted(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    hide_named(names)
    return names


def _given(_: click.Context, __: click.Parameter, variables: tuple[str, ...]) -> tuple[str, ...]:
    hide_named(given=variables)
    return variables


LOADING = (
    _flag("--ctx-size", type=int, metavar="N", help="Context window of an embedded model, in tokens."),
    _flag("--threads", type=int, metavar="N", help="Threads of an embedded model."),
    _flag("--gpu-layers", type=int, metavar="N", help="Layers of an embedded model on the GPU."),
    _flag("--llama-server", metavar="PATH|off", help="A stock llama-server to use instead of the built-in one."),
    *LOADING_MORE,
)
LIVING = (
    _flag("--model", metavar="PROVIDER/NAME", help="Which model; auto picks one and says why."),
    _flag(
        "--answers", metavar="auto|native|json|fenced|use-tool|sections|list", help="How the model spells its answers."
    ),
    _flag("--max-turns", type=int, metavar="N", help="Turns of the model; 0 is unlimited."),
    _flag("--timeout", type=float, metavar="S", help="Seconds for the whole run; 0 is unlimited."),
    _flag("--max-tokens", type=int, metavar="N", help="Tokens of prompts and answers together."),
    _flag("--max-cost", type=float, metavar="USD", help="What the run may cost."),
    *SAMPLING,
    *LOADING,
    click.option("-o", "option", multiple=True, metavar="KEY=VALUE", help="Any other setting: -o temperature=0.2."),
    _flag("--keep-warm-s", type=float, metavar="S", help="Seconds an embedded model stays loaded after its last user."),
)
BOT = (
    _flag(
        "--bot",
        metavar="NAME|FILE.toml",
        help="Which bot: a name of `stockade bots`, or the TOML file of your own; writing by default.",
    ),
    *LIVING,
    _flag("--check", metavar="CMD", help="The run is verified when CMD succeeds in the sandbox at the end."),
)
TOOL = (
    _flag("--tool", multiple=True, metavar="NAME|FILE", help="One more tool: a name (stockade tool list) or its file."),
)
TOOLS = (
    *TOOL,
    _flag("--search", metavar="ADDRESS|duckduckgo", help="The engine of web_search: a SearXNG, or DuckDuckGo."),
    _flag("--mcp", multiple=True, metavar="FILE", help="MCP servers of a .json file, started in the sandbox."),
    _flag("--mcp-accept", multiple=True, metavar="NAME", help="An MCP server whose tools are taken as they are now."),
    _flag("--no-tool", multiple=True, metavar="NAME", help="A tool of the bot that it shall not have."),
    _flag("--allow-external", multiple=True, metavar="NAME", help="A tool that may run on this machine, unsealed."),
    _flag(
        "--approve",
        type=click.Choice(["never", "ask", "rules"]),
        help="Ask before each action, or before those that careful rules do not allow; without a terminal that is no.",
    ),
)
REDACT = (
    _flag(
        "--redact",
        multiple=True,
        metavar="NAME",
        is_eager=True,
        callback=_redacted,
        help="A variable whose value is hidden on every way out, beside those that look secret.",
    ),
)
SANDBOX = (
    _flag(
        "--folder",
        multiple=True,
        metavar="PATH[:MODE]",
        help="A folder to work in; MODE is ro, overlay (changes are reviewed) or rw. The first one is /workspace.",
    ),
    _flag("--copy", multiple=True, metavar="PATH[:DEST]", help="A file or folder copied in."),
    _flag(
        "--sandbox",
        metavar="auto|bubblewrap|docker|podman|gvisor|unconfined|remote=HOST:PORT",
        help="What seals it off; remote: on another machine.",
    ),
    _flag(
        "--image",
        metavar="NAME|ROOTFS",
        help="A root file system in place of the host's /usr; a local image on docker and podman.",
    ),
    _flag(
        "--net",
        metavar="none|allow=HOST,...|open",
        help="Network; none by default. Names only: HOST, HOST:PORT or *.SUFFIX; open is every public name.",
    ),
    _flag("--command-timeout", type=float, metavar="S", help="Seconds for one command; 0 is unlimited."),
    _flag("--memory", metavar="SIZE", help="Memory of the sandbox, as 512M or 2G."),
    _flag("--processes", type=int, metavar="N", help="Processes in the sandbox."),
    _flag("--disk", metavar="SIZE", help="Bytes that may be written; one file has at most half of them."),
    _flag(
        "--env",
        multiple=True,
        metavar="NAME[=VALUE]",
        is_eager=True,
        callback=_given,
        help="A variable for the sandbox; no other is passed on.",
    ),
    *REDACT,
)
CHANGES = (
    _flag("--apply", is_flag=True, help="Apply the changes to the folder at the end, without asking."),
    _flag("--discard", is_flag=True, help="Throw the changes away at the end."),
    _flag("--no-input", is_flag=True, help="Never ask; changes are kept for later."),
)
JSON = (_flag("--json", is_flag=True, help="JSON on stdout."),)
SHOWN = (
    *JSON,
    _flag("--quiet", is_flag=True, help="The answer only."),
    _flag("--plain", is_flag=True, help="No colours, no spinner."),
)
STORE = (
    _flag(
        "--store", metavar="PATH|ADDRESS", help="Where runs are recorded: a file, or postgresql://USER@HOST/DATABASE."
    ),
)


def offered(*groups: tuple[Callable[[Command], Command], ...]) -> Callable[[Command], Command]:
    """A decorator that gives a command all flags of `groups`, in their order."""

    def decorate(command: Command) -> Command:
        for group in reversed(groups):
            for flag in reversed(group):
                command = flag(command)
        return command

    return decorate


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that were given on the command line."""
    return {key: value for key, value in values.items() if value is not None and value != ()}


def settings(values: Mapping[str, Any]) -> "Settings":
    """The settings of this call, from what was given. What they name is hidden from here on."""
    found: Settings = load("runtime.settings:load")(values)
    hide_named(found.options.redact, found.options.env)
    return found
