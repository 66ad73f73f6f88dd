"""`stockade model`: what models are here, and what could be fetched."""

import json
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from stockade import assemble
from stockade.cli import flags
from stockade.cli.console import results
from stockade.cli.safe import one_line
from stockade.cli.statusline import megabytes
from stockade.settings import load


@click.group("model", short_help="Models: what is here and what can be fetched.")
def command() -> None:
    """Models: what is here and what can be fetched."""


@command.command("list")
@flags.offered(flags.JSON)
def list_models(**values: Any) -> int:
    """The models on this machine, and the embedded ones that are fetched on first use."""
    front = load(flags.given(values)).front
    entries = assemble.list_models()
    if front.json_lines:
        for entry in entries:
            print(json.dumps(entry.model_dump()))
        return 0
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("model", "here", "size", "window", "quantisation", "licence", "about"):
        table.add_column(name, no_wrap=True, overflow="fold" if name == "model" else "ellipsis")
    for entry in entries:
        here = "verified" if entry.verified else "yes" if entry.here else "no"
        cells = (entry.name, "broken" if entry.problem else here, megabytes(entry.size_bytes), str(entry.window or ""),
                 entry.quantisation, entry.licence, entry.problem or entry.about)  # fmt: skip
        table.add_row(*(Text(one_line(cell)) for cell in cells))
    results(plain=front.plain).print(table)
    return 0


@command.command("info")
@click.argument("name")
@flags.offered(flags.JSON)
def info(name: str, **values: Any) -> int:
    """What is known of one model: embedded/NAME or gguf/PATH."""
    front = load(flags.given(values)).front
    entry = assemble.model_info(name)
    if front.json_lines:
        print(json.dumps(entry.model_dump()))
        return 0
    console = results(plain=front.plain)
    for key, value in entry.model_dump().items():
        if value not in ("", None):
            shown = megabytes(value) if key == "size_bytes" else one_line(str(value))
            console.print(Text.assemble((f"{key.replace('_bytes', ''):13}", "bold"), shown), soft_wrap=True)
    return 0
