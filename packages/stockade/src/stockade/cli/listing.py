"""`stockade runs list` and `search`: which runs there are. Imports little: a list is looked at often."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import click
from rich.text import Text

from stockade.cli import flags
from stockade.cli.lazy import load
from stockade.cli.ui.console import Column, draw_table, results
from stockade.cli.ui.failures import say
from stockade.cli.ui.safe import hide, moment, one_line, one_lines, screen, some
from stockade.core.errors import UsageError
from stockade.core.events import never_began
from stockade.core.ports import RunStore, RunSummary
from stockade.run_lock import status_now

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
STYLES = {"done": "green", "stopped": "yellow", "failed": "red", "interrupted": "yellow", "running": "cyan"}
STATES = ("running", "done", "stopped", "failed", "interrupted", "damaged")
_TASK_SHOWN = 60
_FOLDER = click.option("--folder", metavar="PATH", help="Only runs of this folder, and of those in it.")
_LIMIT = click.option(
    "--limit", type=click.IntRange(0), metavar="N", help=f"The newest N; {LISTED} on a terminal, 0: all."
)
_WIDTH = click.option("--width", type=click.IntRange(20, 1000), metavar="N", help="Columns to draw it in.")


@click.command("list", short_help="Past runs, newest first.")
@_FOLDER
@click.option("--status", type=click.Choice(STATES), multiple=True, help="Only those; also several.")
@click.option("--filter", "words", multiple=True, metavar="WORDS", help="Only those that `runs search WORDS` finds.")
@_LIMIT
@_WIDTH
@flags.offered(flags.JSON, flags.STORE)
def list_runs(
    folder: str | None, status: tuple[str, ...], words: tuple[str, ...], limit: int | None, width: int | None,
    **values: Any,
) -> int:  # fmt: skip
    """Past runs, newest first. What failed before the model had answered once is no run: --status failed lists it."""
    with _on_record(values) as (store, json_lines):
        terms = [term for one in words for term in one.split()]
        found = _found(store, folder, terms)
        states = [(run, status_now(run.run_id, run.status, run.driver)) for run in found]
        wanted = [
            (run, state) for run, state in states
            if (state in status if status else run.problem is not None or not never_began(state, run.turns))
        ]  # fmt: skip
        shown = wanted[: _limit(limit, json_lines) or None]
        if json_lines:
            for run, state in shown:
                print(json.dumps(screen().data({**run.model_dump(), "status": state})))
            return 0
        console = results()
        if width is not None:
            console.width = width
        _draw(console, shown)
        if not found:
            say("there are no runs yet" if not (folder or words) else "there is no such run", "stockade run TASK")
        elif len(shown) < len(wanted):
            say(f"and {some(len(wanted) - len(shown), 'older run')}", "--limit 0 lists all")
        if not status and (failed := len(states) - len(wanted)):
            say(f"{some(failed, 'failed start')} not listed", "--status failed")
        return 0


@click.command("search", short_help="Runs by words of their tasks, answers and commands.")
@click.argument("words", nargs=-1, required=True)
@_FOLDER
@_LIMIT
@_WIDTH
@flags.offered(flags.JSON, flags.STORE)
def search(words: tuple[str, ...], folder: str | None, limit: int | None, width: int | None, **values: Any) -> int:
    """Runs whose tasks, answers and commands hold all WORDS, newest first, each with where they stand.

    Small and capital letters are the same, and a word may be only begun; what is quoted stands side by side. Status 1
    when there is none.
    """
    with _on_record(values) as (store, json_lines):
        found = [run for run in _found(store, folder, words) if run.problem is None]
        shown = found[: _limit(limit, json_lines) or None]
        console = results()
        console.width = width or console.width
        for run in shown:
            _hide(store, run)
            said = anyio.run(store.said, run.run_id, words)
            state = status_now(run.run_id, run.status, run.driver)
            if json_lines:
                lines = [{"kind": kind, "text": text} for kind, text in said]
                print(json.dumps(screen().data({**run.model_dump(), "status": state, "said": lines})))
                continue
            head = f"{run.run_id}  {moment(run.started)}  "
            console.print(Text.assemble((head, "bold"), (state, STYLES.get(state, ""))), soft_wrap=True)
            for kind, text in said:
                line = Text(f"  {kind}: {_around(text, words, console.width - len(kind) - 5)}")
                console.print(line, soft_wrap=True)
        if len(shown) < len(found):
            say(f"and {some(len(found) - len(shown), 'older run')}", "--limit 0 shows all")
        if not found:
            say("no run has these words in its tasks, answers and commands")
        return 0 if found else 1


@contextmanager
def _on_record(values: Mapping[str, Any]) -> Iterator[tuple[RunStore, bool]]:
    settings = flags.settings(flags.given(values))
    store: RunStore = load("store.opening:read_store")(settings.options.store)
    try:
        yield store, settings.front.json_lines
    finally:
        anyio.run(store.close)


def _found(store: RunStore, folder: str | None, words: Sequence[str]) -> list[RunSummary]:
    here = str(Path(folder).expanduser().resolve()) if folder is not None else None
    if here is not None and "\0" in here:
        raise UsageError("--folder: this is no path")

    async def ask() -> list[RunSummary]:
        return await store.runs(folder=here, words=words)

    return anyio.run(ask)


def _limit(limit: int | None, json_lines: bool) -> int:
    """0: all of them."""
    return limit if limit is not None else LISTED if not json_lines and os.isatty(1) else 0


def _hide(store: RunStore, run: RunSummary) -> None:
    """What this run hid is hidden in what is shown of it."""

    async def first() -> Any:
        return await store.events(run.run_id, limit=1)

    hide(load("core.secrets:view_of")(anyio.run(first)[0], os.environ, ()).redactor)


def _around(text: str, words: Sequence[str], room: int) -> str:
    """The beginning, or what is around the first of the words where that is further on; in one line."""
    line = one_line(text, 20_000)
    parts = [re.escape(part) for word in words for part in re.findall(r"[^\W_]+", word)]
    match = re.search("|".join(parts), line, re.IGNORECASE) if parts else None
    start = match.start() - room // 3 if match and match.end() > room else 0
    shown = line[max(0, start) :]
    shown = ("…" if start > 0 else "") + shown
    return shown if len(shown) <= room else f"{shown[: max(1, room - 1)]}…"


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
    rows = [
        (run.run_id, moment(run.started), bot, model, states[state], str(run.turns), place, task)
        for (run, state), bot, model, place, task in zip(whole, bots, models, folders, tasks, strict=True)
    ]
    if rows:
        draw_table(console, _COLUMNS, rows)


def _short(folder: str) -> str:
    home = str(Path.home())
    return f"~{folder.removeprefix(home)}" if f"{folder}/".startswith(f"{home}/") else folder
