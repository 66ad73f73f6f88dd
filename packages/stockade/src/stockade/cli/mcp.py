"""`stockade mcp`: what Stockade does, as an MCP server."""

import sys
from importlib.util import find_spec
from typing import Any

import click

from stockade.cli import flags
from stockade.cli.lazy import load
from stockade.cli.ui.failures import INTERRUPTED, say
from stockade.cli.ui.interrupt import interruptible
from stockade.cli.ui.safe import hide
from stockade.core.errors import UsageError, to_install


@click.command("mcp", short_help="An MCP server: bots, sandboxes and records for any MCP client.")
@click.option("--allow-apply", is_flag=True, help="Clients apply changes without the user being asked.")
@click.option("--only", type=click.Choice(["sandbox"]), help="sandbox: neither bots nor the record of runs.")
@flags.offered(flags.LIVING, flags.SANDBOX, flags.STORE)
def command(allow_apply: bool, only: str | None, **values: Any) -> int:
    """Serve MCP on stdin and stdout until the client ends.

    \b
    Tools: run_bot, runs_list, run_show, run_diff, run_apply; sandbox_exec, and sandbox_open, run, start, poll, kill,
    read, write, diff, close of sandboxes that live on.
    --folder PATH[:ro] says which folders a client may name (by default the current one, and what is below);
    model, network, time and limits are those of the flags: a client may ask for less.
    """
    if find_spec("mcp") is None:
        raise UsageError("stockade mcp needs the package mcp", to_install("mcp"))
    settings = flags.settings({**flags.given(values), "mcp": ("none",)})
    service = load("mcp_server.service:Service").of(settings.options)
    for line in service.redactor.warnings:
        say(line)
    hide(service.redactor)
    server = load("mcp_server.app:make_server")(service, allow_apply=allow_apply, only_sandbox=only is not None)
    if sys.stdin is None:
        raise UsageError("standard input is closed", "an MCP client starts this and speaks to it")

    if sys.stdin.isatty():
        say("waiting for an MCP client on standard input; a client starts `stockade mcp` itself", "Ctrl-D ends it")

    async def work() -> int:
        await load("mcp_server.stdio:serve_stdio")(server)
        return 0

    status = interruptible(work)
    return INTERRUPTED if status is None else status
