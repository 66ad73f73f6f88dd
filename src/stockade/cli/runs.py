"""`stockade runs`: what is on record, and what becomes of the changes of a run."""

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import click
from rich.text import Text

from stockade import assemble
from stockade.alive import is_alive, tidy
from stockade.cli import flags, listing, review
from stockade.cli.console import can_ask, progress, results
from stockade.cli.decide import Decider, ask_person
from stockade.cli.export import export
from stockade.cli.failures import say
from stockade.cli.render import Renderer
from stockade.cli.replay import replay
from stockade.cli.resume import resume, rewind
from stockade.cli.safe import hide, one_line, safe_text, screen, some
from stockade.core.errors import FolderMoved, LayerLost, UsageError
from stockade.core.events import RunEvent, to_json
from stockade.core.ports import Differ, RunStore
from stockade.core.secrets import EXACT
from stockade.settings import Settings

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
    store = assemble.read_store(settings.options.store)
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
                say(f"run {summary.run_id}: {summary.problem}", "stockade runs recover saves what is readable")
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
        run_id, events = _read(store, run)
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


@command.command("diff")
@click.argument("run", default="last")
@click.option("--host", is_flag=True, help="What changed here since, of the files that the run changed.")
@click.option("--show-secrets", is_flag=True, help="As it is, with what is hidden otherwise.")
@flags.offered(flags.JSON, flags.STORE)
def diff(run: str, host: bool, show_secrets: bool, **values: Any) -> int:
    """What a run changed and nobody decided on yet; to a pipe as a patch for `git apply`.

    What is to be hidden is masked on a terminal; a patch that holds it is refused without --show-secrets.
    """

    def work(store: RunStore, settings: Settings) -> int:
        run_id, events = _read(store, run)
        try:
            pending = _pending(run_id, events)
        except _NothingLeft as nothing:
            say(nothing.message)
            return 0
        if show_secrets:
            hide(EXACT)
        else:
            review.view(events, settings.options.redact).check_files()
        reviewer: Differ = assemble.reviewer()
        if host:
            reviewer = assemble.host_side()
            pending = review.pending(reviewer, [one.layer for one in pending])
            if not pending:
                say(f"nothing of what run {run_id} changed has changed here since")
                return 0
        terminal = sys.stdout.isatty()
        if settings.front.json_lines:
            lines = _json_lines(reviewer, pending)
            if terminal:
                print(*map(safe_text, lines), sep="\n")
            else:
                review.write_patch(f"{line}\n" for line in lines)
        elif terminal:
            review.draw(results(plain=settings.front.plain), reviewer, pending)
        else:
            review.write_patch(_patches(reviewer, pending))
        return 0

    return _on_record(values, work)


def _json_lines(reviewer: Differ, pending: list[review.Pending]) -> Iterator[str]:
    for one in pending:
        for change in one.changes:
            patch = reviewer.unified_diff(one.layer, change)
            yield json.dumps({**change.model_dump(), "folder": one.layer.host, "diff": patch})


def _patches(reviewer: Differ, pending: list[review.Pending]) -> Iterator[str]:
    """Those that git can apply; what it needs to know beside them is said."""
    for one in pending:
        if (place := review.place_in_git(one.layer)) is not None:
            command = f"git apply --directory={shlex.quote(place)}"
            say(f"git takes the paths of this patch from the root of its repository, not from {place}", command)
        for change in one.changes:
            if change.refused:
                say(f"left out: {change.path}: {change.refused}")
            else:
                yield reviewer.unified_diff(one.layer, change)


@command.command("apply")
@click.argument("run", default="last")
@click.option("--flagged", is_flag=True, help="Also what could run on this machine later.")
@click.option("--force", is_flag=True, help="Also over files that changed here since the run began.")
@click.option("--merge", is_flag=True, help="Merge files that both changed; what cannot be is left as it is here.")
@flags.offered(flags.STORE)
def apply(run: str, flagged: bool, force: bool, merge: bool, **values: Any) -> int:
    """Write a run's changes to the folder. Status 1 when something was left out, or changed here too."""

    def work(store: RunStore, settings: Settings) -> int:
        run_id, events = _read(store, run)
        pending = _pending(run_id, events)
        decider = _decider(run_id, store)
        done = decider.apply(pending, flagged=flagged, force=force, merge=merge)
        if done.flagged and can_ask(no_input=settings.front.no_input):
            left = review.pending(decider.reviewer, review.facts(events).layers)
            answer = ask_person("Apply those too, although they could run on this machine later? [y]es / [N]o: ")
            if answer in ("y", "yes"):
                more = decider.apply(left, flagged=True, force=force, merge=merge)
                done.paths, done.flagged = done.paths + more.paths, []
        say(f"applied {some(len(done.paths), 'change')}" if done.paths else "nothing was applied")
        tidy(run_id)
        return 0 if done.complete else 1

    return _on_record(values, work)


@command.command("discard")
@click.argument("run", default="last")
@flags.offered(flags.STORE)
def discard(run: str, **values: Any) -> int:
    """Throw a run's changes away. The folder stays as it is."""

    def work(store: RunStore, settings: Settings) -> int:
        run_id, events = _read(store, run)
        try:
            pending = _pending(run_id, events, wanted=False)
            what = some(sum(len(one.changes) for one in pending), "change")
        except (FolderMoved, LayerLost):
            pending = [review.Pending(layer, ()) for layer in review.kept_layers(review.facts(events).layers)]
            what = "the changes"
        _decider(run_id, store).discard(pending)
        assemble.sweep(run_id)
        tidy(run_id)
        say(f"threw away {what} of run {run_id}")
        return 0

    return _on_record(values, work)


class _NothingLeft(UsageError):
    """There is no change to decide on. An error for whoever wants to decide, none for whoever wants to see."""


def _read(store: RunStore, reference: str) -> tuple[str, list[RunEvent]]:
    run_id = anyio.run(store.find, reference)
    return run_id, anyio.run(store.events, run_id)


def _pending(run_id: str, events: list[RunEvent], *, wanted: bool = True) -> list[review.Pending]:
    """What can be decided on. _NothingLeft when there is nothing, saying why; UsageError while it runs.

    Not `wanted`: it will be thrown away.
    """
    if is_alive(run_id):
        raise UsageError(f"run {run_id} is still under way", "wait for its end, or stop it")
    if wanted:
        from stockade.assemble.restoring import bring_back

        if bring_back(events):
            say("the machine went down with this run: its changes are those of its last turn on record")
    found = review.facts(events)
    review.check_kept(found)
    if found.discarded is not None:  # cut off before its layers were removed
        review.discard(assemble.reviewer(), found.layers)
    work = review.pending(assemble.reviewer(), found.layers)
    if work:
        return work
    review.discard(assemble.reviewer(), found.layers)
    assemble.sweep(run_id)
    tidy(run_id)
    if found.discarded is not None:
        raise _NothingLeft(f"the changes of run {run_id} were thrown away on {_when(found.discarded.at)}")
    if found.applied is not None:
        raise _NothingLeft(f"the changes of run {run_id} were already applied on {_when(found.applied.at)}")
    raise _NothingLeft(f"run {run_id} changed nothing that is still to be decided on")


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _decider(run_id: str, store: RunStore) -> Decider:
    def record(event: RunEvent) -> None:
        anyio.run(store.append, run_id, [event])

    return Decider(run_id, progress(), assemble.reviewer(), record)


for more in (resume, rewind, replay, export):
    command.add_command(more)
