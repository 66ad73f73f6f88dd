"""`stockade mcp`: what Stockade does, as an MCP server."""

import os
import secrets
import sys
from functools import partial
from importlib.util import find_spec
from typing import Any

import click

from stockade.cli import flags
from stockade.cli.lazy import load
from stockade.cli.ui.failures import INTERRUPTED, say
from stockade.cli.ui.interrupt import interruptible
from stockade.cli.ui.safe import hide
from stockade.core.errors import UsageError, to_install
from stockade_sandbox.policy import is_loopback

TOKEN = "STOCKADE_MCP_TOKEN"


@click.command("mcp", short_help="An MCP server: bots, sandboxes and records for any MCP client.")
@click.option("--allow-apply", is_flag=True, help="Clients apply changes without the user being asked.")
@click.option(
    "--http", metavar="HOST:PORT", help="Streamable HTTP on a loopback address, in place of stdin and stdout."
)
@flags.offered(flags.LIVING, flags.SANDBOX, flags.STORE)
def command(allow_apply: bool, http: str | None, **values: Any) -> int:
    """Serve MCP on stdin and stdout until the client ends.

    \b
    Tools: run_bot, sandbox_exec, runs_list, run_show, run_diff, run_apply.
    --folder PATH[:ro] says which folders a client may name (by default the current one, and what is below);
    model, network, time and limits are those of the flags: a client may ask for less.
    With --http a client needs the token that is printed, or that of STOCKADE_MCP_TOKEN.
    """
    if find_spec("mcp") is None:
        raise UsageError("stockade mcp needs the package mcp", to_install("mcp"))
    place = None if http is None else _loopback(http)
    settings = flags.settings({**flags.given(values), "mcp": ("none",)})
    service = load("mcp_server.service:Service").of(settings.options)
    for line in service.redactor.warnings:
        say(line)
    hide(service.redactor)
    server = load("mcp_server.app:make_server")(service, allow_apply=allow_apply)
    made = not os.environ.get(TOKEN)
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(32)
    if place is None and sys.stdin is None:
        raise UsageError("standard input is closed", "an MCP client starts this and speaks to it")

    async def work() -> int:
        if place is None:
            await load("mcp_server.transports:serve_stdio")(server)
        else:
            say_where = partial(_say_where, token=token, made=made)
            await load("mcp_server.transports:serve_http")(server, *place, token, say_where)
        return 0

    status = interruptible(work)
    return INTERRUPTED if status is None else status


def _say_where(address: str, token: str, *, made: bool) -> None:
    """The token is shown here and nowhere else; `say` would hide it."""
    shown = token if made else f"${TOKEN}"
    click.echo(f"stockade: MCP at {address} for who sends the header Authorization: Bearer {shown}", err=True)


def _loopback(text: str) -> tuple[str, int]:
    """UsageError for what is no loopback address: what travels is not encrypted."""
    host, _, port = text.rpartition(":")
    try:
        number = int(port)
    except ValueError:
        number = -1
    if not is_loopback(host) or not 0 <= number <= 65535:
        raise UsageError(f"--http {text}: it serves on loopback only", "write 127.0.0.1:PORT")
    return host.strip("[]"), number
