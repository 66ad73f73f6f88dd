"""`stockade runs rm` and `prune`: removing runs."""

import json
import re
import time
from collections.abc import Sequence
from typing import Any

import anyio
import click
from rich.text import Text

from stockade.cli import flags
from stockade.cli.opened import on_record
from stockade.cli.ui.console import Column, can_ask, draw_table, results
from stockade.cli.ui.failures import say
from stockade.cli.ui.review import YES, ask_person
from stockade.cli.ui.safe import moment, one_line, screen, some
from stockade.core.errors import RunRemoved, StockadeError, UsageError
from stockade.core.ports import RunStore
from stockade.runtime import sandboxes
from stockade.runtime.removing import Candidate, candidates, remove, sweep_removed

_TASK_SHOWN = 60
_NAMED = 10
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"(\d{1,6})([mhdw])")
_OLD_COLUMNS = (
    Column("run"),
    Column("when", leaves=1),
    Column("status"),
    Column("size", right=True),
    Column("undo"),
    Column("task", shrinks=True),
)


@click.command("rm", short_help="Remove runs for good: record, folders, undo.")
@flags.run(nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Include runs with pending changes, or with a damaged record.")
@flags.offered(flags.JSON, flags.STORE)
def rm(run: tuple[str, ...], force: bool, **values: Any) -> int:
    """Remove runs for good: the record, what lies in their folders, and what undo needs. The folders that the bots
    worked in stay as they are.

    Status 2 when one of them is refused: while it is under way, and when nobody decided on its changes.
    """
    with on_record(values) as (store, settings):
        status, found = 0, list[str]()
        for reference in run:
            try:
                found.append(anyio.run(store.find, reference))
            except RunRemoved as gone:
                say(gone.message)
        for run_id in dict.fromkeys(found):
            status = max(status, _rm(store, run_id, force, json_lines=settings.front.json_lines))
        anyio.run(sweep_removed, store)
        return status


def _rm(store: RunStore, run_id: str, force: bool, *, json_lines: bool) -> int:
    """One that cannot be removed keeps no other."""
    status, why = 0, ""
    try:
        left = anyio.run(lambda: remove(store, sandboxes.reviewer(), run_id, force=force))
        say(f"removed run {run_id}")
        for what in left:
            say(what)
    except StockadeError as error:
        say(f"not removed: {error.message}", error.hint)
        status, why = error.exit_status, error.message
    if json_lines:
        print(json.dumps(screen().data({"type": "removed", "run": run_id, "removed": not why, "why": why})))
    return status


@click.command("prune", short_help="Remove old runs for good, after showing which.")
@click.option("--older", "age", metavar="AGE", help="Only runs that began longer ago: 90m, 12h, 30d, 8w.")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="The newest N runs stay.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("-y", "--yes", is_flag=True, help="Remove them without asking.")
@flags.offered(flags.JSON, flags.STORE)
def prune(age: str | None, keep: int | None, dry_run: bool, yes: bool, **values: Any) -> int:
    """Remove old runs for good, as `runs rm` does, after showing which: what they applied cannot be undone afterwards.

    With both, only what is older and not among the newest N. Runs that are under way, and those with changes that
    nobody decided on, stay. Where nobody can be asked, nothing goes without --yes.
    """
    if age is None and keep is None:
        raise UsageError("which runs are to go?", "name an age, --older 30d, or a number, --keep 100, or both")
    before = time.time() - _seconds(age) if age is not None else None
    with on_record(values) as (store, settings):
        found = anyio.run(lambda: candidates(store, sandboxes.reviewer(), before=before, keep=keep))
        going = [one for one in found if not one.stays]
        _show(found, json_lines=settings.front.json_lines)
        if going and not dry_run and not yes and can_ask(no_input=settings.front.no_input):
            yes = ask_person(f"Remove {some(len(going), 'run')} for good? [y]es / [N]o: ") in YES
        status = 0
        if not going:
            say("there is nothing to remove")
        elif dry_run or not yes:
            say("nothing was removed", "--yes removes them")
        else:
            status = max(_rm(store, one.run.run_id, False, json_lines=settings.front.json_lines) for one in going)
        anyio.run(sweep_removed, store)
        return status


def _seconds(age: str) -> float:
    found = _AGE.fullmatch(age)
    if found is None:
        raise UsageError(f"--older {age}: this is no age", "a number and m, h, d or w: --older 30d")
    return int(found[1]) * _SECONDS[found[2]]


def _show(found: Sequence[Candidate], *, json_lines: bool) -> None:
    if json_lines:
        for one in found:
            line = {"type": "candidate", "run": one.run.run_id, "started": one.run.started, "bytes": one.size}
            print(json.dumps(screen().data({**line, "undo": one.undo, "stays": one.stays})))
        return
    rows = [
        tuple(map(Text, (
            one.run.run_id, moment(one.run.started), one.run.status,
            _size(one.size), "yes" if one.undo else "no", one_line(one.run.task, _TASK_SHOWN),
        )))
        for one in found if not one.stays
    ]  # fmt: skip
    if rows:
        draw_table(results(), _OLD_COLUMNS, rows)
    for why in dict.fromkeys(one.stays for one in found if one.stays):
        names = [one.run.run_id for one in found if one.stays == why]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        say(f"stays, since {why}: {', '.join(names[:_NAMED])}{more}")


def _size(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB" if size else "-"
