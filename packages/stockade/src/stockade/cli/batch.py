"""`stockade batch`: many runs at once, and what became of them."""

import json
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click
from rich.console import Console
from rich.status import Status

from stockade.cli import flags
from stockade.cli.ui.console import Column, draw_table, moves_cursor, progress, results, write_line
from stockade.cli.ui.failures import INTERRUPTED, say
from stockade.cli.ui.interrupt import Interrupt
from stockade.cli.ui.safe import moment, one_line, some
from stockade.core.errors import StoreFailed, UsageError
from stockade.fleet import ray
from stockade.fleet.batch import Plan, Runner, opened
from stockade.fleet.inspect_log import inspect_log
from stockade.fleet.known import Known, known
from stockade.fleet.results import (
    FINAL,
    INFRASTRUCTURE,
    OUTCOMES,
    Attempt,
    Outcome,
    Results,
    driver_of,
    latest,
    read_results,
    results_of,
)
from stockade.fleet.statistics import Summary, compare, summary
from stockade.fleet.tasks import Selection
from stockade.fleet.workspaces import Workspaces
from stockade.runtime.records import open_store
from stockade.runtime.settings import Settings

_COLOURS = {"solved": "green", "check failed": "red", "gave up": "red", "budget": "magenta", "cancelled": "magenta"}
_ENDED = {
    "deadline": ("the deadline of the batch is over", "give it more by --deadline"),
    "cost": ("what is left of --max-cost is too little for the next task", "give it more by --max-cost"),
    "breaker": ("the same failure came too often in a row", "mend what it says; then stockade batch run goes on"),
    "user": ("stopped", None),
}
_FILE = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
_SELECTING: flags.Flags = (
    click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N tasks."),
    click.option("--filter", "filters", multiple=True, metavar="PATTERN", help="Only these ids, or tag=NAME."),
    click.option("--shuffle", is_flag=True, help="In an order by chance, the same for the same --seed."),
)  # fmt: skip
DRIVING: flags.Flags = (
    click.option("--parallel", metavar="N|auto", help="Runs at once; auto is what memory, CPU and the model allow."),
    click.option("--on", metavar="ray[:ADDRESS]", help="Drive the runs on Ray: here, or on the cluster at ADDRESS."),
    click.option("--workspaces", metavar="PATH|URL", help="Where the machines of Ray find the folders: a folder that "
                 "all see, or s3://BUCKET/PREFIX."),
    click.option("--results", "lines", type=click.Path(path_type=Path), metavar="FILE",
                 help="Where the results go, a line an attempt; by default beside the tasks."),
    click.option("--epochs", type=click.IntRange(1, 1000), metavar="N", help="Each task N times; with --seed, others."),
    click.option("--max-cost", "whole_cost", type=flags.Number(0), metavar="USD", help="Cost limit of the batch."),
    click.option("--deadline", type=flags.Number(0), metavar="S", help="Time limit of the batch in seconds."),
    click.option("--retries", type=click.IntRange(0, 100), metavar="N",
                 help="How often a task is tried again when the model's server or this machine failed; 2."),
    click.option("--breaker", type=click.IntRange(0), metavar="N",
                 help="End the batch after N equal failures in a row; 10, 0 is never."),
    flags.flag("bot"), *(flags.flag(key) for key in ("model", "smart_model", "fast_model", "fallback")),
    *(flags.flag(key) for key in ("max_turns", "timeout", "max_tokens")), *flags.SAMPLING, *flags.LOADING,
    flags.OPTION, flags.flag("answers"), *flags.BEST_OF, *flags.CHECK, *flags.TOOLS, *flags.SANDBOX,
    *flags.JSON, flags.flag("quiet"), flags.flag("plain"), *flags.STORE,
)  # fmt: skip
_FLAGS: flags.Flags = (
    *_SELECTING, *DRIVING,
    flags.flag("apply", "Apply the changes of solved tasks, one after the other."),
    flags.flag("discard", "Throw all changes away."),
)  # fmt: skip


@click.command("run", short_help="Run the tasks of a file; called again, it goes on.")
@_FILE
@flags.offered(_FLAGS)
def run(file: Path, **values: Any) -> int:
    """Run the tasks of FILE: JSONL, CSV, or a folder of task folders. Called again, it goes on where it stopped.

    A line is {"id", "task", "folder"?, "files"?, "image"?, "bot"?, "model"?, "check"?, "score"?, "protect"?,
    "limits"?, "tags"?}.
    Ctrl-C: nothing more is begun; again: what runs is stopped and saved. Status 0: all solved; 1: some not; 3: stopped
    by a limit; 4, 5: this machine, or the model, failed; 130: interrupted.

    \b
    stockade batch run tasks.jsonl --model openai/gpt-5 --parallel 8
    """
    return begin(file, values)


