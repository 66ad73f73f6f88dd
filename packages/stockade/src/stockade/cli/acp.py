"""`stockade acp`: a bot for editors that speak the Agent Client Protocol."""

import logging
import os
import sys
from importlib.util import find_spec
from typing import Any

import anyio
import click

from stockade.cli import flags
from stockade.cli.lazy import load
from stockade.cli.ui.failures import INTERRUPTED, say, unwrap_exception_group
from stockade.cli.ui.interrupt import Interrupt
from stockade.cli.ui.safe import one_line
from stockade.core.errors import UsageError, to_install


@click.command("acp", short_help="A bot for editors: the Agent Client Protocol.")
@flags.offered(flags.BOT, flags.TOOLS, flags.SANDBOX, flags.STORE)
def command(**values: Any) -> int:
    """Serve the Agent Client Protocol on stdin and stdout; an editor starts this and asks for what it is to do.

    The editor's folder is the overlay: what a bot changes is shown as diffs at the end of a turn, and applied when you
    say so there. --folder gives other folders beside it. All else is as of `stockade chat` in that folder.
    """
    if find_spec("acp") is None:
        raise UsageError("stockade acp needs the package agent-client-protocol", to_install("acp"))
    given = flags.given(values)
    settings = flags.settings(given)
    if sys.stdin is None:
        raise UsageError("standard input is closed", "an editor starts this and speaks to it")
    if sys.stdin.isatty():
        say("waiting for an editor on standard input; an editor starts `stockade acp` itself", "Ctrl-D ends it")
    sink = os.dup(1)
    os.dup2(2, 1)  # whatever is printed by mistake is no message to the editor
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(_Said())
    interrupt = Interrupt()

    async def work() -> None:
        store = load("runtime.records:open_store")(settings.options.store)
        try:
            await load("acp.serving:serve")(given, store, 0, sink, interrupt.cancelling)
        finally:
            with anyio.CancelScope(shield=True):
                await store.close()

    try:
        anyio.run(work)
    except BaseExceptionGroup as group:
        raise unwrap_exception_group(group) from None
    return INTERRUPTED if interrupt.pressed else 0


class _Said(logging.Handler):
    """What the SDK has against a message, in a line where it would print a trace."""

    def emit(self, record: logging.LogRecord) -> None:
        say(one_line(record.getMessage(), 200))
