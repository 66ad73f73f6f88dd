"""`stockade runs`: what is on record, and what becomes of the changes of a run."""

import json
import time
from collections.abc import Callable
from typing import Any

import anyio
import click
from rich.text import Text

from stockade.alive import is_alive
from stockade.cli import flags, listing, review
from stockade.cli.changes import apply, diff, discard, undo
from stockade.cli.console import results
from stockade.cli.export import export
from stockade.cli.failures import say
from stockade.cli.removing import prune, rm
from stockade.cli.render import Renderer
from stockade.cli.replay import replay
from stockade.cli.resume import resume, rewind
from stockade.cli.safe import one_line, screen
from stockade.core.errors import LayerLost
from stockade.core.events import to_json
from stockade.core.ports import RunStore
from stockade.runtime import records
from stockade.runtime.settings import Settings

_TASK_SHOWN = 60
_COLUMNS = (
    listing.Column("run"),
    listing.Column("when", leaves=1),
    listing.Column("bot", leaves=2),
    listing.Column("model", leaves=3),
    listing.Column("status"),
    listing.Column("turns", right=True),
    listing.Column("task", shrinks=True),
)
_STYLES = {"done": "green", "stopped": "yellow", "failed": "red", "interrupted": "yellow", "running": "cyan"}


@click.group("runs", short_help="Runs on record: show, go on, go back, export, apply.")
def command() -> None:
    """Runs on record. RUN is an id, the beginning of one, or `last`."""


def _on_record(values: dict[str, Any], work: Callable[[RunStore, Settings], int]) -> int:
    """Open the record, do `work`, close it."""
    settings = flags.load(flags.given(values))
    store = records.read_store(settings.options.store)
    try:
        return work(store, settings)
    finally:
        anyio.run(store.close)


def _state(run_id: str, status: str, driver: str | None = None) -> str:
    """`running` of a process that is gone is `interrupted`. `driver`: who holds the lease, here or elsewhere."""
    return "interrupted" if status == "running" and driver is None and not is_alive(run_id) else status


@command.command("list")
@flags.offered(flags.JSON, flags.STORE)
def list_runs(**values: Any) -> int:
    """All runs, newest first."""

    def work(store: RunStore, settings: Settings) -> int:
        summaries = anyio.run(store.runs)
        if settings.front.json_lines:
            for summary in summaries:
                state = _state(summary.run_id, summary.status, summary.driver)
                print(json.dumps(screen().data({**summary.model_dump(), "status": state})))
            return 0
        rows = []
        for summary in summaries:
            if summary.problem is not None:
                say(f"run {summary.run_id}: {summary.problem}", f"stockade runs rm --force {summary.run_id} removes it")
                continue
            state = _state(summary.run_id, summary.status, summary.driver)
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.started))
            cells = (summary.run_id, when, summary.bot, one_line(summary.model, 60))
            rows.append((
                *(Text(cell) for cell in cells),
                Text(state, _STYLES.get(state, "")),
                Text(str(summary.turns)),
                Text(one_line(summary.task, _TASK_SHOWN)),
            ))  # fmt: skip
        if rows:
            listing.draw(results(), _COLUMNS, rows)
        elif not summaries:
            say("there are no runs yet", "stockade run TASK")
        return 0

    return _on_record(values, work)


@command.command("show")
@click.argument("run", default="last")
@click.option("--full", is_flag=True, help="Every line of every output.")
@flags.offered(flags.JSON, flags.STORE)
def show(run: str, full: bool, **values: Any) -> int:
    """A whole run as it went, from its record."""

    def work(store: RunStore, settings: Settings) -> int:
        run_id = anyio.run(store.find, run)
        events = anyio.run(store.events, run_id)
        redactor = review.view(events, settings.options.redact).redactor
        if settings.front.json_lines:
            for event in events:
                print(to_json(redactor.event(event), ascii_only=True))
            return 0
        console = results(plain=settings.front.plain)
        renderer = Renderer(console, whole=full, show_answer=True, numbered=True)
        for event in events:
            renderer.event(event)
        found = review.facts(events)
        if found.finished is None:
            state = _state(run_id, "running", anyio.run(store.driver, run_id))
            console.print(Text(f"[{state}: the record ends here]", _STYLES[state]), soft_wrap=True)
        if not is_alive(run_id):
            try:
                review.check_kept(found)
            except LayerLost as lost:
                console.print(Text(f"[{lost}]", "red"), soft_wrap=True)
        return 0

    return _on_record(values, work)


for more in (diff, apply, undo, discard, resume, rewind, replay, export, rm, prune):
    command.add_command(more)