@click.command("retry", short_help="Do tasks of a batch again.")
@_FILE
@click.option("--failed", is_flag=True, help="All that were not solved.")
@click.option("--outcome", "outcomes", type=click.Choice([one for one in OUTCOMES if one in FINAL]), multiple=True,
              help="Those with this outcome; also several.")  # fmt: skip
@flags.offered(_FLAGS)
def retry(file: Path, *, failed: bool, outcomes: tuple[Outcome, ...], **values: Any) -> int:
    """Do tasks of a batch again that came to an end; each attempt is kept. Takes what `batch run` was given.

    What the model's server or this machine failed, and what was stopped, `batch run` tries again by itself.
    """
    if not (failed or outcomes):
        raise UsageError("nothing says which tasks to do again", "--failed, or --outcome budget")
    return begin(file, values, frozenset(outcomes) | (FINAL - {"solved"} if failed else frozenset()))


def begin(file: Path, values: dict[str, Any], again: frozenset[Outcome] = frozenset()) -> int:
    """What `batch run` does with the values of its flags; the exit status. Those of `again` are done once more."""
    own = (
        "parallel",
        "lines",
        "limit",
        "filters",
        "shuffle",
        "epochs",
        "whole_cost",
        "deadline",
        "retries",
        "breaker",
        "on",
        "workspaces",
    )
    given = {key: values.pop(key, None) for key in own}
    settings = flags.settings({**flags.given(values), "no_folder": True} if not values.get("folder") else values)
    plan = _plan(given, settings, again)
    select = Selection(given["limit"], given["filters"] or (), bool(given["shuffle"]), given["epochs"] or 1)
    for note in settings.notes:
        say(note)
    store = open_store(settings.options.store)
    try:
        with ExitStack() as stack:
            items, made = stack.enter_context(opened(file, given["lines"], settings.options, select))
            view = _View(settings, made)
            parallel = min(plan.parallel, len(items))
            kind = _runner(given["on"], given["workspaces"], stack, settings, parallel)
            runner = kind(items, made, store, plan, view.heard)
            view.runner = runner
            before = len(items) - len(runner.waiting)
            if before and not view.silent:
                say(f"{before} of {some(len(items), 'task')} were done before")
            interrupt = Interrupt()
            anyio.run(_drive, runner, view, interrupt)
            return _end(runner, view, interrupt)
    finally:
        anyio.run(store.close)


def _runner(
    where: str | None, folders: str | None, stack: ExitStack, settings: Settings, parallel: int
) -> Callable[..., Runner]:
    """Here, or of a cluster of Ray, which is there as long as `stack`."""
    if where is None:
        if folders is not None:
            raise UsageError("--workspaces is for runs on other machines", "--on ray:HOST:6379")
        return Runner
    name, colon, address = where.partition(":")
    if name != "ray" or (colon and not address):
        raise UsageError(f"--on: {where!r} is neither ray nor ray:ADDRESS", "--on ray; --on ray:HOST:6379")
    found = None if folders is None else Workspaces(folders)
    if found is not None:
        found.check()
    cluster = stack.enter_context(ray.connected(address, settings.options.store, parallel))
    return partial(ray.RayRunner, cluster, found)


def _plan(given: dict[str, Any], settings: Settings, again: frozenset[Outcome]) -> Plan:
    parallel = given["parallel"] or "auto"
    if parallel != "auto" and not (parallel.isascii() and parallel.isdigit() and int(parallel)):
        raise UsageError(f"--parallel: {parallel!r} is neither a number above 0 nor auto", "--parallel 8")
    names = {"retries": "retries", "breaker": "breaker", "whole_cost": "max_cost", "deadline": "deadline"}
    chosen = {name: given[key] for key, name in names.items() if given[key] is not None}
    front = settings.front
    return Plan(
        parallel=0 if parallel == "auto" else int(parallel),
        apply=front.apply,
        discard=front.discard,
        again=again,
        **chosen,
    )


class _View:
    """What the user sees while it goes on: a line a task, and on a terminal a line that is drawn again."""

    def __init__(self, settings: Settings, made: Results) -> None:
        front = settings.front
        self.json_lines, self.silent = front.json_lines, front.json_lines or front.quiet
        self.console = progress(plain=front.plain)
        self.runner: Runner | None = None
        self.status: Status | None = None
        live = moves_cursor(self.console, plain=front.plain) and not self.silent
        if live:
            self.status = self.console.status("")

    def heard(self, attempt: Attempt | None) -> None:
        if attempt is not None:
            if self.json_lines:
                print(json.dumps(attempt.model_dump(mode="json")), flush=True)
            elif not self.silent:
                write_line(self.console, _line(attempt), _COLOURS.get(attempt.outcome, "yellow"))
        if self.status is not None and self.runner is not None:
            self.status.update(_progress(self.runner))


