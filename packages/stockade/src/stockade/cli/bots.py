"""`stockade bots`: the bots that exist."""

import json
from typing import Any

import click
from rich.text import Text

from stockade.cli import flags
from stockade.cli.ui.console import results, write_prose
from stockade.cli.ui.failures import say
from stockade.runtime import bots
from stockade.runtime.settings import load


@click.command("bots", short_help="List bots and their permissions.")
@flags.offered(flags.JSON)
def command(**values: Any) -> int:
    """The bots that exist, with what they may do to a folder and which tools they have."""
    front = load(flags.given(values)).front
    specs, broken = bots.list_bots()
    for spec in specs:
        if front.json_lines:
            print(json.dumps({**spec.model_dump(), "tools": spec.all_tools}))
            continue
        about = f"  {spec.summary}\n  folder: {spec.folder_mode}; tools: {', '.join(spec.all_tools)}"
        write_prose(results(plain=front.plain), Text.assemble((spec.name, "bold"), "\n", about))
    for error in broken:
        say(error.message, error.hint)
    return 0
