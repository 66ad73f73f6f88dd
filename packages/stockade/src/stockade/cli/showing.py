"""`stockade runs show`: one run from its record. Imports nothing that reviews changes: the first page is there soon."""

import os
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

import anyio
import click
from rich.console import Console

from stockade.changes import FACTUAL, RunFacts, check_kept, facts
from stockade.cli import flags
from stockade.cli.listing import STYLES
from stockade.cli.ui.console import results, write_prose
from stockade.cli.ui.pager import paged
from stockade.cli.ui.render import Renderer
from stockade.cli.ui.safe import hide
from stockade.core.errors import LayerLost
from stockade.core.events import RunEvent, RunStarted, to_json
from stockade.core.ports import RunStore
from stockade.core.secrets import view_of
from stockade.run_lock import is_locked, status_now
from stockade.store.opening import read_store

_PAGE = 300


@click.command("show", short_help="Show a whole run, step by step.")
@flags.run(default="last")
@click.option("--full", is_flag=True, help="Every line of every output.")
@flags.offered(flags.JSON, flags.STORE)
def show(run: str, full: bool, **values: Any) -> int:
    """Show a whole run, step by step."""
    how = flags.reading(values)
    store = read_store(how.store)
    try:
        run_id = anyio.run(store.find, run)
        pages = _pages(store, run_id)
        first = next(pages)
        started = first[0]
        assert isinstance(started, RunStarted)
        redactor = view_of(started, os.environ, how.redact).redactor
        hide(redactor)
        if how.json_lines:
            for event in chain(first, chain.from_iterable(pages)):
                print(to_json(redactor.event(event), ascii_only=True))
            return 0
        kept = list[RunEvent]()
        with paged(results(plain=how.plain)) as (console, _):
            renderer = Renderer(console, whole=full, show_answer=True, numbered=True)
            for event in chain(first, chain.from_iterable(pages)):
                renderer.event(event)
                if isinstance(event, FACTUAL):
                    kept.append(event)
            _end(console, store, run_id, facts(kept))
        return 0
    finally:
        anyio.run(store.close)


def _pages(store: RunStore, run_id: str) -> Iterator[list[RunEvent]]:
    """Its events, some at a time, so that the first are shown at once. StoreFailed, UsageError as of `events`."""
    number = 0
    while page := anyio.run(partial(store.events, run_id, first=number, limit=_PAGE)):
        yield page
        number += len(page)


def _end(console: Console, store: RunStore, run_id: str, found: RunFacts) -> None:
    """What is to be known of a run that is cut off, or whose changes are gone."""
    if found.finished is None:
        state = status_now(run_id, "running", anyio.run(store.driver, run_id))
        write_prose(console, f"[{state}: the record ends here]", STYLES[state])
    if not is_locked(run_id):
        try:
            check_kept(found)
        except LayerLost as lost:
            write_prose(console, f"[{lost}]", "red")
