"""`stockade runs search`: runs by what was asked, answered and done in them."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import anyio
import click
from rich.text import Text

from stockade.cli import flags
from stockade.cli.lazy import load
from stockade.cli.listing import FOLDER, LIMIT, STYLES, WIDTH, in_words, resolved, shown_limit
from stockade.cli.opened import on_record
from stockade.cli.ui.console import results, write_prose
from stockade.cli.ui.failures import say
from stockade.cli.ui.safe import hide, moment, one_line, screen, some
from stockade.core.ports import RunStore
from stockade.core.summary import RunSummary
from stockade.run_lock import status_now


@click.command("search", short_help="Search tasks, answers and commands of past runs.")
@click.argument("words", nargs=-1, required=True)
@FOLDER
@LIMIT
@WIDTH
@flags.offered(flags.JSON, flags.STORE)
def search(words: tuple[str, ...], folder: str | None, limit: int | None, width: int | None, **values: Any) -> int:
    """Runs whose tasks, answers and commands hold all WORDS, newest first, each with where they stand.

    Small and capital letters are the same, and a word may be only begun; what is quoted stands side by side. Status 1
    when there is none.
    """
    with on_record(values) as (store, settings):
        found = [run for run in _found(store, folder, words) if run.problem is None]
        shown = found[: shown_limit(limit, settings.front.json_lines) or None]
        console = results()
        console.width = width or console.width
        for run in shown:
            _hide(store, run)
            said = anyio.run(store.said, run.run_id, words)
            state = status_now(run.run_id, run.status, run.driver)
            if settings.front.json_lines:
                lines = [{"kind": kind, "text": text} for kind, text in said]
                print(json.dumps(screen().data({**asdict(run), "status": state, "said": lines})))
                continue
            head = f"{run.run_id}  {moment(run.started)}  "
            stands = in_words(run, state)
            console.print(Text.assemble((head, "bold"), (stands, STYLES.get(stands, ""))), soft_wrap=True)
            for kind, text in said:
                line = Text(f"  {kind}: {_around(text, words, console.width - len(kind) - 5)}")
                write_prose(console, line)
        if len(shown) < len(found):
            say(f"and {some(len(found) - len(shown), 'older run')}", "--limit 0 shows all")
        if not found:
            say("no run has these words in its tasks, answers and commands")
        return 0 if found else 1


def _found(store: RunStore, folder: str | None, words: Sequence[str]) -> list[RunSummary]:
    here = resolved(folder)

    async def ask() -> list[RunSummary]:
        return await store.runs(folder=here, words=words)

    return anyio.run(ask)


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