def _line(one: Attempt) -> str:
    epoch = f" (epoch {one.epoch})" if one.epoch > 1 else ""
    again = f", attempt {one.attempt}" if one.attempt > 1 else ""
    why = f": {one_line(one.detail, 200)}" if one.detail and one.outcome != "solved" else ""
    tried = f", {some(len(one.candidates), 'candidate')}" if one.candidates else ""
    kept = f"; {one_line(one.kept, 200)}" if one.kept else ""
    used = f"{some(one.turns, 'turn')}, {one.seconds:.1f} s{tried}{again}"
    return f"{one_line(one.id)}{epoch}  {one.outcome}{why}{kept}  ({used})"


def _progress(runner: Runner) -> str:
    counts = Counter(runner.done.values())
    told = [f"{counts[name]} {name}" for name in OUTCOMES if counts[name]]
    cost = [f"{runner.cost:.4f} USD"] if runner.cost else []
    left = f"{len(runner.running)} running, {len(runner.waiting)} waiting"
    return " · ".join([*told, left, *cost, *(["nothing more is begun"] if runner.ended else [])])


async def _drive(runner: Runner, view: _View, interrupt: Interrupt) -> None:
    def no_more() -> None:
        runner.no_more()
        say(f"nothing more is begun; {some(len(runner.running), 'task')} to its end", "Ctrl-C again stops and saves")

    interrupt.pause = no_more
    with interrupt.cancelling(runner.stop), view.status or nullcontext():
        await runner.run()


def _end(runner: Runner, view: _View, interrupt: Interrupt) -> int:
    """The table, and the exit status."""
    found = [last for item in runner.items if (last := runner.results.last(item)) is not None]
    told = summary(runner.results.of(runner.items))
    if view.json_lines:
        print(json.dumps({"type": "result", "ended": runner.ended, "tasks": len(runner.items), **facts(told)}))
    elif not view.silent:
        _draw(view.console, told, len(runner.items))
        say(f"the results are in {runner.results.path}", f"stockade batch table {runner.results.path}")
    if runner.ended:
        say(*_ENDED[runner.ended])
    if interrupt.pressed:
        return INTERRUPTED
    broken = [one for one in found if one in INFRASTRUCTURE]
    if runner.ended in ("deadline", "cost", "user"):
        return 3
    if broken:
        return 5 if "model error" in broken else 4
    if runner.ended == "breaker":
        return 2
    return 0 if len(found) == len(runner.items) and all(one == "solved" for one in found) else 1


def facts(told: Summary) -> dict[str, Any]:
    """As JSON has it."""
    return {**asdict(told), "outcomes": dict(told.outcomes)}


def _draw(console: Console, told: Summary, tasks: int) -> None:
    """What came of it all, a line each."""
    solved, total = told.solved_of
    low, high = told.interval
    share = f", {100 * solved / total:.1f} % ({100 * low:.1f} to {100 * high:.1f} at 95 %)" if total else ""
    rows = [("tasks", f"{sum(told.outcomes.values())} of {tasks}"), ("solved", f"{solved} of {total}{share}")]
    rows += [(name, str(told.outcomes[name])) for name in OUTCOMES[1:] if told.outcomes[name]]
    rows += [(f"pass@{k}", f"{100 * share:.1f} %") for k, share in told.pass_at.items()]
    rows += [("attempts before the last", str(told.retried))] if told.retried else []
    rows += [("time", f"p50 {told.p50_s:.1f} s, p95 {told.p95_s:.1f} s"), ("turns", str(told.turns))]
    rows += [("tokens", str(told.tokens))] if told.tokens else []
    rows += [("cost", f"{told.cost:.4f} USD")] if told.cost else []
    for name, value in rows:
        write_line(console, f"{name:26}{value}")


@click.command("status", short_help="How far a batch is.")
@click.argument("file", type=click.Path(path_type=Path), metavar="[FILE]", required=False)
@flags.offered(flags.JSON)
def status(file: Path | None, **values: Any) -> int:
    """How far the batch of FILE is, and whether it is under way; without one, all batches of this machine."""
    as_json = flags.given(values).get("json")
    if file is not None:
        path = results_of(file)
        told, driver = summary(read_results(path)), driver_of(path)
        if as_json:
            print(json.dumps({"results": str(path), "running": driver is not None, **facts(told)}))
            return 0
        write_line(results(), f"{path}: {'under way' if driver is not None else 'not under way'}")
        _draw(results(), told, sum(told.outcomes.values()))
        return 0
    rows = list[tuple[Known, Summary]]()
    for one in known():
        try:
            rows.append((one, summary(read_results(Path(one.results)))))
        except StoreFailed as error:
            say(error.message, error.hint)
    if as_json:
        for one, told in rows:
            row = {"results": one.results, "running": one.is_running, **facts(told)}
            print(json.dumps({"id": one.id, "tasks": one.tasks, "begun": one.begun, **row}))
    elif rows:
        draw_table(results(), _BATCHES, [_batch(*row) for row in rows])
    else:
        say("no batch was begun on this machine", "stockade batch run TASKS.jsonl")
    return 0


