"""The command line. Commands are imported when they are called, so that `stockade --help` stays quick."""

import gc
import sys

from stockade.cli.lazy import load

GC_OBJECTS = 50_000
"""At most so many are kept in vain, some megabytes, until somebody looks for cycles."""


def main() -> None:
    """The `stockade` command."""
    # What is imported is no garbage, and a run makes few cycles: the default looks through all of it again and again,
    # and once more at the end.
    gc.set_threshold(GC_OBJECTS)
    load("cli.ui.failures:prepare_streams")()
    status: int = load("cli.commands:call")(sys.argv[1:])
    gc.freeze()
    sys.exit(status)
