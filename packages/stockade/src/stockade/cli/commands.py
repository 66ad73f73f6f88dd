"""The command `stockade` and its groups: the commands in them are imported when they are called."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stockade import __version__
from stockade.cli.lazy import BATCH, COMMANDS, RUNS, SANDBOX, Table, load
from stockade.cli.ui import failures
from stockade.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class NamedGroup(click.Group):
    """A group that says of what is no command of it which one is nearest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in (known := self.list_commands(ctx)) and not args[0].startswith("-"):
            hint = did_you_mean(args[0], known, f"{ctx.command_path} --help")
            raise UsageError(f"there is no command {args[0]!r}", hint)
        return super().resolve_command(ctx, args)


class LazyGroup(NamedGroup):
    """A group of the commands in a table."""

    def __init__(self, *args: Any, table: Table, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        where = self.table[cmd_name][0]
        found = load(f"cli.{where}" if ":" in where else f"cli.{where}:command")
        assert isinstance(found, click.Command)
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """From the table, without an import of each command."""
        begun: list[CompletionItem] = load("cli.completion:begun")(incomplete, self.table)
        return [*begun, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in self.table.items()])


class _Stockade(LazyGroup):
    def invoke(self, ctx: click.Context) -> object:
        """What cannot be written is told apart here: click would end with status 1 for a pipe that nobody reads.

        And a current folder that is gone, by whichever path was the first to be looked at.
        """
        try:
            return super().invoke(ctx)
        except OSError as error:
            if failures.is_lost_output(error):
                raise failures.OutputLost(error) from error
            if error.filename is None and failures.folder_is_gone():
                raise UsageError("the current folder is gone", "cd to one that is there") from None
            raise


@click.group(
    cls=_Stockade,
    table=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, "-V", "--version", prog_name="stockade", message="%(prog)s %(version)s")
@click.pass_context
def stockade(ctx: click.Context) -> int:
    """Runs LLM agents in sealed sandboxes; you review the diff before your files change.

    Without a command, on a terminal: a chat in this folder.

    \b
    stockade run "Count the lines of data.csv into count.txt" --folder ./demo
    """
    if ctx.invoked_subcommand is not None:
        return 0
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty():
        return int(load("cli.chat:begin")(None, {}, go_on=False))
    raise click.exceptions.NoArgsIsHelpError(ctx)


@click.group("runs", cls=LazyGroup, table=RUNS, short_help=COMMANDS["runs"][1])
def runs() -> None:
    """Past runs. RUN is an id, the beginning of one, or `last`."""


@click.group("batch", cls=LazyGroup, table=BATCH, short_help=COMMANDS["batch"][1])
def batch() -> None:
    """Many runs: the tasks of a file, each in a sandbox of its own. FILE is that of the tasks, or of their results."""


@click.group("sandbox", cls=LazyGroup, table=SANDBOX, short_help=COMMANDS["sandbox"][1])
def sandbox() -> None:
    """Commands in the sandbox, without a model. What they write to an overlay is thrown away at the end."""


def call(arguments: Sequence[str]) -> int:
    """One call of the command line; its exit status. Nothing but SystemExit of the interpreter gets out of here."""
    return failures.guarded(lambda: _status(stockade.main(list(arguments), "stockade", standalone_mode=False)))


def _status(result: object) -> int:
    return result if isinstance(result, int) else 0
