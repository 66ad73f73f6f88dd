"""`stockade run` as it is typed. All that does the work is imported when it begins, so that `--help` stays quick."""

from typing import Any

import click

from stockade.cli import flags


@click.command("run", short_help="Run a bot on a task.")
@click.argument("task")
@flags.offered(flags.BOT, flags.TOOLS, flags.SANDBOX, flags.CHANGES, flags.SHOWN, flags.STORE)
def command(task: str, **values: Any) -> int:
    """Run a bot on TASK, which may also be - (standard input) or @FILE.

    The answer goes to stdout, everything else to stderr. At the end the changes are shown, and applied only when you
    say so. Exit status: 0 done, 1 gave up or check failed, 2 usage, 3 stopped, 4 sandbox or machine, 5 model,
    130 Ctrl-C.
    """
    from stockade.cli.run import begin

    return begin(task, flags.given(values))
