"""`stockade runs list`: which runs there are. Imports no events and nothing asynchronous: a list is looked at often."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from os.path import expanduser, realpath
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from stockade.cli import flags
from stockade.cli.ui.console import Column, draw_table, results
from stockade.cli.ui.failures import is_lost_output, say
from stockade.cli.ui.safe import moment, one_lines, screen, some
from stockade.core.errors import UsageError
from stockade.core.summary import RunSummary
from stockade.run_lock import status_now
from stockade.store.index import count_runs, runs_of
from stockade.store.opening import read_index

if TYPE_CHECKING:
    from stockade.store.database import Database

LISTED = 30
"""On a terminal, where no --limit says another number."""
_COLUMNS = (
    Column("run"),
    Column("when", leaves=1),
    Column("bot", leaves=3),
    Column("model", leaves=4),
    Column("status"),
    Column("turns", right=True),
    Column("folder", leaves=2),
    Column("task", shrinks=True),
)
STYLES = {"done": "green", "stopped": "magenta", "failed": "red", "interrupted": "magenta", "running": "bold",
          "verified": "green", "not verified": "red"}  # fmt: skip
STATES = ("running", "done", "stopped", "failed", "interrupted", "damaged")
_TASK_SHOWN = 60
FOLDER = click.option("--folder", metavar="PATH", help="Only runs of this folder, and of those in it.")
LIMIT = click.option(
    "--limit", type=click.IntRange(0), metavar="N", help=f"The newest N; {LISTED} on a terminal, 0: all."
)
WIDTH = click.option("--width", type=click.IntRange(20, 1000), metavar="N", help="Columns to draw it in.")


@click.command("list", short_help="Past runs, newest first.")
@FOLDER
@click.option("--status", type=click.Choice(STATES), multiple=True, help="Only those; also several.")
@click.option("--filter", "words", multiple=True, metavar="WORDS", help="Only those that `runs search WORDS` finds.")
@LIMIT
@WIDTH
@flags.offered(flags.JSON, flags.STORE)
def list_runs(
    folder: str | None, status: tuple[str, ...], words: tuple[str, ...], limit: int | None, width: int | None,
    **values: Any,
) -> int:  # fmt: skip
    """Past runs, newest first. What failed before the model had answered once is no run: --status failed lists it."""
    with _index(values) as (db, json_lines):
        here, terms = resolved(folder), [term for one in words for term in one.split()]
        number = shown_limit(limit, json_lines)
        found = runs_of(db, folder=here, words=terms, began=not status, limit=None if status else number)
        states = [(run, status_now(run.run_id, run.status, run.driver)) for run in found]
        wanted = [(run, state) for run, state in states if not status or state in status]
        shown = under_their_runs(wanted[: number or None])
        if json_lines:
            for run, state in shown:
                print(json.dumps(screen().data({**asdict(run), "status": state})))
            return 0
        every, began = count_runs(db, folder=here, words=terms)
        console = results()
        if width is not None:
            console.width = width
        _draw(console, shown)
        if not every:
            say("there are no runs yet" if not (folder or words) else "there is no such run", "stockade run TASK")
        elif older := (len(wanted) if status else began) - len(shown):
            say(f"and {some(older, 'older run')}", "--limit 0 lists all")
        if not status and every > began:
            say(f"{some(every - began, 'failed start')} not listed", "--status failed")
        return 0


def under_their_runs(rows: Sequence[tuple[RunSummary, str]]) -> list[tuple[RunSummary, str]]:
    """Helpers and candidates (`RUN.1`, `RUN.2`, ...) behind the run that they work for, where that is listed."""
    known = {run.run_id for run, _ in rows}
    below = dict[str, list[tuple[RunSummary, str]]]()
    for row in rows:
        boss = row[0].run_id.rpartition(".")[0]
        below.setdefault(boss if boss in known else "", []).append(row)

    def placed(rows: Iterable[tuple[RunSummary, str]]) -> Iterator[tuple[RunSummary, str]]:
        for row in rows:
            yield row
            yield from placed(sorted(below.get(row[0].run_id, ()), key=lambda one: _number(one[0].run_id)))

    return list(placed(below.get("", ())))


def _indented(run_id: str) -> str:
    return "  " * run_id.count(".") + run_id


def _number(run_id: str) -> int:
    last = run_id.rpartition(".")[2]
    return int(last) if last.isascii() and last.isdigit() else 0


@contextmanager
def _index(values: Mapping[str, Any]) -> Iterator[tuple["Database", bool]]:
    """What a list is read from, and whether it is given as JSON."""
    how = flags.reading(values)
    db = read_index(how.store)
    try:
        yield db, how.json_lines
    except db.errors as error:
        if isinstance(error, OSError) and is_lost_output(error):
            raise
        raise db.mapped(error) from None
    finally:
        db.close()


def resolved(folder: str | None) -> str | None:
    if folder is not None and "\0" in folder:
        raise UsageError("--folder: this is no path")
    return realpath(expanduser(folder)) if folder is not None else None


def shown_limit(limit: int | None, json_lines: bool) -> int:
    """0: all of them."""
    return limit if limit is not None else LISTED if not json_lines and os.isatty(1) else 0


def in_words(run: RunSummary, state: str) -> str:
    """How it stands; of one that is done, what its checks said."""
    if state != "done" or run.verified is None:
        return state
    return "verified" if run.verified else "not verified"


def _draw(console: Any, runs: Sequence[tuple[RunSummary, str]]) -> None:
    for run, _ in runs:
        if run.problem is not None:
            say(f"run {run.run_id}: {run.problem}", f"stockade runs rm --force {run.run_id} removes it")
    whole = [(run, state) for run, state in runs if run.problem is None]
    tasks = one_lines([run.task for run, _ in whole], _TASK_SHOWN)
    models = one_lines([run.model for run, _ in whole], 60)
    folders = one_lines([_short(run.folder) for run, _ in whole], 40)
    bots = one_lines([run.bot for run, _ in whole], 40)
    states = {state: Text(state, style) for state, style in STYLES.items()}
    shown = [states[in_words(run, state)] for run, state in whole]
    rows = [
        (_indented(run.run_id), moment(run.started), bot, model, state, str(run.turns), place, task)
        for (run, _), state, bot, model, place, task in zip(whole, shown, bots, models, folders, tasks, strict=True)
    ]
    if rows:
        draw_table(console, _COLUMNS, rows)


def _short(folder: str) -> str:
    home = expanduser("~")
    return f"~{folder.removeprefix(home)}" if f"{folder}/".startswith(f"{home}/") else folder
