"""`stockade runs resume` and `rewind`: a run on record goes on, from its end or from one of its turns."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import anyio
import click

from stockade.cli import flags
from stockade.cli.opened import on_record
from stockade.cli.run import ask_task, carry_out, read_task
from stockade.cli.talk import Talk
from stockade.cli.ui.console import can_ask
from stockade.cli.ui.failures import say
from stockade.core.errors import StockadeError, UsageError
from stockade.core.events import ChangesApplied, ChangesDiscarded, ChangesUndone, RunFinished
from stockade.core.ports import RunStore
from stockade.core.settings import FrontSettings, fields
from stockade.paths import current_folder
from stockade.run_lock import is_locked
from stockade.runtime.factory import check_task, prepare
from stockade.runtime.records import newest_here
from stockade.runtime.removing import take_back
from stockade.runtime.resume import CHANGEABLE, make_branch, spec_of
from stockade.runtime.sandboxes import reviewer
from stockade.runtime.settings import Settings

RULES = ("hooks", "loop_repeats", "small_models")
BOUNDS = (("max_turns", "turns"), ("timeout", "seconds"), ("max_tokens", "tokens"), ("max_cost", "cost"))
OVER = (RunFinished, ChangesApplied, ChangesUndone, ChangesDiscarded)
"""The last events of a run that nothing interrupted."""
AGAIN: flags.Flags = (
    flags.flag("model", "Another model; by default the same one."),
    *(flags.flag(key, f"Another bound for the {what} of the whole task.") for key, what in BOUNDS),
    flags.flag("check", "Another check at the end; by default the same."),
    flags.flag("net", "What it may reach from now on."),
    flags.flag("attach", "An image that the model sees beside TASK."),
    click.option("-o", "option", multiple=True, metavar="KEY=VALUE", help=f"Another rule: {', '.join(RULES)}."),
)


@click.command("resume", short_help="Go on with a run: after a crash, a stop, or with a new task.")
@flags.run(default="last")
@click.argument("task", required=False)
@click.option(
    "--from-scratch", is_flag=True, help="Go on even when what it wrote before is not on this machine any more."
)
@flags.offered(AGAIN, flags.CHANGES, flags.SHOWN, flags.STORE)
def resume(run: str, task: str | None, from_scratch: bool, **values: Any) -> int:
    """Go on with RUN, which was cut, stopped or failed; or give it a new TASK after its end.

    Nothing is run again: an action that was under way is reported to the bot as unknown. Files are those of the last
    recorded turn, the shell is a new one in the same folder with the same exported variables. A new TASK has the run's
    budget once more. Exit status as of `stockade run`.
    """
    given = flags.given(values)
    with _opened(given) as (store, settings):
        run_id = anyio.run(store.find, run)
        refuse_running(store, run_id)
        history = tuple(anyio.run(store.events, run_id))
        words = check_task(read_task(task)) if task is not None else ""
        spec = spec_of(history, settings.options, words, given, from_scratch=from_scratch)
        return carry_out(settings, store, partial(prepare, spec, store))


def go_on(task: str | None, given: dict[str, Any], *, talk: Talk | None = None) -> int:
    """`run -c`: with the last run of this folder; the exit status. `talk` as of carry_out."""
    with continued(given) as (store, settings, run_id):
        history = tuple(anyio.run(store.events, run_id))
        asks = not (settings.front.quiet or settings.front.json_lines) and can_ask(no_input=settings.front.no_input)
        if task is None and asks and isinstance(history[-1], OVER):
            words = ask_task("", asks=True)
        else:
            words = check_task(read_task(task)) if task is not None else ""
        spec = spec_of(history, settings.options, words, given)
        return carry_out(settings, store, partial(prepare, spec, store), talk=talk)


@contextmanager
def continued(given: dict[str, Any]) -> Iterator[tuple[RunStore, Settings, str]]:
    """The last run of this folder, which is said. UsageError for what cannot be another from now on."""
    if others := sorted(given.keys() - {*CHANGEABLE, *fields(FrontSettings), "store", "redact", "option"}):
        what = f"--{others[0].replace('_', '-')}: the run goes on with what it began with"
        raise UsageError(what, "leave it out, or begin a new run without -c")
    with _opened(given) as (store, settings):
        run_id = anyio.run(newest_here, store, current_folder())
        refuse_running(store, run_id)
        say(f"goes on with run {run_id}")
        yield store, settings, run_id


@click.command("rewind", short_help="Go back to a turn of a run and on from there, as a new run.")
@flags.run(default="last")
@click.argument("task", required=False)
@click.option("--to", "turn", type=int, required=True, metavar="N", help="The turn to go back to; 0 is the beginning.")
@click.option("--only", is_flag=True, help="Make the new run and do not go on with it yet.")
@flags.offered(AGAIN, flags.CHANGES, flags.SHOWN, flags.STORE)
def rewind(run: str, task: str | None, turn: int, only: bool, **values: Any) -> int:
    """Go back to the end of turn N of RUN, conversation and files, and on from there as a new run.

    RUN itself stays as it is. With a TASK the bot is given that from there. Exit status as of `stockade run`.
    """
    given = flags.given(values)
    with _opened(given) as (store, settings):
        words = check_task(read_task(task)) if task is not None else ""
        run_id = anyio.run(store.find, run)
        refuse_running(store, run_id)
        branch, history = anyio.run(make_branch, store, anyio.run(store.events, run_id), turn)
        if only:
            say(f"run {branch} is run {run_id} after turn {turn}", f"stockade runs resume {branch}")
            print(branch)
            return 0
        try:
            spec = spec_of(history, settings.options, words, given)
            return carry_out(settings, store, partial(prepare, spec, store))
        except StockadeError:
            if len(anyio.run(store.events, branch)) == len(history):  # it did not go on
                anyio.run(take_back, store, reviewer(), branch)
            raise


@contextmanager
def _opened(given: dict[str, Any]) -> Iterator[tuple[RunStore, Settings]]:
    """`given` has what `-o` says too, as far as it is a rule of the run; UsageError for what it keeps."""
    with on_record(given) as (store, settings):
        for pair in given.pop("option", ()):
            key = pair.partition("=")[0].strip().replace("-", "_")
            if key not in RULES:
                way_out = f"-o is for {', '.join(RULES)} here"
                raise UsageError(f"-o {key}: the run goes on with what it began with", way_out)
            given[key] = getattr(settings.options, key)
        yield store, settings


def refuse_running(store: RunStore, run_id: str) -> None:
    """UsageError while somebody drives it."""
    driver = anyio.run(store.driver, run_id)
    if driver is not None or is_locked(run_id):
        raise UsageError(f"run {run_id} is still under way ({driver or 'another process'})", "wait, or stop it")
