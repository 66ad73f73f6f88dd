"""`stockade approvals`: what the user has allowed for always, at a question of `--approve ask|rules`."""

import json
from typing import Any

import click
from rich.text import Text

from stockade.approval.remembered import Approval
from stockade.cli import flags
from stockade.cli.commands import NamedGroup
from stockade.cli.ui.console import Column, draw_table, results
from stockade.cli.ui.failures import say
from stockade.cli.ui.safe import moment, one_line
from stockade.core.errors import UsageError
from stockade.runtime.hooks import approval_file
from stockade.runtime.settings import load

_COLUMNS = (
    Column("n", right=True),
    Column("since", leaves=1),
    Column("bot"),
    Column("folder"),
    Column("may do"),
)


@click.group("approvals", cls=NamedGroup, short_help="What bots may do without asking, and where.")
def command() -> None:
    """What you have allowed for always: each holds for one bot in one folder, by its exact words."""


@command.command("list")
@flags.offered(flags.JSON)
def list_approvals(**values: Any) -> int:
    """Each with its number, which `rm` takes."""
    front = load(flags.given(values)).front
    found = approval_file().read()
    for line in found.problems:
        say(line)
    if front.json_lines:
        for number, one in enumerate(found.approvals, 1):
            print(json.dumps({"number": number, **one.model_dump(mode="json")}))
        return 0
    if found.approvals:
        rows = [
            [Text(cell) for cell in (str(number), moment(one.at), one_line(one.bot), _place(one), one_line(one.text))]
            for number, one in enumerate(found.approvals, 1)
        ]
        draw_table(results(), _COLUMNS, rows)
    elif not found.problems:
        say("nothing is allowed for always", "answer `always` when a bot of --approve ask or rules may do something")
    return 0


@command.command("rm")
@click.argument("numbers", nargs=-1, type=int, metavar="[N]...")
@click.option("--all", "every", is_flag=True, help="All of them, and the file.")
def rm(numbers: tuple[int, ...], every: bool) -> int:
    """Take approvals back by their numbers in `list`, or all. Status 2 when there is no such number."""
    if every == bool(numbers):
        raise UsageError("name approvals by their numbers, or give --all", "stockade approvals list")
    file = approval_file()
    if every:
        file.clear()
        say("nothing is allowed for always any more")
        return 0
    try:
        gone = file.remove(numbers)
    except FileNotFoundError:
        raise UsageError("there is no approval to take back", "stockade approvals list") from None
    for one in gone:
        say(f"not allowed any more: {one.bot} in {_place(one)}: {one.text}")
    return 0


def _place(one: Approval) -> str:
    return one_line(", ".join(one.place)) or "no folder"