_BATCHES = (Column("results", shrinks=True), Column("state"), Column("tasks", right=True), Column("solved", right=True),
            Column("cost", right=True, leaves=1), Column("begun", leaves=2))  # fmt: skip


def _batch(one: Known, told: Summary) -> Sequence[str]:
    done, state = sum(told.outcomes.values()), "under way" if one.is_running else "not under way"
    row = one_line(one.results), state, f"{done} of {one.tasks}", str(told.outcomes["solved"])
    return *row, f"{told.cost:.4f}" if told.cost else "", moment(one.begun)


_COLUMNS = (Column("task", shrinks=True), Column("outcome"), Column("attempt", right=True, leaves=2),
            Column("turns", right=True, leaves=1), Column("seconds", right=True, leaves=3),
            Column("tokens", right=True, leaves=4), Column("run"))  # fmt: skip


@click.command("table", short_help="What became of each task.")
@_FILE
@click.option("--outcome", "outcomes", type=click.Choice(OUTCOMES), multiple=True, help="Only those; also several.")
@click.option("--attempts", is_flag=True, help="Every attempt, not only the last.")
@flags.offered(flags.JSON)
def table(file: Path, *, outcomes: tuple[str, ...], attempts: bool, **values: Any) -> int:
    """What became of each task of the batch of FILE: its last attempt. `stockade runs show RUN` has all of one."""
    found = read_results(results_of(file))
    shown = [one for one in (found if attempts else latest(found)) if not outcomes or one.outcome in outcomes]
    if flags.given(values).get("json"):
        for one in shown:
            print(json.dumps(one.model_dump(mode="json")))
        return 0
    draw_table(results(), _COLUMNS, [_row(one) for one in shown])
    write_line(results(), "")
    _draw(results(), summary(found), len(latest(found)))
    return 0


def _row(one: Attempt) -> Sequence[str]:
    name = one_line(one.id) + (f" (epoch {one.epoch})" if one.epoch > 1 else "")
    return name, one.outcome, str(one.attempt), str(one.turns), f"{one.seconds:.1f}", str(one.tokens), one_line(one.run)


@click.command("export", short_help="The results as a log of inspect_ai.")
@_FILE
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="LOG.json", help="A new file; else stdout.")
def export(file: Path, *, output: Path | None) -> int:
    """The results of the batch of FILE as a log of inspect_ai (its JSON format), for `inspect view`."""
    path = results_of(file)
    log = json.dumps(inspect_log(path.name.removesuffix(".results.jsonl"), read_results(path)), indent=1)
    if output is None:
        print(log)
        return 0
    try:
        with output.open("x") as made:
            made.write(f"{log}\n")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}", "name a new file") from None
    return 0


@click.command("stop", short_help="End a batch that is under way, in order.")
@_FILE
@click.option("--finish", is_flag=True, help="What runs comes to its end; nothing more is begun.")
def stop(file: Path, *, finish: bool) -> int:
    """Stop and save the batch of FILE: what runs is closed on record, and goes on at the next `batch run`."""
    driver = driver_of(results_of(file))
    if driver is None:
        raise UsageError(f"the batch of {file} is not under way", f"stockade batch status {file}")
    if driver.pidfd is None:
        raise UsageError("the batch is driven by stockade serve", "POST /v1/batches/{id}/stop, or the page")
    signal.pidfd_send_signal(driver.pidfd, signal.SIGINT if finish else signal.SIGTERM)
    return 0


@click.command("compare", short_help="Compare two batches on the tasks that both have.")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@flags.offered(flags.JSON)
def compare_(first: Path, second: Path, **values: Any) -> int:
    """Compare the batches of FIRST and SECOND on the tasks and epochs that both have, pair by pair.

    p is that of the exact sign test on those that only one of them solved (McNemar's, exact).
    """
    found = compare(*(read_results(results_of(one)) for one in (first, second)))
    if flags.given(values).get("json"):
        print(json.dumps(asdict(found)))
        return 0
    total = found.both + len(found.only_first) + len(found.only_second) + found.neither
    if not total:
        raise UsageError("the two batches have no task in common that came to an end in both", "compare others")
    rows = {"tasks in both": str(total), "both solved": str(found.both), "neither": str(found.neither)}
    for name, only in ((first, found.only_first), (second, found.only_second)):
        rows[f"only {one_line(str(name))}"] = f"{len(only)}  {one_line(', '.join(only), 300)}"
    for label, value in {**rows, "p (exact sign test)": f"{found.p:.3g}"}.items():
        write_line(results(), f"{label:26} {value.strip()}")
    return 0
