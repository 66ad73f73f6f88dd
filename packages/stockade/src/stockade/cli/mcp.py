"""`stockade mcp`: what Stockade does, as an MCP server."""

import os
import secrets
import sys
from importlib.util import find_spec
from typing import Any

import anyio
import click

from stockade.cli import flags
from stockade.cli.failures import INTERRUPTED, say, sole
from stockade.cli.interrupt import Interrupt
from stockade.cli.safe import hide
from stockade.core.errors import UsageError, to_install
from stockade.core.policy import is_loopback

TOKEN = "STOCKADE_MCP_TOKEN"


@click.command("mcp", short_help="An MCP server: bots, sandboxes and records for any MCP client.")
@click.option("--allow-apply", is_flag=True, help="Clients apply changes without the person being asked.")
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
    from stockade.mcp_server.app import make_server
    from stockade.mcp_server.folders import Roots
    from stockade.mcp_server.http import serve_http
    from stockade.mcp_server.service import Service
    from stockade.mcp_server.stdio import serve_stdio

    place = None if http is None else _loopback(http)
    settings = flags.load({**flags.given(values), "mcp": ("none",)})
    service = Service(settings.options, Roots.of(settings.options.folder))
    for line in service.redactor.warnings:
        say(line)
    hide(service.redactor)
    server = make_server(service, allow_apply=allow_apply)
    made = not os.environ.get(TOKEN)
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(32)
    if place is None and sys.stdin is None:
        raise UsageError("standard input is closed", "an MCP client starts this and speaks to it")

    async def all_of_it() -> bool:
        interrupt = Interrupt()
        try:
            async with anyio.create_task_group() as group:
                with interrupt.cancelling(group.cancel_scope.cancel):
                    if place is None:
                        await serve_stdio(server)
                    else:
                        await serve_http(server, *place, token, lambda address: _say_where(address, token, made=made))
                    group.cancel_scope.cancel()
        except BaseExceptionGroup as error:
            raise sole(error) from None
        return interrupt.pressed

    return INTERRUPTED if anyio.run(all_of_it) else 0


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
