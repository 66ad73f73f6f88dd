"""Writes docs/cli.md from the commands themselves: `make docs`. A test holds the file to what this prints."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from stockade.cli import stockade

TARGET = Path(__file__).with_name("cli.md")


def sections(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    """The help of a command and of all below it, in order."""
    settings = {**command.context_settings, "max_content_width": 110}
    context = click.Context(command, info_name=name, parent=parent, terminal_width=110, **settings)
    yield f"## {context.command_path}\n\n```\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from sections(found, child, context)


def page() -> str:
    head = "# The commands\n\nMade by `make docs` from `--help`; do not edit.\n"
    return "\n".join([head, *sections(stockade, "stockade", None)])


if __name__ == "__main__":
    TARGET.write_text(page())
    sys.stdout.write(f"{TARGET}\n")
