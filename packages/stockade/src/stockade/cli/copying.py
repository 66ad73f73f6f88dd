"""`stockade runs copy`: from one record to another."""

import json
from typing import Any

import anyio
import click

from stockade.cli import flags
from stockade.cli.opened import on_record
from stockade.cli.ui.console import moves_cursor, progress
from stockade.cli.ui.failures import say
from stockade.cli.ui.safe import screen, some
from stockade.core.errors import StockadeError, UsageError
from stockade.core.ports import RunStore
from stockade.runtime.copying import copy_run, with_helpers
from stockade.store.opening import open_store


@click.command("copy", short_help="Copy runs to another record: a file, or PostgreSQL.")
@flags.run(nargs=-1)
@click.option("--to", "target", required=True, metavar="STORE", help="A file, or postgresql://USER@HOST/DATABASE.")
@click.option("--all", "every", is_flag=True, help="All runs of the record.")
@flags.offered(flags.JSON, flags.STORE)
def copy(run: tuple[str, ...], target: str, every: bool, **values: Any) -> int:
    """Copy runs to another record, with those that they began: `--to postgresql://...` for many machines, or back to a
    file. Nothing is taken away; called again, it goes on where it was.

    Only the record is copied: changes that nobody decided on, and what undo needs, lie in folders of this machine.
    Status 2 when one of them is not copied.
    """
    if every == bool(run):
        raise UsageError("which runs are to be copied?", "name some, or --all")
    with on_record(values) as (store, settings):
        there = open_store(target)
        try:
            return anyio.run(_copy, store, there, run, settings.front)
        finally:
            anyio.run(there.close)


async def _copy(store: RunStore, there: RunStore, references: tuple[str, ...], front: Any) -> int:
    if references:
        named = [one for name in references for one in await with_helpers(store, await store.find(name))]
    else:
        named = [one.run_id for one in reversed(await store.runs())]
    named, copied, problems = list(dict.fromkeys(named)), 0, 0
    console = progress(plain=front.plain)
    status = console.status("") if moves_cursor(console, plain=front.plain) and not front.json_lines else None
    if status is not None:
        status.start()
    try:
        for number, run_id in enumerate(named, 1):
            if status is not None:
                status.update(f"{number} of {some(len(named), 'run')}")
            why, events = "", 0
            try:
                events = await copy_run(store, there, run_id)
            except StockadeError as error:
                why = error.message
                say(f"not copied: {error.message}", error.hint)
            copied, problems = copied + (events > 0), problems + bool(why)
            if front.json_lines:
                print(json.dumps(screen().data({"type": "copied", "run": run_id, "events": events, "why": why})))
    finally:
        if status is not None:
            status.stop()
    same = len(named) - copied - problems
    say(f"{some(copied, 'run')} copied" + (f", {same} were there before" if same else ""))
    return 2 if problems else 0
