"""The command line. Commands are imported when they are called, so that `stockade --help` stays quick."""

import gc
import sys
from collections.abc import Sequence

import click

from stockade import __version__
from stockade.cli.lazy import COMMANDS, load
from stockade.cli.ui import failures
from stockade.core.errors import UsageError

__all__ = ["COMMANDS", "GC_OBJECTS", "LazyGroup", "call", "main", "stockade"]
GC_OBJECTS = 50_000
"""At most so many are kept in vain, some megabytes, until somebody looks for cycles."""


class LazyGroup(click.Group):
    """A group whose commands are modules with a `command`, imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        where = COMMANDS[cmd_name][0]
        found = load(f"cli.{where}" if ":" in where else f"cli.{where}:command")
        assert isinstance(found, click.Command)
        return found

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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="stockade", message="%(prog)s %(version)s")
def stockade() -> None:
    """Runs LLM agents where they can do no harm.

    \b
    stockade run "Count the lines of data.csv into count.txt" --folder ./demo
    """


def call(arguments: Sequence[str]) -> int:
    """One call of the command line; its exit status. Nothing but SystemExit of the interpreter gets out of here."""
    return failures.guarded(lambda: _status(stockade.main(list(arguments), "stockade", standalone_mode=False)))


def _status(result: object) -> int:
    return result if isinstance(result, int) else 0


def main() -> None:
    """The `stockade` command."""
    # What is imported is no garbage, and a run makes few cycles: the default looks through all of it again and again.
    gc.set_threshold(GC_OBJECTS)
    failures.prepare_streams()
    sys.exit(call(sys.argv[1:]))
